"""What makes the jobs of workflows do without an agent: which of them are to be released or tied anew. Pure.

A job of a workflow that the agent submits is an ordinary job once it is released behind an `afterok` on each stage
before it that has not completed. One whose script waits for those stages itself (`Tie.guarded`) could start before its
time, and nobody would put it back: it gets the dependency, too. A job of a workflow whose owner submitted it has that
dependency from the beginning, whatever the strategy is, and is only kept from being considered: released, it starts
after those before it, at the latest when its wait has passed. Slurm itself then holds to the order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.api import Geometry, Job, JobState, Reason, Snapshot
from penstock.guided import instructions as guided
from penstock.guided.machine import step
from penstock.guided.state import GuidedRun, GuidedStage, Kept
from penstock.off.order import CODE
from penstock.waits.base import Estimate
from penstock.workflow.instructions import Cancel, Change, Instruction, VerifyAndRelease
from penstock.workflow.reading import names_parent
from penstock.workflow.scripts import dependency_text
from penstock.workflow.state import Phase, StageRun, WorkflowRun
from penstock.workflow.ties import Tie

__all__ = ["KeptBack", "kept_back", "let_go", "own_jobs", "released", "rows_by_job"]

_LONG: Final = 1e10  # seconds; a stage that waits so much longer than those before it is due, whenever they end
_WHY: Final = (Reason(CODE, "Penstock is off: it starts after the stages before it, without an agent"),)


# -- jobs that the agent has submitted ---------------------------------------------------------------------------------


def own_jobs(run: WorkflowRun, snapshot: Snapshot) -> tuple[Instruction, ...]:
    """What is to be done to the jobs of a run of the agent's own. Nothing is left to do when all of them do alone."""
    out: list[Instruction] = [
        Cancel("", job, (Reason(CODE, f"job {job} had been given up"),))
        for job in run.discarded
        if (seen := snapshot.jobs.get(job)) is not None and not seen.state.ended
    ]
    for i, stage in enumerate(run.stages):
        job = snapshot.jobs.get(stage.job or -1)
        if stage.phase in (Phase.SUBMITTED, Phase.QUEUED) and stage.depends_on and job is not None and job.pending:
            found = _tied(run, i, stage, job, snapshot)
            out += [] if found is None else [found]
    return tuple(out)


def _tied(run: WorkflowRun, i: int, stage: StageRun, job: Job, snapshot: Snapshot) -> Instruction | None:
    alive: list[int] = []
    for parent in run.parents(i):
        seen = snapshot.jobs.get(parent.job or -1)
        if parent.phase is Phase.DONE or (seen is not None and seen.state is JobState.COMPLETED):
            continue
        if seen is None or seen.state.ended or parent.job is None:
            return None  # it is not known, or did not end well: the job stays as it is
        alive.append(parent.job)
    needed = tuple(alive)
    lacking = not all(names_parent(job.dependency, number) for number in needed)
    pinned = bool(stage.pins)
    if stage.tie.guarded and ((lacking and needed) or pinned):
        tie = Tie.AFTEROK if needed else Tie.NODES
        depends_on = needed or stage.depends_on
        text = dependency_text(tie, needed) if lacking else None
        wish = () if pinned else None
        return Change(stage.name, job.id, tie, depends_on, dependency=text, nodelist=wish, reasons=_WHY)
    if stage.phase is Phase.SUBMITTED and job.held and job.reason != "JobHeldAdmin" and not lacking:
        return VerifyAndRelease(stage.name, job.id, needed, _WHY)
    return None


# -- jobs that their owners have submitted -----------------------------------------------------------------------------


def let_go(*jobs: int, begin: float | None = None) -> str:
    """The command by which the owner of jobs that are kept back by their begin time, or an operator, lets them go:
    now, or from their owner's own begin time (epoch s) on. Holds of anybody stay."""
    start = "now" if begin is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begin))
    return f"scontrol update jobid={','.join(map(str, jobs))} StartTime={start} ResetAccrueTime"


@dataclass(frozen=True, slots=True)
class KeptBack:
    """A job that waits for the agent: how it is `kept`, and its owner's own begin time (epoch s) if that is to come."""

    stage: str
    job: int
    kept: Kept
    begin: float | None = None


def kept_back(run: GuidedRun, snapshot: Snapshot) -> list[KeptBack]:
    """The jobs of a run that its owner submitted which wait for the agent. What others hold is not ours to speak of."""
    found = []
    for stage in run.stages:
        job = snapshot.jobs.get(stage.job)
        if job is None or not job.pending or job.uid != run.uid or stage.phase.final or stage.released is not None:
            continue
        if stage.kept is Kept.HOLD and job.reason == "JobHeldUser":
            found.append(KeptBack(stage.name, job.id, Kept.HOLD))
        elif stage.kept is Kept.BEGIN and job.put_off:
            later = stage.begin is not None and stage.begin > snapshot.taken_at
            found.append(KeptBack(stage.name, job.id, Kept.BEGIN, stage.begin if later else None))
    return found


def rows_by_job(snapshot: Snapshot) -> dict[int, list[Job]]:
    """What is seen of each job; the tasks of an array stand under the array's number, too."""
    rows: dict[int, list[Job]] = {}
    for job in snapshot.jobs.values():
        for number in {job.id, job.array_job or job.id}:
            rows.setdefault(number, []).append(job)
    return rows


def released(
    run: GuidedRun, snapshot: Snapshot, seen: Mapping[int, Sequence[Job]], *, accrues: bool
) -> tuple[guided.Instruction, ...]:
    """What lets these jobs go behind those before them: guiding's own steps, as if all of them were due now. One whose
    dependency has been lost gets it back first; one behind a stage that did not complete stays. `seen` is
    `rows_by_job`; `accrues`: jobs age here while they depend on others."""
    rows = {stage.job: seen[stage.job] for stage in run.stages if stage.job in seen}
    due = replace(run, strategy="asa", stages=tuple(_due(stage, k) for k, stage in enumerate(run.stages, start=1)))
    rules = guided.Rules(accrues=accrues, predict=_now)
    now = snapshot.taken_at
    ours = {kept.job for kept in kept_back(run, snapshot)}
    done = step(due, guided.View(now, rows, nodes=snapshot.nodes), now, rules)
    broken = [stage.name for stage in done.run.stages if stage.phase in (Phase.FAILED, Phase.CANCELLED)]
    vain = done.run.below(broken)
    acts = [i for i in done.instructions if isinstance(i, guided.Release | guided.Repoint)]
    steps = [i for i in acts if i.job in ours and i.stage not in vain]
    return tuple(replace(i, reasons=(*_WHY, *i.reasons[1:])) for i in steps)


def _due(stage: GuidedStage, place: int) -> GuidedStage:
    # Those before it are expected to end within their waits and run times: its own wait is longer than all of these.
    return replace(stage, estimate=place * _LONG, expect=stage.expect or stage.limit or 60.0)


def _now(_geometry: Geometry) -> Estimate:
    return Estimate(0, _LONG)
