#!/usr/bin/env bash
# The image of the Dockerfile without a Docker engine: the same two scripts, in a root file system of their own. As root.
#   chroot.sh build DIR PACKAGE.deb…           make it in DIR (Debian 12; needs mmdebstrap and the network)
#   chroot.sh run DIR [VARIABLE=VALUE…]        start it, in the foreground; it ends with SIGTERM or Ctrl-C
#   chroot.sh exec DIR USER COMMAND…           a command in the running one
# It has processes, mounts, host name and network of its own, which end with it.
set -euo pipefail

usage() {
    sed -n '2,6s/^# \?//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}
if [ $# -lt 2 ]; then usage; fi
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RELEASE=bookworm
verb=$1
dir=$2
shift 2

build() {
    local package upload=() inside=()
    for package; do
        inside+=("/tmp/${package##*/}")
        upload+=("--customize-hook=upload '$package' '/tmp/${package##*/}'")
    done
    # The mounts that are made on the way end with their namespace, also when this is killed.
    unshare --mount --propagation private -- mmdebstrap --variant=apt \
        --aptopt='Acquire::Check-Valid-Until "false"' --include=ca-certificates,mount \
        "${upload[@]}" \
        --customize-hook="upload '$HERE/build.sh' /usr/local/sbin/penstock-image-build" \
        --customize-hook="upload '$HERE/start.sh' /usr/local/sbin/penstock-image-start" \
        --customize-hook="chroot \"\$1\" bash /usr/local/sbin/penstock-image-build system" \
        --customize-hook="chroot \"\$1\" bash /usr/local/sbin/penstock-image-build packages ${inside[*]}" \
        --customize-hook="rm \"\$1\"/tmp/*.deb" \
        "$RELEASE" "$dir"
    chmod 755 "$dir/usr/local/sbin/penstock-image-start"
}

# What a container is given: devices, /proc, a /run that is empty, a name, and a network that leads nowhere.
# shellcheck disable=SC2016 # it is the shell inside that reads it
INSIDE='
mount --bind "$0" "$0"
cd "$0"
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs run
hostname penstock
printf "127.0.0.1 localhost penstock\n" >etc/hosts
mkdir -p .old
pivot_root . .old
umount -l .old
rmdir .old
ip link set lo up
# With loopback alone, Slurm finds no address of any name.
ip link add eth0 type bridge
ip address add 192.0.2.2/24 dev eth0
ip link set eth0 up
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@" penstock-image-start
'

run() {
    local outer="" code=0 asked=""
    trap 'rm -f "$dir.pid"' EXIT
    trap 'asked=1; finish "$outer"' TERM INT
    unshare --mount --propagation private --pid --fork --kill-child --uts --ipc --net -- \
        bash -euc "$INSIDE" "$dir" "$@" &
    outer=$!
    echo "$outer" >"$dir.pid"
    if [ -n "$asked" ]; then finish "$outer"; fi # the signal came before there was anything to end
    wait "$outer" || code=$?
    while kill -0 "$outer" 2>/dev/null; do
        code=0
        wait "$outer" || code=$?
    done
    return "$code"
}

# Ends what unshare has begun, softly as soon as there is somebody to hear it. Process 1 of a namespace gets no signal
# that it has no handler for, so one that comes during the first moments would be lost.
finish() {
    local outer=$1 child="" _
    if [ -z "$outer" ]; then return; fi
    for _ in {1..50}; do
        child=$(first "$outer" 2>/dev/null) || return 0 # it has ended by itself
        if [ -n "$child" ] && heeds "$child"; then
            kill -TERM "$child" 2>/dev/null || true
            return 0
        fi
        sleep 0.1
    done
    kill -KILL "${child:-$outer}" 2>/dev/null || true
}

# Whether a process has a handler for SIGTERM, the 15th bit.
heeds() {
    local caught
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null) || return 1
    [ $((0x${caught:-0} & 0x4000)) != 0 ]
}

# The first process inside: the child of unshare.
first() { cut -d' ' -f1 "/proc/$1/task/$1/children"; }

inside() {
    local user=$1 pid
    shift
    pid=$(first "$(cat "$dir.pid")")
    nsenter --target "$pid" --mount --pid --uts --ipc --net --root -- \
        env -i --chdir=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        setpriv --reuid="$user" --regid="$user" --clear-groups --reset-env "$@"
}

case "$verb" in
build) if [ $# -gt 0 ]; then build "$@"; else usage; fi ;;
run) run "$@" ;;
exec) if [ $# -gt 1 ]; then inside "$@"; else usage; fi ;;
*) usage ;;
esac
