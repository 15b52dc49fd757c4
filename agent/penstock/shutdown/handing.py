"""What makes the jobs of workflows do without an agent: which of them are to be released or tied anew. Pure.

A job of a workflow that the agent submits is an ordinary job once it is released behind an `afterok` on each stage
before it that has not completed. One whose script waits for those stages itself (`Tie.guarded`) could start before its
time, and nobody would put it back: it gets the dependency, too. A job of a workflow whose owner submitted it has that
dependency from the beginning, whatever the strategy is, and is only kept from being considered: released, it starts
after those before it, at the latest when its wait has passed. Slurm itself then holds to the order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.api import Job, JobState, Reason, Snapshot
from penstock.core.off import CODE
from penstock.workflow.phases import Kept, StagePhase
from penstock.workflow.run.instructions import Cancel, Change, Instruction, Release, SlurmView, tasks_of
from penstock.workflow.run.owned import all_due
from penstock.workflow.run.reading import SiteRules, names_parent
from penstock.workflow.scripts import dependency_text
from penstock.workflow.state import StageRun, WorkflowRun
from penstock.workflow.ties import Tie

__all__ = ["KeptBack", "kept_back", "own_jobs", "released"]

_BROKEN: Final = (StagePhase.FAILED, StagePhase.CANCELLED)
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
        if (
            stage.phase in (StagePhase.SUBMITTED, StagePhase.QUEUED)
            and stage.depends_on
            and job is not None
            and job.pending
        ):
            found = _tied(run, i, stage, job, snapshot)
            out += [] if found is None else [found]
    return tuple(out)


def _tied(run: WorkflowRun, i: int, stage: StageRun, job: Job, snapshot: Snapshot) -> Instruction | None:
    alive: list[int] = []
    for parent in run.parents(i):
        seen = snapshot.jobs.get(parent.job or -1)
        if parent.phase is StagePhase.DONE or (seen is not None and seen.state is JobState.COMPLETED):
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
    if stage.phase is StagePhase.SUBMITTED and job.held and job.reason != "JobHeldAdmin" and not lacking:
        return Release(stage.name, job.id, _WHY)
    return None


# -- jobs that their owners have submitted -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptBack:
    """A job that waits for the agent: how it is `kept`, and its owner's own begin time (epoch s) if that is to come."""

    stage: str
    job: int
    kept: Kept
    begin: float | None = None


def kept_back(run: WorkflowRun, snapshot: Snapshot) -> list[KeptBack]:
    """The jobs of a run that its owner submitted which wait for the agent. What others hold is not ours to speak of."""
    found = []
    for stage in run.stages:
        job, own = snapshot.jobs.get(stage.job or 0), stage.mine
        if job is None or not job.pending or job.uid != run.uid or stage.phase.final or stage.released is not None:
            continue
        if own.kept is Kept.HOLD and job.reason == "JobHeldUser":
            found.append(KeptBack(stage.name, job.id, Kept.HOLD))
        elif own.kept is Kept.BEGIN and job.put_off:
            later = own.begin is not None and own.begin > snapshot.taken_at
            found.append(KeptBack(stage.name, job.id, Kept.BEGIN, own.begin if later else None))
    return found


def released(run: WorkflowRun, snapshot: Snapshot, *, accrues: bool) -> tuple[Instruction, ...]:
    """What lets these jobs go behind those before them, all of them now. One whose dependency has been lost gets it
    back first; one behind a stage that did not complete stays. `accrues`: jobs age here while they depend on others."""
    view = SlurmView(snapshot.taken_at, snapshot.jobs, tasks=tasks_of(snapshot))
    ours = {kept.job for kept in kept_back(run, snapshot)}
    seen, orders = all_due(SiteRules(accrues, cycle=0.0), run, view, snapshot.taken_at, _WHY[0])
    vain = {run.stages[i].name for i in seen.following(i for i, s in enumerate(seen.stages) if s.phase in _BROKEN)}
    acts = [i for i in orders if isinstance(i, Release | Change) and i.job in ours and i.stage not in vain]
    return tuple(i if isinstance(i, Release) else replace(i, reasons=(*_WHY, *i.reasons[1:])) for i in acts)
