#!/usr/bin/env bash
# Makes the base of the image out of Debian's packages, and hands it to the engine: for hosts that reach a mirror of Debian
# but no registry of images. As root; needs mmdebstrap.
#   base.sh [NAME]             a Debian 12, as the image penstock-base:bookworm or NAME
#   base.sh --tree DIR NAME    out of a root file system that is there already
#   docker build --build-arg BASE=penstock-base:bookworm -f deploy/Dockerfile -t penstock .
#   PENSTOCK_BASE=penstock-base:bookworm docker compose -f deploy/compose.yaml up
# What apt and pip of this host are told goes along: proxies, the CA bundle, indexes (files of this host do not).
set -euo pipefail

RELEASE=bookworm
DOCKER=${DOCKER:-docker}

tree="" name=""
while [ $# -gt 0 ]; do
    case "$1" in
    --tree)
        tree=${2:?--tree: which folder?}
        shift
        ;;
    -*)
        sed -n '4,7s/^# \?//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
    *) name=$1 ;;
    esac
    shift
done
name=${name:-penstock-base:$RELEASE}
if [ "$(id -u)" != 0 ]; then
    echo "base.sh: only root can make a root file system; use sudo" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
extra=$work/extra
mkdir -p "$extra/etc/apt/apt.conf.d"

# told KEY: what pip on this host is told, by its files or by its variables.
told() { python3 -m pip config list 2>/dev/null | sed -nE "s/^(global|install|:env:)\.$1='(.*)'\$/\2/p" | tail -n 1; }

# The settings as they hold in the image.
settings() {
    local key value word kept
    value=$(told cert)
    value=${value:-${SSL_CERT_FILE:-}}
    echo "[global]"
    if [ -f "$value" ]; then
        install -m 644 "$value" "$extra/etc/pip.crt"
        echo "cert = /etc/pip.crt"
    fi
    for key in index-url extra-index-url trusted-host proxy default-timeout; do
        kept=""
        for word in $(told "$key"); do
            case "$word" in file:* | /*) ;; *) kept="$kept $word" ;; esac
        done
        if [ -n "$kept" ]; then echo "$key =$kept"; fi
    done
}
settings >"$extra/etc/pip.conf"
if command -v apt-config >/dev/null; then
    apt-config dump --no-empty | grep -E '^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date)' \
        >"$extra/etc/apt/apt.conf.d/50host" || true
fi
packed() {
    if [ -n "$tree" ]; then
        tar -c --numeric-owner --one-file-system --exclude=./dev/* --exclude=./proc/* --exclude=./sys/* --exclude=./run/* \
            -C "$tree" .
    else
        # The mounts that are made on the way end with their namespace, also when this is killed.
        unshare --mount --propagation private -- mmdebstrap --quiet --variant=apt \
            --aptopt='Acquire::Check-Valid-Until "false"' --include=ca-certificates "$RELEASE" -
    fi
}
packed | "$DOCKER" import - "$name" >/dev/null
# A layer of its own, since a root file system that is there may have files of the same names.
printf 'FROM %s\nCOPY . /\n' "$name" >"$work/Dockerfile"
"$DOCKER" build -q -t "$name" -f "$work/Dockerfile" "$extra" >/dev/null
echo "$name"
