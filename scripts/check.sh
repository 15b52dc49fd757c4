#!/usr/bin/env bash
# Style, types and import rules: what needs no test to run. test.sh, `make` and the commit hooks all call this.
#   check.sh                              all of it
#   check.sh [style|shell|types|imports]...  only these
#   check.sh fix                          mends the style where ruff can
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A hook of git has the PATH of whoever commits.
PATH=$PWD/.venv/bin:$PATH
if ! command -v lint-imports >/dev/null; then
    echo "check: its tools are missing: run scripts/setup.sh, and activate the environment if it is not in .venv" >&2
    exit 1
fi

# Where scripts, files of users and rows with their words are read.
LINES=(
    agent/penstock/{advice,fronts,resize,sbatch,tools,workflow} plugins/{fronts,pool,planning} dmr/dmr/elastic
    agent/penstock/slurm/{option_table,rows,sbatch_options,submission}.py plugins/rest/penstock_rest/requests.py
)

fix() {
    ruff check --fix .
    ruff format .
}
style() {
    ruff check --no-cache . # what it remembers of a file does not know of the files that it imports
    ruff format --check .
    # sbatch and shells end a line at a line feed alone, Python at ten things.
    if grep -rn --include='*.py' '\.splitlines(' "${LINES[@]}"; then
        echo "check: scripts and rows are read here: use split_lines of penstock.values.lines (in dmr: split)" >&2
        return 1
    fi
}
shell() {
    shellcheck -x .ci/run scripts/*.sh deploy/*.sh deploy/image/*.sh
}
types() {
    MYPYPATH=agent:plugins:plugins/dashboard:plugins/fronts:plugins/messages:plugins/planning:plugins/pool:plugins/portals:plugins/pyslurm-backend:plugins/rest:plugins/site-view:plugins/snakemake-executor:dmr:lab:docs/_ext \
        mypy -p penstock -p penstock_dashboard -p penstock_fronts -p penstock_messages -p penstock_pool -p penstock_planning -p penstock_pyslurm -p penstock_rest -p penstock_site_view -p penstock_plugins -p dmr -p penstock_lab -p penstock_portals -p penstock_docs \
        -p snakemake_executor_plugin_penstock
}
imports() {
    lint-imports
}

if [ "$#" = 0 ]; then set -- style shell types imports; fi
for kind; do
    case "$kind" in
    fix | style | shell | types | imports) ;;
    *)
        echo "usage: check.sh [fix | style | shell | types | imports]..." >&2
        exit 2
        ;;
    esac
done
for kind; do "$kind"; done
