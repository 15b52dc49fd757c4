#!/bin/bash
# Entry point of the image: brings up a Slurm of several nodes with `penstock cluster`, and runs the agent of the site over
# it until SIGTERM. Ends with the agent's exit code.
#   PENSTOCK_NODES    how many nodes; default 8
#   PENSTOCK_…__…     single keys of the configuration, /etc/penstock/penstock.yaml
set -euo pipefail

JOBS_PER_START=20000

# attend COMMAND…: run it and end with its exit code; a signal to end is handed on to it.
attend() {
    "$@" &
    local child=$! code=0
    # shellcheck disable=SC2064 # this child
    trap "kill -TERM $child" TERM INT
    wait "$child" || code=$?
    while kill -0 "$child" 2>/dev/null; do # a signal has ended the wait, not the child
        code=0
        wait "$child" || code=$?
    done
    trap - TERM INT
    return "$code"
}

# as_agent COMMAND…: in place of this shell, as the user whose folder the volume is; for a subshell, which a signal reaches.
as_agent() { exec env HOME=/var/lib/penstock setpriv --reuid=penstock --regid=penstock --clear-groups --no-new-privs "$@"; }

# Slurm is a new one at every start, and the agent's state knows jobs of those before by their numbers: each counts on
# above what they can have used. The file says how many there were.
counted() {
    # shellcheck disable=SC2016 # it is the shell inside that reads it
    as_agent bash -euc '
        starts=0
        if [ -s "$0" ]; then read -r starts <"$0"; fi
        echo "$((starts + 1))" >"$0.new"
        mv "$0.new" "$0"
        echo "$((starts * $1 + 1))"' /var/lib/penstock/slurm-starts "$JOBS_PER_START"
}

echo whole >/run/penstock-role
trap 'penstock cluster down' EXIT
first=$(counted)
attend penstock cluster up --nodes "${PENSTOCK_NODES:-8}" --first-job "$first"

# Where every user's Slurm commands and MPI programs look by themselves.
eval "$(penstock cluster env)"
ln -sfn "$SLURM_CONF" /etc/slurm/slurm.conf
install -d -m 755 /run/munge
ln -sfn "$(sed -n 's/^AuthInfo=socket=//p' "$SLURM_CONF")" /run/munge/munge.socket.2

# Nobody else's jobs are here: what is a dry run on a site is done.
export PENSTOCK_LIMITS__DRY_RUN="${PENSTOCK_LIMITS__DRY_RUN:-false}"

# As in docs/install.md: the service user is an Operator of Slurm. systemd would make the folder of the socket.
sacctmgr -i add user penstock account=root adminlevel=operator >/dev/null
install -d -m 755 -o penstock -g penstock /run/penstock
cd /var/lib/penstock
attend as_agent penstock agent
