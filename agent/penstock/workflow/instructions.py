"""What the runner asks the loop to do, and what it is shown. Values only.

An instruction is repeated pass after pass until the view, or an event, shows that it is no longer needed; only
`Submit`, `Observe` and `Finished` are given out exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.api import AccountingRecord, Geometry, Job, JobSpec, Partition, Reason, Reservation
from penstock.waits.base import Estimate, Observation
from penstock.waits.causes import Cause
from penstock.workflow.state import WorkflowRun
from penstock.workflow.ties import Tie

__all__ = [
    "Cancel",
    "Change",
    "Finished",
    "Instruction",
    "Lookup",
    "Observe",
    "Step",
    "Submit",
    "VerifyAndRelease",
    "View",
]


@dataclass(frozen=True, slots=True)
class View:
    """What Slurm says: `jobs` from one snapshot *begun* at `taken_at`, `records` from accounting for jobs not in it.

    A job in neither is not seen, and nothing is concluded from that. Nothing at all is done on a view not `usable`.
    `down` are the nodes that cannot be used. `hindered` says of these jobs what keeps them besides their turn;
    maintenance is read off `reservations` and `partitions`.
    """

    taken_at: float
    jobs: Mapping[int, Job]
    records: Mapping[int, AccountingRecord] = field(default_factory=lambda: MappingProxyType({}))
    usable: bool = True
    hindered: Mapping[int, Cause] = field(default_factory=lambda: MappingProxyType({}))
    reservations: tuple[Reservation, ...] = ()
    partitions: Mapping[str, Partition] = field(default_factory=lambda: MappingProxyType({}))
    down: frozenset[str] = frozenset()

    def alive(self, job: int) -> bool:
        """Whether the snapshot lists the job as not ended (and in a state that is understood)."""
        seen = self.jobs.get(job)
        return seen is not None and not seen.state.ended and seen.state.value != "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit `spec` for `stage`, once; then report `Runner.submitted` or `Runner.submit_failed`.

    `spec.name` is unique to the run, the stage and the attempt, so a lost answer can be found again by it.
    """

    stage: str
    spec: JobSpec
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyAndRelease:
    """Release the held `job` if a fresh look still shows a dependency on each of `parents`; none: none is needed now.

    Report `Runner.released`. If the dependency is not there: do nothing, the next step decides again.
    """

    stage: str
    job: int
    parents: tuple[int, ...]
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Change what keeps the waiting `job` behind its parents, in one request; then report `Runner.changed`.

    `dependency` as sbatch has it, `nodelist` the nodes it must have; empty: none any more, None: as it is. `tie`,
    `depends_on`, `minutes` and `pins` are what the stage's entry says afterwards.
    """

    stage: str
    job: int
    tie: Tie
    depends_on: tuple[int, ...]
    minutes: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    dependency: str | None = None
    nodelist: tuple[str, ...] | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel `job`. Nothing to report: the view will show it."""

    stage: str
    job: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Lookup:
    """These jobs are not in the snapshot: fetch their accounting records for a coming view."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Observe:
    """The wait of `stage`'s job is known. Hand it to the predictor *in the transaction that saves the new state*.

    `estimate` is what was predicted; None when the strategy asked for nothing.
    """

    stage: str
    geometry: Geometry
    observation: Observation
    estimate: Estimate | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The workflow has ended; `ok` if every stage completed."""

    ok: bool
    why: str


Instruction = Submit | VerifyAndRelease | Change | Cancel | Lookup | Observe | Finished


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one step: the state to store, what to do, and per stage ("" for the run) why nothing more."""

    run: WorkflowRun
    instructions: tuple[Instruction, ...] = ()
    notes: tuple[tuple[str, Reason], ...] = ()
