"""What jobs are, and what they ask for. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = [
    "FAR",
    "AccountingRecord",
    "Allocation",
    "Geometry",
    "Job",
    "JobSpec",
    "JobState",
    "JobTexts",
    "NodeNeeds",
    "Origin",
    "StartEstimate",
    "Step",
]

FAR: Final = "2099-12-31T00:00:00"
"""A begin time, for sbatch, that does not come. A job with it is kept back without a hold: to let it go is to bring its
begin time forward, which leaves the holds of everybody as they are, whoever does it."""

_FAR_FROM: Final = 4_000_000_000.0  # epoch seconds, in 2096: FAR is later, wherever the clocks stand


class JobState(StrEnum):
    """A job's state as Slurm names it; a state this release does not know becomes UNKNOWN."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    RESIZING = "RESIZING"
    REQUEUED = "REQUEUED"
    REQUEUE_HOLD = "REQUEUE_HOLD"  # back in the queue after a run, and held: somebody has to release it
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    UNKNOWN = "UNKNOWN"

    @property
    def ended(self) -> bool:
        """Whether the job will never run again (a requeued job is pending, not ended)."""
        return self in _ENDED

    @property
    def waits(self) -> bool:
        """Whether the job is in the queue."""
        return self in (JobState.PENDING, JobState.REQUEUE_HOLD)

    @property
    def holds_nodes(self) -> bool:
        """Whether nodes are allocated to a job in this state."""
        return self in _HOLDING


_ENDED = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
    }
)

_HOLDING = frozenset(
    {JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING, JobState.RESIZING}
)


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the queue, from fields that only Slurm writes (never a user's text).

    `time_limit` None means unlimited. `eligible` None means not eligible yet (an unfulfilled dependency or a hold; one
    that is put on or taken off later shows here when the scheduler has looked at the job).
    `start` of a pending job is Slurm's own estimate or None. `end` of a running job is start + limit. `num_nodes` of a
    pending job that takes a range is the largest, `min_nodes` the smallest where that is known. `partition` is a list
    with commas while it waits in several.
    A task of an array names the array and its index. The tasks that have not begun yet are one row under the array's
    id, whose `tasks` counts them and whose `array_task` is None while they are several. `restarts` counts how often
    the job was requeued. `batch_host` is the node of its script, which it cannot give back; empty: none, or not known.
    """

    id: int
    uid: int
    user: str
    account: str
    partition: str
    qos: str
    state: JobState
    reason: str
    submit: float
    eligible: float | None
    start: float | None
    end: float | None
    time_limit: float | None
    num_nodes: int
    num_cpus: int
    nodes: tuple[str, ...]
    priority: int
    dependency: str = ""
    array_job: int | None = None
    array_task: int | None = None
    tasks: int = 1
    restarts: int = 0
    reservation: str = ""
    batch_host: str = ""
    min_nodes: int | None = None

    @property
    def least_nodes(self) -> int:
        """With how many nodes it may start, if it is pending."""
        return self.num_nodes if self.min_nodes is None else self.min_nodes

    @property
    def head(self) -> int:
        """The number that it was submitted under: of a task its array's."""
        return self.array_job or self.id

    @property
    def running(self) -> bool:
        """Whether the job runs right now and may be resized."""
        return self.state in (JobState.RUNNING, JobState.RESIZING)

    @property
    def pending(self) -> bool:
        """Whether the job waits in the queue."""
        return self.state.waits

    @property
    def held(self) -> bool:
        """Whether a pending job waits for somebody to release it."""
        return self.priority == 0 or self.reason.startswith("JobHeld")

    @property
    def put_off(self) -> bool:
        """Whether a pending job has the begin time `FAR`, which it keeps while it is held or depends on others."""
        return self.eligible is not None and self.eligible >= _FAR_FROM


@dataclass(frozen=True, slots=True)
class Step:
    """A running step: `job` and `id` as in "12.0" (`id` is "batch", "extern" or a number), and where it runs."""

    job: int
    id: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When and where Slurm itself thinks that a job would start if it were submitted now."""

    start: float
    nodes: tuple[str, ...]
    num_cpus: int
    partition: str


@dataclass(frozen=True, slots=True)
class JobTexts:
    """What users wrote about a job. Any text may be in here: show it, never decide by it."""

    job: int
    name: str
    comment: str = ""
    workdir: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class AccountingRecord:
    """What accounting knows of one job, ended or not; the way to tell "not there" from "ended"."""

    id: int
    name: str
    user: str
    partition: str
    qos: str
    account: str
    state: JobState
    exit_code: int
    submit: float
    eligible: float | None
    start: float | None
    end: float | None
    time_limit: float | None
    num_nodes: int


@dataclass(frozen=True, slots=True)
class Origin:
    """From where a job is submitted, as sbatch would see it: the working `folder`, the whole `environment` (which may
    hold secrets, and is never shown) and the `umask`; None: the agent's."""

    folder: str
    environment: Mapping[str, str] = field(repr=False)
    umask: int | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A batch job to submit. `script` is the whole text; `environment` is added to the job's, not instead of it.

    `dependency`, `begin`, `array`, `licenses` and all from `memory` (per node) to `error` are in sbatch's own syntax;
    `cpus` are those of a task. `options` are more words for sbatch; what the other fields say counts before them.
    `requeue` false keeps Slurm from running it a second time. `nodelist` are nodes that it must have, among others if
    it asks for more; `exclude` those that it must not have. With `min_nodes` it starts on any number of nodes from that
    to `nodes`, as many as are free. `origin` None: it has nothing of the submitter's.
    """

    name: str
    script: str
    nodes: int
    time_limit: float
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    dependency: str | None = None
    begin: str | None = None
    hold: bool = False
    requeue: bool = False
    workdir: str | None = None
    output: str | None = None
    array: str | None = None
    reservation: str | None = None
    licenses: str | None = None
    comment: str | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    min_nodes: int | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    memory: str | None = None
    gpus: str | None = None
    gres: str | None = None
    ntasks: str | None = None
    cpus: str | None = None
    constraint: str | None = None
    error: str | None = None
    options: tuple[str, ...] = ()
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Nodes without a script (`salloc --no-shell`). `expands` names the running job they are to be merged into.

    `last`: behind all who wait, so that it is given only what Slurm has planned for nobody; granted by the scheduler's
    next round at the earliest. `exclusive`: all of each node, where Slurm would give single cores. `gres` is what each
    node must have ("gpu:a100:2"), `constraint` its features, as salloc takes them.
    """

    name: str
    nodes: int
    time_limit: float
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    expands: int | None = None
    last: bool = False
    exclusive: bool = False
    gres: str | None = None
    constraint: str | None = None


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What each further node of a job has to have: GRES and features, as sbatch takes them; None: anything. `unknown`:
    why it cannot be said; "": it can."""

    gres: str | None = None
    constraint: str | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a job asks for and for whom, as far as its wait depends on it; learned per class (`waits.geometry`).

    What is not known, or left to Slurm's defaults, is empty or None. `time_limit` in seconds; `share` is the fair-share
    factor of the account, 0 to 1; `gres` what each node must have ("gpu:a100:2"); `memory` MB per node; `features` the
    constraint as sbatch takes it.
    """

    partition: str
    qos: str
    nodes: int
    time_limit: float
    account: str = ""
    user: str = ""
    cluster: str = ""
    share: float | None = None
    gres: str = ""
    memory: float | None = None
    features: str = ""
