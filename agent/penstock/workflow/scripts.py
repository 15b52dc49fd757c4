"""The batch script of a job of a workflow. Text only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from penstock.api import JobSpec
from penstock.workflow.guard import Guard, guard_lines, mark_lines
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.ties import Tie

__all__ = ["GROWTH_WAIT", "combined_command", "dependency_text", "job_name", "job_spec", "resizing_command"]

GROWTH_WAIT: Final = 600.0
"""Seconds that a job waits for the nodes of its next stage before it gives up."""
# A begin time that has come is kept as the instant from which a job ages, also while it depends on others (where no
# limits are enforced; run on 22.05.8, 24.11.5 and 26.05.5). One that has passed when Slurm sees it counts as none.
_AGES_FROM: Final = "now+3"
# No `-u`: the `module` and `conda` functions of many sites refer to unset variables.
_SHELL_OPTIONS = "set -eo pipefail"

# An early job works instead of idling. The command's own end is nothing that the job depends on.
_MEANWHILE = """\
{command} </dev/null &
penstock_meanwhile=$!
trap 'kill "$penstock_meanwhile" 2>/dev/null && wait "$penstock_meanwhile" || :' EXIT
export PENSTOCK_MEANWHILE=1"""


def job_name(workflow: Workflow, run: str, stage: str, attempt: int) -> str:
    """A job name that no other run (`WorkflowRun.label`), stage or attempt has, in characters that need no quoting."""
    return f"penstock.{run}.{attempt}.{workflow.name}.{stage}"


def job_spec(
    workflow: Workflow,
    unit: Stage,
    run: str,
    attempt: int,
    depends_on: Sequence[int],
    *,
    tie: Tie = Tie.AFTEROK,
    hold: bool = True,
    minutes: Sequence[int] = (),
    pins: Sequence[str] = (),
    exclude: Sequence[str] = (),
    guard: Guard | None = None,
    mark: bool = False,
) -> JobSpec:
    """The batch job of one stage. `hold`: it is held if it depends on the success of jobs, so that this can be read
    back first.

    `minutes` (with AFTER) are from the start of each of `depends_on`, `pins` (with NODES) nodes that it asks for,
    `exclude` nodes that it must not get. `guard` waits in the script; `mark` leaves one for the guards of others.
    """
    lines = ["#!/bin/bash", _SHELL_OPTIONS]
    if guard is not None:
        if guard.parents and unit.meanwhile:
            lines += _MEANWHILE.replace("{command}", unit.meanwhile).splitlines()
        lines += guard_lines(guard)
    if workflow.workdir is not None:
        lines.append(f"cd -- {shlex.quote(workflow.workdir)}")
    lines.append(unit.command.rstrip("\n"))
    if mark:
        lines += mark_lines(run, unit.name)
    return JobSpec(
        name=job_name(workflow, run, unit.name, attempt),
        script="\n".join([*lines, ""]),
        nodes=unit.nodes,
        time_limit=unit.time_limit,
        partition=workflow.partition,
        account=workflow.account,
        qos=workflow.qos,
        dependency=dependency_text(tie, depends_on, minutes),
        begin=_AGES_FROM if tie is Tie.AGED and depends_on else None,
        hold=hold and tie.dependent and bool(depends_on),
        requeue=guard is not None and guard.requeue,
        workdir=workflow.workdir,
        nodelist=tuple(pins),
        exclude=tuple(exclude),
        environment={
            **workflow.environment,
            "PENSTOCK_WORKFLOW": workflow.name,
            "PENSTOCK_RUN": run,
            "PENSTOCK_STAGE": unit.name,
        },
    )


def dependency_text(tie: Tie, depends_on: Sequence[int], minutes: Sequence[int] = ()) -> str | None:
    """What sbatch's `--dependency` says for this tie; None: nothing."""
    if tie.dependent and depends_on:
        return "afterok:" + ":".join(str(job) for job in depends_on)
    if tie is Tie.AFTER and depends_on:
        # Slurm refuses "+0".
        delays = zip(depends_on, minutes, strict=True)
        return ",".join(f"after:{job}+{wait}" if wait else f"after:{job}" for job, wait in delays)
    return None


def combined_command(stages: Sequence[Stage]) -> str:
    """One command that runs the stages' commands one after the other in one allocation; the first failure ends it.

    `stages` in an order that keeps parents before children. Stages that could run side by side run one after the other,
    too: the allocation is as wide as the widest stage, and two commands that each believe to own it would collide.

    Each runs in a subshell of its own, as a quoted text: its `exit`, `cd` and unbalanced brackets stay its own. A stage
    narrower than the allocation has srun told so, else `srun ./merge` would start one copy per node of the widest.
    Run on Slurm 22.05.8 with srun and with MPICH's `mpiexec -launcher slurm`: both honour it.
    """
    widest = max(s.nodes for s in stages)
    lines: list[str] = []
    for stage in stages:
        told = f"export SLURM_NNODES={stage.nodes} SLURM_JOB_NUM_NODES={stage.nodes}"
        lines += _subshell(stage, [told] if stage.nodes < widest else [])
    return "\n".join(lines)


def resizing_command(stages: Sequence[Stage]) -> str:
    """The same in an allocation that has the nodes of each stage when that begins (`dmr.size`), the first's at first.

    A failure to get them ends the command, as that of a stage does. `DMR_PYTHON` is a Python that has `dmr`.
    """
    lines: list[str] = []
    present = stages[0].nodes
    for stage in stages:
        if stage.nodes != present:
            lines.append(f'eval "$("${{DMR_PYTHON:-python3}}" -m dmr.size {stage.nodes} --wait {GROWTH_WAIT:g})"')
        present = stage.nodes
        lines += _subshell(stage, [])
    return "\n".join(lines)


def _subshell(stage: Stage, before: Sequence[str]) -> list[str]:
    begins = f'echo "penstock: stage {stage.name} starts at $(date +%s)"'
    return [begins, "(", f"export PENSTOCK_STAGE={stage.name}", *before, f"eval {shlex.quote(stage.command)}", ")"]
