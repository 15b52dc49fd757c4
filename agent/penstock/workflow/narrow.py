"""The lines of a job script by which a stage has the first nodes of its job alone. Text only."""

from __future__ import annotations

__all__ = ["narrowing", "narrowing_lines"]

# srun goes by SLURM_NNODES, MPICH's and Open MPI's mpiexec by the list of nodes and SLURM_TASKS_PER_NODE. Where tasks
# are asked for, slurmctld lays them out on the nodes in turn, as long as a node has CPUs for one more (run on 22.05,
# 24.11 and 26.05). Both have their daemons started by a bare srun, which takes any nodes of the job (from 24.11 on, in
# turn), so where nodes differ it is told which. A launcher of MPICH that is not srun would not know the words. Tasks in
# all are those of the stage, since the stages of one job ask for the same; tasks per node become fewer in all.
_LINES = """\
penstock_counts() {
    local part times
    for part in ${1//,/ }; do
        case $part in *x*) times=${part#*x} times=${times%)} ;; *) times=1 ;; esac
        for ((; times > 0; times--)); do echo "${part%%(*}"; done
    done
}
penstock_narrow() {
    export SLURM_NNODES=$1 SLURM_JOB_NUM_NODES=$1
    local nodes cpus tasks each=${SLURM_CPUS_PER_TASK:-1} per=${SLURM_NTASKS_PER_NODE:-} left i took full=
    nodes=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null | sed -n "1,$1p" | paste -sd , -) || return 0
    [ -n "$nodes" ] || return 0
    case ${SLURM_JOB_CPUS_PER_NODE:-}${SLURM_TASKS_PER_NODE:-} in *,*)
        local pin="--nodes=$1 --nodelist=$nodes"
        export HYDRA_LAUNCHER_EXTRA_ARGS=$pin OMPI_MCA_plm_slurm_args=$pin
        export PRTE_MCA_plm_slurm_args=$pin PRTE_MCA_prte_plm_slurm_args=$pin ;;
    esac
    cpus=($(penstock_counts "${SLURM_JOB_CPUS_PER_NODE:-}")) tasks=($(penstock_counts "${SLURM_TASKS_PER_NODE:-}"))
    cpus=("${cpus[@]:0:$1}") tasks=("${tasks[@]:0:$1}")
    if [ -n "${SLURM_NTASKS:-}" ]; then
        [ -z "$per" ] || [ "$SLURM_NTASKS" -le $((per * $1)) ] || SLURM_NTASKS=$((per * $1))
        for i in "${!tasks[@]}"; do tasks[i]=0; done
        for ((left = SLURM_NTASKS; left > 0 && ${#tasks[@]}; )); do
            took=
            for i in "${!tasks[@]}"; do
                [ "$left" -gt 0 ] || break
                [ -n "$full" ] || [ $(((tasks[i] + 1) * each)) -le "${cpus[i]:-0}" ] || continue
                tasks[i]=$((tasks[i] + 1)) left=$((left - 1)) took=1
            done
            [ -n "$took" ] || full=1
        done
        export SLURM_NTASKS SLURM_NPROCS=$SLURM_NTASKS
    fi
    export SLURM_JOB_NODELIST=$nodes SLURM_NODELIST=$nodes
    export SLURM_JOB_CPUS_PER_NODE=$(IFS=,; echo "${cpus[*]}") SLURM_TASKS_PER_NODE=$(IFS=,; echo "${tasks[*]}")
}"""


def narrowing_lines() -> list[str]:
    """What stands once before any `narrowing`. Without Slurm's variables or its commands, only numbers of nodes are
    told."""
    return _LINES.split("\n")


def narrowing(nodes: int) -> str:
    """For what comes next in this shell, the job has its first so many nodes."""
    return f"penstock_narrow {nodes}"
