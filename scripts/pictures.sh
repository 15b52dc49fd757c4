#!/usr/bin/env bash
# Makes the pictures of the dashboard in docs/pictures anew, with the page as it is and an agent over the simulated Slurm.
#   pictures.sh [FOLDER]     (Debian's chromium; scripts/setup.sh all,dev brings it)
# docs/pictures/demo.png is what `scripts/demo.sh --slurm` leaves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH
PYTHONPATH=tests python tests/dashboard_pictures.py "${1:-docs/pictures}"
