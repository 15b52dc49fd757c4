#!/usr/bin/env bash
# Everything that CI runs: style, types, import rules, then the tests, on real Slurm where there is one.
#   test.sh            every kind of test once
#   test.sh --all      also the long ones
#   test.sh --all bounds resizes...    only these parts of it, by the names of the functions below
#   test.sh -- ARGS    only pytest, with these arguments
# shellcheck disable=SC2329 # its functions are called by the names in lanes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Images of containers set it; then each of thousands of commands compiles anew all that it imports.
unset PYTHONDONTWRITEBYTECODE
if [ "${1:-}" = --all ]; then export WITH_ENGINE=1; fi
# shellcheck source=scripts/setup.sh
source scripts/setup.sh all,dev

and_not_long=" and not long" newest="" wanted=()
case "${1:-}" in
--all)
    and_not_long="" newest=sid
    shift
    wanted=("$@")
    ;;
--)
    shift
    exec "$VENV/bin/python" -m pytest "$@"
    ;;
"") ;;
*)
    echo "usage: test.sh [--all [PART...] | -- PYTEST ARGUMENTS]" >&2
    exit 2
    ;;
esac

if [ "${CI:-}" = true ] && [ "$HAVE_SLURM" = 0 ]; then
    echo "test: CI must run against real Slurm, and it is missing here" >&2
    exit 1
fi

# Each background job is a process group of its own, which ends with this script, however that ends: softly, so that
# the tests take their clusters down, and for good (`trap`), so that it does not go on with its next command.
set -m
work=$(mktemp -d)
chmod 711 "$work"
# What takes long to install is made once for all of them.
mkdir -m 755 "$work/shared"
export PENSTOCK_TEST_SHARED=$work/shared
groups=()
tidy() {
    local group signal
    # A test may catch the first TERM; what KILL leaves, the next session sweeps up.
    for signal in TERM TERM KILL; do
        for group in "${groups[@]}"; do
            kill -"$signal" -- "-$group" 2>/dev/null || true
        done
        for _ in {1..20}; do
            local alive=0
            for group in "${groups[@]}"; do
                if kill -0 -- "-$group" 2>/dev/null; then alive=1; fi
            done
            if [ "$alive" = 0 ]; then break 2; fi
            sleep 1
        done
    done
    rm -rf "$work"
}
trap tidy EXIT
trap 'exit 130' INT TERM

# The file systems of other Slurm releases: one to two minutes each at the first time, so they begin first. The newest one
# comes with --all.
build_releases() {
    local release
    trap 'exit 143' TERM
    for release in trixie ${newest:+"$newest"}; do
        timeout --foreground -k 10 600 penstock cluster prepare "$release" || printf ' %s' "$release" >>"$work/unbuilt"
    done
    touch "$work/built"
}
: >"$work/unbuilt"
if [ "$(id -u)" = 0 ]; then
    build_releases >"$work/releases.log" 2>&1 </dev/null &
    groups+=("$!")
else
    touch "$work/built"
fi

# Lanes side by side: the unit tests compute, those on Slurm mostly wait for it, those of MPI, with Slurm and without,
# do both. More than five at once make Slurm late.
run() {
    echo "== $1"
    shift
    # Each lane has a folder of its own: in the usual one every session that begins locks the users of the others out.
    python -m pytest --basetemp="$work/$BASHPID" --durations=12 --durations-min=5 "$@" || status=1
}
check() {
    echo "== style, types, import rules"
    scripts/check.sh || status=1
}
# Up to half an hour by themselves, so that with --all they are parts of their own: each act against each bound, numbers
# given out again, every command that a page shows, every measurement at its smallest size.
table=tests/slurm/test_verdict_table.py lost=tests/slurm/test_lost_seconds.py
pages=tests/unit/project/test_docs_commands.py measured=tests/unit/lab/bench/test_bench_commands.py
apart=()
if [ -z "$and_not_long" ]; then for one in "$table" "$lost" "$pages" "$measured"; do apart+=("--deselect=$one"); done; fi
bounds() {
    run "each act against each bound" "$table" -m "not release"
}
crashes() {
    run "numbers given out again" "$lost" -m "not release"
}
bounds_24_11() {
    until [ -e "$work/built" ]; do sleep 1; done
    run "each act against each bound on 24.11" "$table" -k 24.11
}
bounds_26_05() {
    until [ -e "$work/built" ]; do sleep 1; done
    run "each act against each bound on 26.05" "$table" -k 26.05
}
# In parts by time, for several lanes.
beside=(tests/unit/dashboard tests/unit/fronts tests/unit/messages tests/unit/planning tests/unit/pool tests/unit/rest tests/unit/site-view)
unit_agent_a_to_h() {
    run "unit tests of the agent, a to h" tests/unit/agent/[a-h]*/ -m "not mpi and not release$and_not_long"
}
unit_agent_i_to_r() {
    run "unit tests of the agent, i to r" tests/unit/agent/[i-r]*/ tests/unit/agent/test_*.py \
        -m "not mpi and not release$and_not_long"
}
unit_agent_s_to_z() {
    run "unit tests of the agent, s to z" tests/unit/agent/[!a-r]*/ -m "not mpi and not release$and_not_long"
}
# Those of the distributions that are installed beside the core.
unit_beside() {
    run "unit tests of what is beside the core" "${beside[@]}" -m "not mpi and not release$and_not_long"
}
unit_others() {
    run "other unit tests" tests/unit/{dmr,plugins,project} "${apart[@]}" -m "not mpi and not release$and_not_long"
}
unit_lab() {
    run "unit tests of the laboratory" tests/unit/lab "${apart[@]}" -m "not mpi and not release$and_not_long"
}
commands() {
    until [ -e "$work/built" ]; do sleep 1; done
    run "commands of the pages" "$pages"
}
measurements() {
    until [ -e "$work/built" ]; do sleep 1; done
    run "measurements at their smallest" "$measured"
}
mpi() {
    local others=()
    if [ -z "$and_not_long" ]; then others=(--ignore=tests/slurm); fi
    run "MPI tests" tests --ignore=tests/{contract,unit/agent,unit/dmr,unit/plugins,unit/project} "${beside[@]/#/--ignore=}" \
        --ignore=tests/slurm/test_stress.py "${others[@]}" -m "mpi and not release$and_not_long"
}
# The long ones mostly wait for Slurm, and would be two hours in one lane.
resizes() {
    run "resizes on Slurm" tests/slurm --ignore=tests/slurm/test_stress.py --ignore=tests/slurm/test_companion.py \
        -m "mpi and not release"
}
companion() {
    run "resizes by companions" tests/slurm/test_companion.py -m "mpi and not release"
}
stress() {
    run "hundreds of resizes" tests/slurm/test_stress.py
}
contract() {
    run "the contract of the back ends" tests/contract -m "not release$and_not_long"
}
behaviours() {
    run "what Slurm and MPI really do" tests/behaviour -m "not mpi and not release$and_not_long"
}
slurm_a_to_i() {
    run "tests on Slurm, a to i" tests/slurm/test_[a-i]*.py -m "not mpi and not release$and_not_long"
}
slurm_j_to_r() {
    run "tests on Slurm, j to r" tests/slurm/test_[j-r]*.py --deselect=tests/slurm/test_owner_limits.py \
        "${of_pools[@]/#/--deselect=}" "${apart[@]}" -m "not mpi and not release$and_not_long"
}
slurm_s_to_z() {
    run "tests on Slurm, s to z" tests/slurm/test_[!a-r]*.py "${of_pools[@]/#/--deselect=}" "${apart[@]}" \
        -m "not mpi and not release$and_not_long"
}
of_pools=(tests/slurm/test_jobs_of_pools.py tests/slurm/test_pool_auto.py tests/slurm/test_snakemake_executor.py)
pool_jobs() {
    run "pools on Slurm" "${of_pools[@]}" -m "not release$and_not_long"
}
# Each limit with each hostile program: ten minutes by themselves.
limits() {
    run "limits of owners on Slurm" tests/slurm/test_owner_limits.py -m "not release$and_not_long"
}
releases() {
    until [ -e "$work/built" ]; do sleep 1; done
    cat "$work/releases.log" 2>/dev/null || true
    PENSTOCK_TEST_UNBUILT=$(cat "$work/unbuilt")
    export PENSTOCK_TEST_UNBUILT
    run "other Slurm releases" tests --ignore=tests/{mpi,unit/dmr,unit/lab,unit/plugins,unit/project} "${apart[@]}" \
        -m "release$and_not_long"
}
# Each lane takes the next kind that nobody has taken, so what takes longest stands first. The first lane is seen as it
# goes, what the others print at the end.
first=(slurm_s_to_z mpi unit_agent_a_to_h slurm_a_to_i unit_beside unit_lab unit_agent_s_to_z unit_others releases pool_jobs)
if [ -z "$and_not_long" ]; then
    first=(slurm_s_to_z releases crashes bounds bounds_24_11 bounds_26_05 resizes companion mpi slurm_a_to_i unit_others)
    first+=(pool_jobs unit_beside measurements commands unit_agent_a_to_h unit_lab unit_agent_s_to_z)
fi
kinds=("${first[@]}" slurm_j_to_r contract behaviours unit_agent_i_to_r limits check)
if [ "${#wanted[@]}" -gt 0 ]; then
    for part in "${wanted[@]}"; do
        case " ${kinds[*]} stress " in *" $part "*) continue ;; esac
        echo "test: there is no part $part; there are: ${kinds[*]} stress" >&2
        exit 2
    done
    kinds=("${wanted[@]}")
fi
lane() {
    local status=0 kind
    trap 'exit 143' TERM
    for kind in "${kinds[@]}"; do
        mkdir "$work/taken-$kind" 2>/dev/null || continue
        if [ "$1" = seen ]; then "$kind"; else "$kind" >"$work/$kind.out" 2>&1; fi
    done
    return "$status"
}
lanes=()
for one in seen unseen unseen unseen unseen; do
    lane "$one" </dev/null &
    lanes+=("$!")
done
groups+=("${lanes[@]}")
status=0
for one in "${lanes[@]}"; do
    wait "$one" || status=1
done
for kind in "${kinds[@]}"; do
    if [ -e "$work/$kind.out" ]; then cat "$work/$kind.out"; fi
done
# Ten jobs of MPI leave no room for others.
if [ -z "$and_not_long" ] && [ "${#wanted[@]}" = 0 ]; then
    kinds=(stress)
    lane seen </dev/null &
    groups+=("$!")
    wait "$!" || status=1
fi

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
if [ -e "$work/shared/no-engine" ]; then
    echo
    echo "################################################################################"
    echo "##  NOT RUN: the container image (tests/slurm/test_containers.py). No engine:"
    sed 's/^/##  /' "$work/shared/no-engine" | cut -c1-300
    echo "################################################################################"
fi
missing=$(cat "$work/unbuilt")
if [ -n "$missing" ]; then
    echo
    echo "################################################################################"
    echo "##  NOT RUN: the Slurm of Debian$missing could not be built (see above)."
    echo "################################################################################"
    case "${CI:-} $missing" in "true "*trixie*) status=1 ;; esac
fi
exit "$status"
