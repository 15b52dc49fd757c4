"""What people are told of: each event has a key by which it is told once, however often it is found again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from dmr.wire import clean
from penstock.core.events import KINDS, Event
from penstock.workflow.phases import StagePhase

__all__ = ["KINDS", "Event", "failed_stages", "paused"]


class Staged(Protocol):
    """A stage of either kind of workflow."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def phase(self) -> StagePhase:
        """Where it is."""
        ...

    @property
    def job(self) -> int | None:
        """Its job."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it failed."""
        ...


def failed_stages(
    workflow: int,
    name: str,
    stages: Sequence[Staged],
    before: Sequence[Staged],
    *,
    uid: int,
    user: str,
    now: float,
) -> Iterator[Event]:
    """The stages that have failed since `before` (empty: all that have)."""
    known = {(stage.name, stage.job) for stage in before if stage.phase is StagePhase.FAILED}
    for stage in stages:
        if stage.phase is not StagePhase.FAILED or (stage.name, stage.job) in known:
            continue
        # A job that Slurm never took has no number; of those each attempt is another one.
        which = f"attempt {getattr(stage, 'attempt', 0)}" if stage.job is None else f"job {stage.job}"
        why = clean(stage.failure or "it failed")
        yield Event(
            f"stage-failed workflow {workflow}/{stage.name} {which}",
            "stage-failed",
            now,
            f"stage {stage.name} of workflow {name} has failed",
            f"Stage {stage.name} of workflow {workflow} ({name}): {why}\n\n"
            f"What was decided: penstock explain w{workflow}\nWhat it wrote: penstock logs {workflow} {stage.name}\n"
            f"To run it again: penstock retry {workflow}\n",
            uid,
            user,
            {"workflow": workflow, "name": name, "stage": stage.name, "job": stage.job, "why": why},
        )


def paused(until: float, why: str, count: int, *, now: float) -> Event:
    """The agent has paused all acts by itself."""
    seconds = until - now
    return Event(
        f"paused until {until:.0f}",
        "paused",
        now,
        f"the agent has paused itself for {seconds / 60:.0f} minutes",
        f"The last {count} requests to change something in Slurm got no answer. The agent submits, releases and "
        f"resizes nothing for {seconds / 60:.0f} minutes, and then goes on by itself. Jobs go on meanwhile.\n\n"
        f"The last request: {clean(why)}\n\n"
        "Run `penstock doctor`, and look at Slurm itself (sdiag, slurmctld's log).\n",
        details={"until": until, "why": clean(why)},
    )
