#!/bin/bash
# Entry point of the image as one host of a site (deploy/compose-nodes.yaml): runs the daemons of that host until SIGTERM.
# If one of them ends by itself, so does this, with an error.
#   site.sh controller     munged, MariaDB, slurmdbd, slurmctld
#   site.sh login          munged, and the agent of the site
#   site.sh node           munged, slurmd
#   PENSTOCK_…__…          single keys of the agent's configuration, /etc/penstock/penstock.yaml
# shellcheck disable=SC2329 # its functions are called by the name of the role
set -euo pipefail

role=${1:-}
LIMIT=60 # seconds for one daemon to be ready
daemons=()

say() { printf 'penstock-image-site: %s\n' "$*" >&2; }

# end CODE: the daemons in the opposite order of their start, each when the one before has ended.
end() {
    local i
    trap - TERM INT
    for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do
        kill -TERM "${daemons[i]}" 2>/dev/null || true
        wait "${daemons[i]}" 2>/dev/null || true
    done
    exit "$1"
}
trap 'end 0' TERM INT

# as USER COMMAND…: a daemon in the background.
as() {
    local user=$1
    shift
    if [ "$user" = root ]; then
        "$@" &
    else
        setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@" &
    fi
    daemons+=("$!")
}

# until_ready WHAT COMMAND…
until_ready() {
    local what=$1 begun=$SECONDS
    shift
    until "$@" >/dev/null 2>&1; do
        if [ $((SECONDS - begun)) -ge "$LIMIT" ]; then
            say "$what is not ready after $LIMIT s"
            end 1
        fi
        sleep 0.2
    done
}

# The one key of the site lies in a volume that all hosts have; the controller makes it.
munge_key() {
    if [ "$role" = controller ] && [ ! -e /etc/munge/munge.key ]; then
        chown munge:munge /etc/munge
        chmod 700 /etc/munge
        (umask 077 && head -c 128 /dev/urandom >/etc/munge/new.key)
        chown munge:munge /etc/munge/new.key
        mv /etc/munge/new.key /etc/munge/munge.key
    fi
    until_ready "the key of munge" test -e /etc/munge/munge.key
    install -d -m 755 -o munge -g munge /run/munge
    install -d -m 711 -o munge -g munge /var/lib/munge
    install -d -m 700 -o munge -g munge /var/log/munge
    rm -f /run/munge/*
    as munge munged --foreground --num-threads=4
    until_ready munged test -S /run/munge/munge.socket.2
}

database() {
    local first=""
    install -d -m 755 -o mysql -g mysql /run/mysqld
    chown mysql:mysql /var/lib/mysql
    if [ ! -d /var/lib/mysql/mysql ]; then
        first=1
        # Somewhere else first: half a database would be taken for a whole one after the next start.
        rm -rf /var/lib/mysql/new
        mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql/new --skip-test-db \
            --auth-root-authentication-method=socket >/dev/null
        find /var/lib/mysql/new -mindepth 1 -maxdepth 1 ! -name mysql -exec mv -t /var/lib/mysql {} +
        mv /var/lib/mysql/new/mysql /var/lib/mysql/mysql
        rmdir /var/lib/mysql/new
    fi
    printf '%s;\n' "CREATE DATABASE IF NOT EXISTS slurm_acct_db" \
        "GRANT ALL ON slurm_acct_db.* TO slurm@localhost IDENTIFIED VIA unix_socket" >/run/mysqld/init.sql
    as mysql mariadbd --no-defaults --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock \
        --pid-file=/run/mysqld/mysqld.pid --init-file=/run/mysqld/init.sql --skip-networking --skip-log-bin \
        --innodb-buffer-pool-size=64M --innodb-log-file-size=32M --innodb-lock-wait-timeout=900 --performance-schema=0
    until_ready MariaDB mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -e "USE slurm_acct_db"
    if [ -n "$first" ]; then say "a new accounting database"; fi
}

# Whom Slurm knows: the users, and the agent's as an Operator (docs/install.md). What is there already is said to be so.
people() {
    {
        sacctmgr -i add cluster site
        sacctmgr -i add account users
        sacctmgr -i add user pst-alice,pst-bob,pst-operator account=users
        sacctmgr -i add user penstock account=root adminlevel=operator
    } >/dev/null || true
    until_ready "the service user's right" bash -c \
        'sacctmgr -nP list user penstock format=adminlevel | grep -q Operator'
}

controller() {
    munge_key
    install -d -m 755 -o slurm -g slurm /run/slurm
    install -d -m 700 -o slurm -g slurm /var/lib/slurm/slurmctld
    database
    as slurm slurmdbd -D
    until_ready slurmdbd sacctmgr -n list cluster
    people
    # -i: one that was killed before it had saved all of its state would refuse to start again.
    as slurm slurmctld -D -i
}

login() {
    munge_key
    install -d -m 755 -o penstock -g penstock /run/penstock
    install -d -m 700 -o penstock -g penstock /var/lib/penstock
    # Nobody else's jobs are here: what is a dry run on a site is done.
    export PENSTOCK_LIMITS__DRY_RUN="${PENSTOCK_LIMITS__DRY_RUN:-false}"
    cd /var/lib/penstock
    as penstock env HOME=/var/lib/penstock setpriv --no-new-privs penstock agent
}

node() {
    munge_key
    install -d -m 755 /var/lib/slurm/slurmd
    as root slurmd -D
}

case "$role" in
controller | login | node)
    echo "$role" >/run/penstock-role
    "$role"
    ;;
*)
    sed -n '4,6s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
code=0
wait -n "${daemons[@]}" || code=$?
say "a daemon has ended with code $code"
end 1
