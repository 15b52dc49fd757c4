"""Which runs another look says nothing new of: a step over one would leave it as it is, and order and say nothing.

A step goes by the run, by what Slurm and accounting say of the jobs that it names, and by the clock. So after a step
that changed nothing the run rests until one of its jobs stands otherwise, or an instant comes that steps compare the
clock with. It never rests where a step may read more than that: of stages that are due, of guards, of looks older than
what was done to a job, of strategies that are not Penstock's own. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.values.standing import Standing
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.seen import ask_again
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.ties import Tie

__all__ = ["Resting", "jobs_named", "resting"]

_OURS: Final = "penstock.workflow.strategies."


@dataclass(frozen=True, slots=True)
class Resting:
    """A step at `at` (s), over the look of `taken_at`, did nothing; so before `until` while `jobs` are `seen` so."""

    at: float
    taken_at: float
    until: float
    jobs: tuple[int, ...]
    seen: tuple[Standing | None, ...]

    def lasts(self, taken_at: float, now: float) -> bool:
        """Whether the clock alone makes no difference. One that was set back may make any."""
        return self.at <= now < self.until and self.taken_at < taken_at


def resting(run: WorkflowRun, taken_at: float, now: float, seen: tuple[Standing | None, ...]) -> Resting | None:
    """The rest of a run that a step at `now`, over the look of `taken_at`, left as it was without any order; `seen`
    is what that look shows of `jobs_named`. None where the next step may come to something else."""
    strategy = strategy_named(run.acting)
    moves = strategy.tie.guarded or any(stage.tie is Tie.AFTER for stage in run.stages)
    if run.in_slots or moves or not type(strategy).__module__.startswith(_OURS) or None in seen:
        return None
    waiting = (stage for stage in run.stages if stage.phase is StagePhase.WAITING)
    if any(taken_at <= t for t in _sent(run)) or any(stage.due is not None and stage.due <= now for stage in waiting):
        return None
    until = min((t for t in _instants(run) if t >= now), default=math.inf)
    return Resting(now, taken_at, until, jobs_named(run), seen)


def _sent(run: WorkflowRun) -> Iterator[float]:
    """When something was done to its jobs, or they were taken charge of: a look has to be younger to show it."""
    for stage in run.stages:
        theirs = () if stage.own is None else (stage.own.requeued_at, stage.own.registered)
        yield from (t for t in (stage.submitted, stage.released, stage.looked_at, *theirs) if t is not None)


def _instants(run: WorkflowRun) -> Iterator[float]:
    """What a step compares the clock with, past and to come."""
    if run.open_until is not None:
        yield run.open_until
    for stage, unit in zip(run.stages, run.units, strict=True):
        since = stage.submitted if stage.own is None else stage.released
        if stage.end is None and stage.start is not None:
            yield stage.start + unit.run_time
        elif stage.end is None and since is not None:
            yield since + (stage.estimate or 0.0)
        begin = None if stage.own is None else stage.own.begin
        found = (ask_again(stage), stage.submitted, stage.due, stage.retry_at, begin)
        yield from (t for t in found if t is not None)


def jobs_named(run: WorkflowRun) -> tuple[int, ...]:
    """All jobs that a step over the run looks for."""
    named = {*run.discarded, *(stage.job for stage in run.stages if stage.job is not None)}
    for stage in run.stages:
        named.update(stage.depends_on, () if stage.own is None else stage.own.former)
    return tuple(sorted(named))
