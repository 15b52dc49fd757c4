#!/usr/bin/env bash
# Builds the documentation: a site, and the man pages of `penstock` and its subcommands. Every warning is an error.
#   docs.sh [FOLDER]      default: build/docs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../build/docs}")
python=$here/../.venv/bin/python
if ! "$python" -c 'import furo, latex2mathml, myst_parser, penstock, sphinx_copybutton' 2>/dev/null; then
    # shellcheck source=scripts/setup.sh
    source "$here/setup.sh" docs
    python=$VENV/bin/python
fi
for builder in html man; do
    "$python" -m sphinx -q -W --keep-going -b "$builder" -d "$out/doctrees" "$here/../docs" "$out/$builder"
done
echo "Site: $out/html/index.html"
echo "Man pages: $out/man"
