#!/usr/bin/env bash
# Set-up, then the demo. On the simulated Slurm by default; --slurm runs it on a real one of eight nodes.
#   demo.sh [--slurm] [--quick] [--out FOLDER]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
backend=mock
rest=()
for argument in "$@"; do
    case "$argument" in
    --slurm) backend=slurm ;;
    *) rest+=("$argument") ;;
    esac
done
# shellcheck source=scripts/setup.sh
source "$here/setup.sh" all
if [ "$backend" = slurm ] && [ "$HAVE_SLURM" = 0 ]; then
    echo "demo: --slurm needs Slurm's programs on this machine; run as root, or install the packages named above" >&2
    exit 1
fi
exec penstock demo --backend "$backend" ${rest[@]+"${rest[@]}"}
