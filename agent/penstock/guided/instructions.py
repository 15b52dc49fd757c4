"""What a pass over a guided workflow is shown, what it goes by, and what it asks the controller to do. Values only.

An instruction is repeated pass after pass until the view shows that it is no longer needed; only `Observe`, `Ran` and
`Finished` are given out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.api import AccountingRecord, Geometry, Job, Node, Reason
from penstock.guided.state import GuidedRun, Kept
from penstock.waits.base import Estimate, Observation

__all__ = ["Finished", "Instruction", "Lookup", "Observe", "Ran", "Release", "Repoint", "Requeue", "Rules", "Step"]
__all__ += ["View"]


@dataclass(frozen=True, slots=True)
class View:
    """`rows`: what one look begun at `taken_at` shows of each job, an array's waiting and running tasks being several;
    `records`: accounting of jobs that were not in it; `nodes`: all nodes by name."""

    taken_at: float
    rows: Mapping[int, Sequence[Job]]
    records: Mapping[int, AccountingRecord] = field(default_factory=lambda: MappingProxyType({}))
    nodes: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Rules:
    """`accrues`: jobs age here while they depend on others. `ages_from_release`: those do, too, that are released by
    their begin time, from then on (no limits are enforced). `cycle`: one scheduler cycle (s). `predict`: the wait of a
    job. `expected`: how long a stage ran before (s), None where that is not known."""

    accrues: bool
    predict: Callable[[Geometry], Estimate]
    expected: Callable[[str], float | None] = lambda _stage: None
    cycle: float = 5.0
    ages_from_release: bool = False

    def ages(self, kept: Kept) -> bool:
        """Whether a job that was kept back so, and depends on others, ages from its release on."""
        return self.accrues or (self.ages_from_release and kept is Kept.BEGIN)


@dataclass(frozen=True, slots=True)
class Release:
    """Let the job go that was kept back like this. `reset_age`: its age is to count from now on."""

    stage: str
    job: int
    reasons: tuple[Reason, ...]
    kept: Kept = Kept.BEGIN
    reset_age: bool = False


@dataclass(frozen=True, slots=True)
class Repoint:
    """Make the waiting job depend on `dependency`, in sbatch's syntax."""

    stage: str
    job: int
    dependency: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put the running job back into the queue: it was started too early."""

    stage: str
    job: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Fetch accounting's records of these jobs for a coming view."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Observe:
    """A wait is known; learn from it in the transaction that saves the new state."""

    stage: str
    geometry: Geometry
    observation: Observation
    estimate: Estimate | None


@dataclass(frozen=True, slots=True)
class Ran:
    """A stage has completed and ran so many seconds; learned likewise."""

    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing of the workflow is in Slurm any more; `ok` if every stage completed."""

    ok: bool
    why: str


Instruction = Release | Repoint | Requeue | Lookup | Observe | Ran | Finished


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome: the state to store, what to do, and per stage ("" for all) why nothing more. `more`: there is more
    to learn than one pass shall."""

    run: GuidedRun
    instructions: tuple[Instruction, ...] = ()
    notes: tuple[tuple[str, Reason], ...] = ()
    more: bool = False
