"""What people are told of: each event has a key by which it is told once, however often it is found again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

from dmr.wire import clean
from penstock.values.exchanges import FOR_THE_BETTER
from penstock.workflow.state import StagePhase, WorkflowRun

__all__ = ["KINDS", "Event", "failed_stages", "paused", "reserved"]

KINDS: Final = ("stage-failed", "deadline", "paused", "report")
"""A stage has failed; a reserved workflow will not end when its slots say; the agent has paused itself; the week."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at the instant `at` (epoch s). `uid` and `user`: whose it is; None: the site's, or the
    agent's own. `title` is one line, `text` some; `details` are JSON-able."""

    key: str
    kind: str
    at: float
    title: str
    text: str
    uid: int | None = None
    user: str = ""
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {**asdict(replace(self, details={})), "details": dict(self.details)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event:
        """What `to_dict` gave."""
        return cls(**data)


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


def reserved(run: WorkflowRun, *, uid: int, user: str, now: float) -> Iterator[Event]:
    """What went wrong with a reserved workflow, as the ledger has it: stages that failed or were given up, and those
    that got a later slot or should have another one, so that it does not end when it was to end."""
    name = run.name
    for entry in run.stages:
        stage, hold = entry.name, entry.held.hold
        why = clean(run.told.get(stage) or entry.failure or "")
        details = {"reserved": name, "stage": stage, "job": entry.job, "why": why}
        if entry.phase in (StagePhase.FAILED, StagePhase.CANCELLED):
            yield Event(
                f"stage-failed reserved {name}/{stage} hold {hold}",
                "stage-failed",
                now,
                f"stage {stage} of the reserved workflow {name} has failed",
                f"Stage {stage} of {name}: {why or 'its job has failed'}\n\nWhat is held: penstock hold list\n",
                uid,
                user,
                details,
            )
        elif why and why not in FOR_THE_BETTER and entry.phase is not StagePhase.DONE:
            yield Event(
                f"deadline reserved {name}/{stage} hold {hold}",
                "deadline",
                now,
                f"the reserved workflow {name} will end later than planned",
                f"Stage {stage} of {name} does not run in the slot that was planned: {why}\n\n"
                "What is held now: penstock hold list\n",
                uid,
                user,
                details,
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
