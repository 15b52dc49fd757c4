#!/usr/bin/env bash
# Makes .venv with Penstock, its laboratory and all they need; with root, installs Debian's Slurm packages where they are missing.
# Sourced by test.sh and demo.sh, or run by itself. Sets VENV and HAVE_SLURM. Safe to repeat; quick when nothing changed.
#   setup.sh [EXTRAS]      EXTRAS of the package, default: all,dev
#   WITH_ENGINE=1          also Debian's Docker engine, for the tests of the image; nothing starts it but they
case $- in *i*)
    # The options below would stay, and end that shell at the next command that fails.
    echo "setup: not to be sourced by the shell you type in; run it, and it says what to source" >&2
    return 2
    ;;
esac
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
EXTRAS=${1:-all,dev}
COMPILER_PROGRAMS="cc make pkg-config cmake gfortran"
COMPILER_PACKAGES="gcc libc6-dev gfortran make pkg-config cmake"
SLURM_PACKAGES="slurm-wlm slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins munge mariadb-server"
ENGINE_PACKAGES="docker.io docker-compose"

# shellcheck source=scripts/own-folder.sh
source "$ROOT/scripts/own-folder.sh"

say() { printf 'setup: %s\n' "$*" >&2; }

is_root() { [ "$(id -u)" = 0 ]; }

apt_install() {
    say "installing $* with apt-get"
    local log
    log=$(mktemp)
    if ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$@"; } \
        >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        say "apt-get failed; the whole output is in $log"
        return 1
    fi
    rm -f "$log"
}

# A Python that makes virtual environments which every user of the machine can run: Debian's own before others.
find_python() {
    local candidate
    for candidate in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

others_can_read() {
    is_root || return 0
    setpriv --reuid=65534 --regid=65534 --clear-groups test -r "$1" 2>/dev/null
}

setup_python() {
    if ! PYTHON=$(find_python); then
        if is_root && command -v apt-get >/dev/null; then apt_install python3 python3-venv; fi
        PYTHON=$(find_python) || {
            say "Python 3.11 or newer with the venv module is needed (Debian: apt-get install python3-venv)"
            return 1
        }
    fi
    VENV=$ROOT/.venv
    local how="-e" lab=$ROOT/lab stamp have sum version
    if ! others_can_read "$ROOT/pyproject.toml"; then
        # As root the tests act as ordinary users, who cannot reach this folder: install where they can.
        VENV=/var/tmp/penstock-venv-$(printf %s "$ROOT" | cksum | cut -d' ' -f1)
        how="--force-reinstall"
        say "ordinary users cannot read $ROOT: using $VENV"
        own_folder "$VENV" || return 1 # what is in it is run as root
    fi
    # With the version, which the distributions ask for each other by.
    sum=$(cat "$ROOT"/{{,dmr/,lab/,plugins/{dashboard,fronts,messages,planning,pool,pyslurm-backend,rest,site-view}/}pyproject.toml,hatch_build.py,agent/penstock/__init__.py} | cksum)
    stamp=$VENV/.penstock-setup
    if [ ! -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -c '' 2>/dev/null; then
        say "making $VENV with $PYTHON"
        (umask 022 && "$PYTHON" -m venv --clear "$VENV")
    fi
    # What was installed for one release of Python is not there for another.
    version=$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    have=$(cat "$stamp" 2>/dev/null || true)
    # An environment made for the tests serves the demo as well.
    if [ "$have" != "$version $EXTRAS $sum" ] && [ "$have" != "$version $EXTRAS,dev $sum" ]; then
        say "installing Penstock and its dependencies"
        case ",$EXTRAS," in *,all,*) lab="$ROOT/lab[all]" ;; esac
        (umask 022 && "$VENV/bin/python" -m pip -q --disable-pip-version-check install \
            -e "$ROOT/dmr" -e "${ROOT}[$EXTRAS]" --editable="$ROOT"/plugins/{dashboard,fronts,messages,planning,pool,rest,site-view} -e "$lab")
        # Without pyslurm, which fits one release of Slurm: see setup_pyslurm.
        (umask 022 && "$VENV/bin/python" -m pip -q --disable-pip-version-check install --no-deps \
            -e "$ROOT/plugins/pyslurm-backend" 2>/dev/null) || # pip calls it a conflict that pyslurm is not there
            say "penstock-pyslurm could not be installed"
        printf '%s\n' "$version $EXTRAS $sum" >"$stamp"
    fi
    if [ "$how" != "-e" ]; then
        (umask 022 && "$VENV/bin/python" -m pip -q --disable-pip-version-check install --no-deps "$how" \
            "$ROOT/dmr" "$ROOT" "$ROOT/lab" "$ROOT"/plugins/{dashboard,fronts,messages,planning,pool,pyslurm-backend,rest,site-view})
    fi
}

setup_slurm() {
    HAVE_SLURM=1
    PATH=$PATH:/usr/sbin:/sbin
    local program missing=""
    for program in slurmctld slurmd slurmdbd munged mariadbd sbatch; do
        command -v "$program" >/dev/null || missing="$missing $program"
    done
    if [ -n "$missing" ] && is_root && command -v apt-get >/dev/null; then
        # shellcheck disable=SC2086
        apt_install $SLURM_PACKAGES && missing=""
    fi
    if [ -n "$missing" ]; then
        HAVE_SLURM=0
        say "no real Slurm here: missing$missing (Debian: $SLURM_PACKAGES)"
    fi
}

installed() {
    local program
    for program; do command -v "$program" >/dev/null || return 1; done
}

# Its daemon is not to run by itself here.
mask_prometheus() {
    if [ -d /run/systemd/system ]; then systemctl -q mask prometheus.service || true; fi
}

# All that is missing of Debian's packages by one call, while pip is at work. Should that fail, what follows looks for each
# by itself, and says what is missing.
fetch_packages() {
    local wanted=() PATH=$PATH:/usr/sbin:/sbin
    installed slurmctld slurmd slurmdbd munged mariadbd sbatch || read -ra wanted <<<"$SLURM_PACKAGES"
    case ",$EXTRAS," in *,dev,*)
        installed mmdebstrap || wanted+=(mmdebstrap)
        # shellcheck disable=SC2086,SC2206 # lists of words
        installed $COMPILER_PROGRAMS || wanted+=($COMPILER_PACKAGES)
        if ! installed prometheus promtool; then
            mask_prometheus
            wanted+=(prometheus)
        fi
        installed chromium || wanted+=(chromium fonts-liberation)
        installed sshfs || wanted+=(sshfs openssh-sftp-server)
        # shellcheck disable=SC2206 # a list of words
        if wants_engine; then wanted+=($ENGINE_PACKAGES); fi
        ;;
    esac
    if [ "${#wanted[@]}" -gt 0 ]; then apt_install "${wanted[@]}"; fi
}

# Other Slurm releases run in file systems of their own, which this builds (penstock cluster up --release).
setup_bootstrap() {
    if ! installed mmdebstrap && is_root && command -v apt-get >/dev/null; then
        apt_install mmdebstrap || say "no mmdebstrap: other Slurm releases cannot be built"
    fi
}

# For libdmr, the C library, and its tests.
setup_compiler() {
    # shellcheck disable=SC2086 # lists of words
    if ! installed $COMPILER_PROGRAMS && is_root && command -v apt-get >/dev/null; then
        # shellcheck disable=SC2086
        apt_install $COMPILER_PACKAGES || say "no C compiler: libdmr cannot be built"
    fi
    # pip was at work before they were there, or the sources have changed since.
    "$VENV/bin/python" -m penstock.kernel.compiling || say "no compiled kernel: the slower pure Python serves"
}

# For the tests of the metrics, which a real Prometheus reads.
setup_prometheus() {
    if ! installed prometheus promtool && is_root && command -v apt-get >/dev/null; then
        mask_prometheus
        apt_install prometheus || say "no prometheus: the metrics are tested without it"
    fi
}

# For the tests of the dashboard, which a real browser shows.
setup_browser() {
    if ! installed chromium && is_root && command -v apt-get >/dev/null; then
        apt_install chromium fonts-liberation || say "no chromium: the dashboard is tested without a browser"
    fi
}

# For the tests of a state folder that two hosts see by a network file system.
setup_sshfs() {
    if ! { command -v sshfs && [ -x /usr/lib/openssh/sftp-server ]; } >/dev/null && is_root && command -v apt-get >/dev/null; then
        apt_install sshfs openssh-sftp-server || say "no sshfs: a state that two hosts share is not tested"
    fi
}

# Only for who asks for it. Not where there is one, or where it would begin to run by itself: there it is the machine's own.
wants_engine() {
    [ -n "${WITH_ENGINE:-}" ] && [ ! -d /run/systemd/system ] &&
        ! { installed docker dockerd && { docker compose version || installed docker-compose; }; } >/dev/null 2>&1
}

# For the tests of the image, which start it themselves and end it.
setup_engine() {
    if wants_engine && is_root && command -v apt-get >/dev/null; then
        # shellcheck disable=SC2086
        apt_install $ENGINE_PACKAGES || say "no engine for containers: the image is not tested"
    fi
}

# pyslurm builds against the headers of exactly one Slurm release, so it comes only where that release is.
setup_pyslurm() {
    local release
    release=$( (slurmctld -V 2>/dev/null || true) | grep -oE '[0-9]+\.[0-9]+' | head -1 || true)
    if [ "$release" = "25.11" ] && [ -e /usr/include/slurm/slurm.h ]; then
        "$VENV/bin/python" -c 'import pyslurm' 2>/dev/null ||
            "$VENV/bin/python" -m pip -q --disable-pip-version-check install -e "$ROOT/plugins/pyslurm-backend" ||
            say "pyslurm could not be built; the command line backend serves"
    else
        say "pyslurm is left out: it fits Slurm 25.11 only, here is ${release:-none}; the command line backend serves"
    fi
}

fetched=""
if is_root && installed apt-get && find_python >/dev/null; then
    fetch_packages &
    fetched=$!
fi
setup_python
if [ -n "$fetched" ]; then wait "$fetched" || true; fi
setup_slurm
case ",$EXTRAS," in *,all,*) setup_pyslurm ;; esac
case ",$EXTRAS," in *,dev,*)
    setup_bootstrap
    setup_compiler
    setup_prometheus
    setup_browser
    setup_sshfs
    setup_engine
    ;;
esac
PATH=$VENV/bin:$PATH
export PATH VENV HAVE_SLURM
if [ "${BASH_SOURCE[0]}" = "$0" ]; then say "done; for this shell: source $VENV/bin/activate"; fi
