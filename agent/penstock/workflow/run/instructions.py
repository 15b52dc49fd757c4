"""What the runner asks the controller to do, and what it is shown. Values only.

An instruction is repeated pass after pass until the view, or an event, shows that it is no longer needed; only
`Submit`, `Observe` and `Finished` are given out exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from penstock.api import AccountingRecord, Geometry, Job, JobSpec, JobState, Partition, Reason, Reservation, Snapshot
from penstock.values.waits import Estimate, Observation
from penstock.waits.learners.causes import Cause
from penstock.workflow.phases import Kept
from penstock.workflow.state import WorkflowRun
from penstock.workflow.ties import Tie

__all__ = [
    "Cancel",
    "Change",
    "Finished",
    "Instruction",
    "Lookup",
    "Observe",
    "Release",
    "Requeue",
    "RunStep",
    "SlurmView",
    "Submit",
    "as_one",
    "tasks_of",
]


@dataclass(frozen=True, slots=True)
class SlurmView:
    """What Slurm says: `jobs` from one snapshot *begun* at `taken_at`, `records` from accounting for jobs not in it.

    A job in neither is not seen, and nothing is concluded from that. Nothing at all is done on a view not `usable`.
    `tasks` are those of job arrays that have begun, by the array's number. `held` are the numbers of the holds that are
    in force. `down` are the nodes that cannot be used. `hindered` says of these jobs what keeps them besides their
    turn; maintenance is read off `reservations` and `partitions`. `unknown` are jobs that accounting does not know
    either, though it was asked for them again and again. `lost` are those that slurmctld is known to have lost: another
    job has their number now, or that has not been given out yet. Rows and records of such others are not shown.
    """

    taken_at: float
    jobs: Mapping[int, Job]
    records: Mapping[int, AccountingRecord] = field(default_factory=lambda: MappingProxyType({}))
    usable: bool = True
    hindered: Mapping[int, Cause] = field(default_factory=lambda: MappingProxyType({}))
    reservations: tuple[Reservation, ...] = ()
    partitions: Mapping[str, Partition] = field(default_factory=lambda: MappingProxyType({}))
    down: frozenset[str] = frozenset()
    held: frozenset[int] = frozenset()
    tasks: Mapping[int, Sequence[Job]] = field(default_factory=lambda: MappingProxyType({}))
    unknown: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()

    def rows(self, job: int) -> tuple[Job, ...]:
        """All that the snapshot shows of it: an array's waiting and running tasks are several."""
        seen = self.jobs.get(job)
        return (*(() if seen is None else (seen,)), *self.tasks.get(job, ()))

    def alive(self, job: int) -> bool:
        """Whether the snapshot lists the job as not ended (and in a state that is understood)."""
        seen = self.jobs.get(job)
        return seen is not None and not seen.state.ended and seen.state.value != "UNKNOWN"


def as_one(rows: Sequence[Job]) -> Job:
    """The tasks of an array as one job: it runs while one of them does, waits while one of them waits, and has ended
    when all have, badly if one has. Those that Slurm has forgotten are left out."""
    if unknown := [row for row in rows if row.state is JobState.UNKNOWN]:
        return unknown[0]
    live = [row for row in rows if not row.state.ended]
    running = [row for row in live if row.state.holds_nodes]
    bad = [row for row in rows if row.state.ended and row.state is not JobState.COMPLETED]
    chosen = (running or live or bad or rows)[0]
    chosen = replace(chosen, id=chosen.head)
    starts = [row.start for row in running or rows if row.start is not None]
    ends = [row.end for row in rows if row.end is not None]
    nodes = tuple(dict.fromkeys(node for row in running for node in row.nodes))
    if not live:
        return replace(chosen, start=min(starts, default=None), end=max(ends, default=None))
    return replace(chosen, start=min(starts, default=None), nodes=nodes) if running else chosen


def tasks_of(snapshot: Snapshot) -> Mapping[int, Sequence[Job]]:
    """The tasks of job arrays that it shows apart from those that wait, by the array's number."""
    tasks: dict[int, list[Job]] = {}
    for job in snapshot.jobs.values():
        if job.array_job is not None and job.array_job != job.id:
            tasks.setdefault(job.array_job, []).append(job)
    return tasks


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit `spec` for `stage`, once; then report `Runner.submitted` or `Runner.submit_failed`.

    `spec.name` is unique to the run, the stage and the attempt, so a lost answer can be found again by it.
    """

    stage: str
    spec: JobSpec
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """Let `job` go, which was kept back like this, and whose dependency has been read back from the view; then report
    `Runner.released`. `reset_age`: its age is to count from now on."""

    stage: str
    job: int
    reasons: tuple[Reason, ...] = ()
    kept: Kept = Kept.HOLD
    reset_age: bool = False


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put the running `job` back into the queue: it was started too early. Then report `Runner.requeued`."""

    stage: str
    job: int
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


Instruction = Submit | Release | Requeue | Change | Cancel | Lookup | Observe | Finished


@dataclass(frozen=True, slots=True)
class RunStep:
    """The outcome of one step: the state to store, what to do, and per stage ("" for the run) why nothing more. `more`:
    there is more to learn than one pass shall."""

    run: WorkflowRun
    instructions: tuple[Instruction, ...] = ()
    notes: tuple[tuple[str, Reason], ...] = ()
    more: bool = False
