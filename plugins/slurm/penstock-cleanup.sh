#!/bin/sh
# An epilog, and a prolog: removes what Penstock has left of this job on this node. In slurm.conf:
#
#     Epilog=/etc/slurm/penstock-cleanup.sh
#     Prolog=/etc/slurm/penstock-cleanup.sh
#
# Only a pool's members leave something, and only when they are killed outright: scratch folders of a few kilobytes,
# penstock-pool-JOB-PID-RANDOM. Those of this job are removed, with its user's rights, unless the process still lives.
# As a prolog it finds what a node has kept that crashed while it ran the same job before.
#
# Always ends with 0, for a node whose epilog fails is drained, and in well under a second; at the very most in 12.

FOLDERS="/tmp" # where TMPDIR of jobs leads on this site; several with blanks between

PATH=/usr/sbin:/usr/bin:/sbin:/bin

number() {
    case $1 in "" | *[!0-9]*) return 1 ;; esac
}

if number "$SLURM_JOB_ID" && number "$SLURM_JOB_UID"; then
    number "$SLURM_JOB_GID" || SLURM_JOB_GID=65534
    drop="setpriv --reuid=$SLURM_JOB_UID --regid=$SLURM_JOB_GID --clear-groups --"
    if [ "$(id -u)" = "$SLURM_JOB_UID" ]; then drop=""; fi
    # The limit stays root's: what runs as the user, the user could stop for ever.
    # shellcheck disable=SC2086 # several words
    timeout -k 2 10 $drop env -i PATH="$PATH" sh -s -- "$SLURM_JOB_ID" $FOLDERS <<'END'
        job=$1
        shift
        for folder; do
            for left in "$folder/penstock-pool-$job-"*; do
                [ -d "$left" ] && [ ! -L "$left" ] && [ -O "$left" ] || continue
                pid=${left#"$folder/penstock-pool-$job-"}
                kill -0 "${pid%%-*}" || rm -rf -- "$left"
            done
        done
END
fi >/dev/null 2>&1
exit 0
