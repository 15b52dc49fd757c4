"""The batch script of a job of a workflow. Text only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from penstock.api import JobSpec
from penstock.workflow.model import Stage, Workflow

__all__ = ["combined_command", "job_name", "job_spec"]

# No `-u`: the `module` and `conda` functions of many sites refer to unset variables.
_SHELL_OPTIONS = "set -eo pipefail"


def job_name(workflow: Workflow, run: str, stage: str, attempt: int) -> str:
    """A job name that no other run (`WorkflowRun.label`), stage or attempt has, in characters that need no quoting."""
    return f"penstock.{run}.{attempt}.{workflow.name}.{stage}"


def job_spec(workflow: Workflow, unit: Stage, run: str, attempt: int, depends_on: Sequence[int]) -> JobSpec:
    """The batch job of one stage; held if it depends on jobs, so that the dependency can be read back first."""
    lines = ["#!/bin/bash", _SHELL_OPTIONS]
    if workflow.workdir is not None:
        lines.append(f"cd -- {shlex.quote(workflow.workdir)}")
    return JobSpec(
        name=job_name(workflow, run, unit.name, attempt),
        script="\n".join([*lines, unit.command.rstrip("\n"), ""]),
        nodes=unit.nodes,
        time_limit=unit.time_limit,
        partition=workflow.partition,
        account=workflow.account,
        qos=workflow.qos,
        dependency="afterok:" + ":".join(str(job) for job in depends_on) if depends_on else None,
        hold=bool(depends_on),
        workdir=workflow.workdir,
        environment={
            **workflow.environment,
            "PENSTOCK_WORKFLOW": workflow.name,
            "PENSTOCK_RUN": run,
            "PENSTOCK_STAGE": unit.name,
        },
    )


def combined_command(stages: Sequence[Stage]) -> str:
    """One command that runs the stages' commands one after the other in one allocation; the first failure ends it.

    `stages` in an order that keeps parents before children. Stages that could run side by side run one after the other,
    too: the allocation is as wide as the widest stage, and two commands that each believe to own it would collide.

    Each runs in a subshell of its own, as a quoted text: its `exit`, `cd` and unbalanced brackets stay its own. A stage
    narrower than the allocation has srun told so, else `srun ./merge` would start one copy per node of the widest.
    Run on Slurm 22.05.8 with srun and with MPICH's `mpiexec -launcher slurm`: both honour it.
    """
    widest = max(s.nodes for s in stages)
    lines = []
    for stage in stages:
        lines.append(f'echo "penstock: stage {stage.name} starts at $(date +%s)"')
        lines.append("(")
        lines.append(f"export PENSTOCK_STAGE={stage.name}")
        if stage.nodes < widest:
            lines.append(f"export SLURM_NNODES={stage.nodes} SLURM_JOB_NUM_NODES={stage.nodes}")
        lines.append(f"eval {shlex.quote(stage.command)}")
        lines.append(")")
    return "\n".join(lines)
