#!/usr/bin/env bash
# Everything that CI runs: style, types, import rules, then the tests, on real Slurm where there is one.
#   test.sh            every kind of test once
#   test.sh --all      also the long ones
#   test.sh -- ARGS    only pytest, with these arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh all,dev

marks="not long"
case "${1:-}" in
--all) marks="" ;;
--)
    shift
    exec "$VENV/bin/python" -m pytest "$@"
    ;;
"") ;;
*)
    echo "usage: test.sh [--all | -- PYTEST ARGUMENTS]" >&2
    exit 2
    ;;
esac

if [ "${CI:-}" = true ] && [ "$HAVE_SLURM" = 0 ]; then
    echo "test: CI must run against real Slurm, and it is missing here" >&2
    exit 1
fi

echo "== style, types, import rules"
ruff check .
ruff format --check .
MYPYPATH=agent:plugins:dmr mypy -p penstock -p penstock_plugins -p dmr
lint-imports

missing=""
if [ "$(id -u)" = 0 ] && [ -z "$marks" ]; then
    echo "== file systems of other Slurm releases"
    for release in trixie sid; do
        timeout 1200 penstock cluster prepare "$release" || missing="$missing $release"
    done
fi

echo "== tests"
status=0
python -m pytest -m "$marks" || status=$?

if [ "$HAVE_SLURM" = 0 ] || [ "$(id -u)" != 0 ]; then
    cat <<'EOF'

################################################################################
##  NOT RUN: everything that needs a real Slurm (tests/slurm, and the real half
##  of tests/contract). Run this script as root: it installs Debian's packages
##      slurm-wlm slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins
##      munge mariadb-server
##  and acts as several users, which only root can.
################################################################################
EOF
fi
if [ -n "$missing" ]; then
    echo
    echo "################################################################################"
    echo "##  NOT RUN: the Slurm of Debian$missing could not be built (see above)."
    echo "################################################################################"
    case "${CI:-} $missing" in "true "*trixie*) status=1 ;; esac
fi
exit "$status"
