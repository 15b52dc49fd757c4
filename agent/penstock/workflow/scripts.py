"""The batch script of a job of a workflow. Text only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from penstock.api import JobSpec
from penstock.slurm.hostlist import asked_hosts
from penstock.slurm.sbatch_options import ASKED
from penstock.workflow.asks import NO_ASKS
from penstock.workflow.guard import Guard, guard_lines, mark_lines
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.narrow import narrowing, narrowing_lines
from penstock.workflow.ties import Tie

__all__ = [
    "GROWTH_WAIT",
    "JobName",
    "combined_command",
    "dependency_text",
    "job_name",
    "job_spec",
    "read_job_name",
    "resizing_command",
    "with_exports",
]

GROWTH_WAIT: Final = 600.0
"""Seconds that a job waits for the nodes of its next stage before it gives up."""
# A begin time that has come is kept as the instant from which a job ages, also while it depends on others (where no
# limits are enforced; run on 22.05.8, 24.11.5 and 26.05.5). One that has passed when Slurm sees it counts as none.
_AGES_FROM: Final = "now+3"
_JOB_NAME: Final = re.compile(r"(.+?)\.penstock\.([0-9]+(?:-[0-9a-f]+)?)\.([0-9]{1,9})\.(.+)", re.ASCII)
# No `-u`: the `module` and `conda` functions of many sites refer to unset variables. What is no comment ends what
# sbatch reads: the `#SBATCH` lines that come after have become options already, or were left out.
_SHELL_OPTIONS: Final = {"strict": "set -eo pipefail", "plain": ":"}

# An early job works instead of idling. The command's own end is nothing that the job depends on.
_MEANWHILE = """\
{command} </dev/null &
penstock_meanwhile=$!
trap 'kill "$penstock_meanwhile" 2>/dev/null && wait "$penstock_meanwhile" || :' EXIT
export PENSTOCK_MEANWHILE=1"""


def job_name(workflow: Workflow, run: str, stage: str, attempt: int, *, stage_first: bool = True) -> str:
    """A job name that no other run (`WorkflowRun.label`), stage or attempt has, in characters that need no quoting.

    It begins with the stage, which is what squeue has room for; those of runs of earlier releases did not.
    """
    if stage_first:
        return f"{stage}.penstock.{run}.{attempt}.{workflow.name}"
    return f"penstock.{run}.{attempt}.{workflow.name}.{stage}"


class JobName(NamedTuple):
    """What the name of a job says that the agent submitted."""

    stage: str
    run: str
    attempt: int
    workflow: str


def read_job_name(name: str) -> JobName | None:
    """The parts of a name of `job_name`; None: it is none."""
    match = _JOB_NAME.fullmatch(name)
    return None if match is None else JobName(match[1], match[2], int(match[3]), match[4])


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
    stage_first: bool = True,
) -> JobSpec:
    """The batch job of one stage. `hold`: it is held if it depends on the success of jobs, so that this can be read
    back first.

    `minutes` (with AFTER) are from the start of each of `depends_on`, `pins` (with NODES) nodes that it asks for,
    `exclude` nodes that it must not get. `guard` waits in the script; `mark` leaves one for the guards of others.
    """
    lines = ["#!/bin/bash", _SHELL_OPTIONS[workflow.shell]]
    if guard is not None:
        if guard.parents and unit.meanwhile:
            lines.append(_MEANWHILE.replace("{command}", unit.meanwhile))
        lines += guard_lines(guard)
    workdir = workflow.workdir if unit.workdir is None else unit.workdir
    if workdir is not None:
        lines.append(_change_folder(workdir))
    command = unit.command.rstrip("\n")
    # So that signals which are for the batch script reach it; but where the shell has to leave a mark it stays.
    lines.append(f"exec {command}" if unit.script and not mark else command)
    if mark:
        lines += mark_lines(run, unit.name)
    asks, others = unit.asks, asked_hosts(unit.asks.exclude)
    spec = JobSpec(
        name=job_name(workflow, run, unit.name, attempt, stage_first=stage_first),
        script="\n".join([*lines, ""]),
        nodes=unit.nodes,
        time_limit=unit.time_limit,
        partition=unit.asks.partition or workflow.partition,
        account=workflow.account,
        qos=workflow.qos,
        dependency=dependency_text(tie, depends_on, minutes),
        begin=_AGES_FROM if tie is Tie.AGED and depends_on else None,
        hold=hold and tie.dependent and bool(depends_on),
        requeue=guard is not None and guard.requeue,
        workdir=workdir,
        nodelist=tuple(pins),
        exclude=tuple(dict.fromkeys([*exclude, *others])),
        environment={
            **workflow.environment,
            "PENSTOCK_WORKFLOW": workflow.name,
            "PENSTOCK_RUN": run,
            "PENSTOCK_STAGE": unit.name,
        },
    )
    if asks is NO_ASKS:
        return spec
    asked: dict[str, Any] = {key: getattr(asks, key) or None for key in ASKED}
    return replace(spec, options=asks.options, **asked)


def _change_folder(folder: str) -> str:
    """Slurm has the job begin there, or elsewhere without a word where that folder is not."""
    quoted = shlex.quote(folder)
    return f"[ . -ef {quoted} ] || cd -- {quoted} || exit"


def with_exports(script: str, environment: Mapping[str, str]) -> str:
    """The script with these variables set at its beginning, whatever Slurm hands over to the job."""
    first, _, rest = script.partition("\n")
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "\n".join([first, *exports, rest])


def dependency_text(tie: Tie, depends_on: Sequence[int], minutes: Sequence[int] = ()) -> str | None:
    """What sbatch's `--dependency` says for this tie; None: nothing."""
    if tie.dependent and depends_on:
        return "afterok:" + ":".join(str(job) for job in depends_on)
    if tie is Tie.AFTER and depends_on:
        # Slurm refuses "+0".
        delays = zip(depends_on, minutes, strict=True)
        return ",".join(f"after:{job}+{wait}" if wait else f"after:{job}" for job, wait in delays)
    return None


def combined_command(stages: Sequence[Stage], shell: str = "strict") -> str:
    """One command that runs the stages' commands one after the other in one allocation; the first failure ends it.

    `stages` in an order that keeps parents before children. Stages that could run side by side run one after the other,
    too: the allocation is as wide as the widest stage, and two commands that each believe to own it would collide.

    Each runs in a subshell of its own, as a quoted text: its `exit`, `cd` and unbalanced brackets stay its own. A stage
    narrower than the allocation has srun and mpiexec told so, else they would start one copy per node of the widest.
    """
    widest = max(s.nodes for s in stages)
    lines = narrowing_lines() if any(stage.nodes < widest for stage in stages) else []
    for stage in stages:
        lines += _subshell(stage, [narrowing(stage.nodes)] if stage.nodes < widest else [], shell)
    return "\n".join(lines)


def resizing_command(stages: Sequence[Stage], shell: str = "strict") -> str:
    """The same in an allocation that has the nodes of each stage when that begins (`dmr.size`), the first's at first.

    A failure to get them ends the command, as that of a stage does. `DMR_PYTHON` is a Python that has `dmr`. Tasks that
    the stages ask for are those of each.
    """
    lines: list[str] = []
    present = stages[0].nodes
    for stage in stages:
        if stage.nodes != present:
            tasks = f" --ntasks {stage.asks.ntasks}" if stage.asks.ntasks else ""
            resized = f'$("${{DMR_PYTHON:-python3}}" -m dmr.size {stage.nodes}{tasks} --wait {GROWTH_WAIT:g})'
            lines += [f'eval "{resized}"'] if shell == "strict" else [f"sized={resized} || exit", 'eval "$sized"']
        present = stage.nodes
        lines += _subshell(stage, [], shell)
    return "\n".join(lines)


def _subshell(stage: Stage, before: Sequence[str], shell: str) -> list[str]:
    begins = f'echo "penstock: stage {stage.name} starts at $(date +%s)"'
    if stage.workdir is not None:
        before = [*before, _change_folder(stage.workdir)]
    command = f"eval {shlex.quote(stage.command)}"
    # Not `|| exit`: a stage that says `set -e` itself would go on in spite of it.
    ends = [] if shell == "strict" else ["penstock_code=$?", '[ "$penstock_code" -eq 0 ] || exit "$penstock_code"']
    return [begins, "(", f"export PENSTOCK_STAGE={stage.name}", *before, command, ")", *ends]
