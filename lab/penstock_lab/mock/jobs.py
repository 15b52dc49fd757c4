"""A job as the simulated controller keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.api import AccountingRecord, Allocation, Job, JobSpec, JobState, JobTexts
from penstock_lab.mock.arrays import Array
from penstock_lab.mock.dependency import Dependency
from penstock_lab.mock.speedup import Work

__all__ = ["SimJob"]


@dataclass(slots=True)
class SimJob:
    """The only mutable noun; the engine alone changes it.

    `held` is "", "user" or "admin". `accrued` is since when it ages, `rank` its place under priority/basic.
    `finish_at` is when the job ends by itself, None while only the driver knows. `work` is what it has to do, where
    that is known beforehand, and `left` how much of it was left at `left_at`. `planned` is the start of its
    reservation. `merged` are the nodes it gave to `merged_into` as a resizer. `mask` is `nodes` in bits, and until
    `claimed` the cluster's profile has them as taken. What it has used (`node_seconds`, and for fair-share) is in the
    books up to `accounted`. A task that has started, or was put back into the queue, has a `task`; a job with an
    `array` but without one stands for all that wait.
    """

    id: int
    spec: JobSpec | Allocation
    user: str
    uid: int
    account: str
    partition: str
    qos: str
    submit: float
    num_nodes: int
    time_limit: float
    dependency: Dependency
    begin: float | None = None
    held: str = ""
    fixed_priority: int | None = None
    nice: int = 0
    required: int = 0
    excluded: int = 0
    licenses: Mapping[str, int] = field(default_factory=dict)
    array: Array | None = None
    task: int | None = None
    state: JobState = JobState.PENDING
    reason: str = "None"
    eligible: float | None = None
    accrued: float | None = None
    rank: int = 0
    start: float | None = None
    end: float | None = None
    planned: float | None = None
    finish_at: float | None = None
    finish_code: int = 0
    work: Work | None = None
    left: float = 0.0
    left_at: float = 0.0
    exit_code: int = 0
    nodes: tuple[str, ...] = ()
    mask: int = 0
    claimed: float = 0.0
    accounted: float = 0.0
    node_seconds: float = 0.0
    restarts: int = 0
    merged_into: int | None = None
    merged: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name it was submitted under."""
        return self.spec.name

    @property
    def batch(self) -> bool:
        """Whether it has a script (else it is an allocation without one)."""
        return isinstance(self.spec, JobSpec)

    @property
    def expands(self) -> int | None:
        """The job that it was allocated to expand."""
        return self.spec.expands if isinstance(self.spec, Allocation) else None

    @property
    def least(self) -> int:
        """With how many nodes it may start."""
        fewest = self.spec.min_nodes if isinstance(self.spec, JobSpec) else None
        return self.num_nodes if fewest is None else fewest

    @property
    def reservation(self) -> str:
        """The reservation that it asks for; empty: none."""
        return (self.spec.reservation or "") if isinstance(self.spec, JobSpec) else ""

    @property
    def waits_as_array(self) -> bool:
        """Whether it stands for the tasks of an array that wait."""
        return self.array is not None and self.task is None

    @property
    def tasks(self) -> int:
        """How many jobs it stands for."""
        return len(self.array.waiting) if self.array is not None and self.task is None else 1

    @property
    def index(self) -> int | None:
        """Its number in its array, if it is one task and not several."""
        if self.task is not None or self.array is None or len(self.array.waiting) != 1:
            return self.task
        return self.array.waiting[0]

    @property
    def limit_at(self) -> float:
        """When a started job reaches its time limit."""
        return (self.start or 0.0) + self.time_limit

    def was_eligible(self, now: float) -> bool:
        """Whether there was a time from which on it might have started, had it been its turn."""
        since = self.accrued if self.eligible is None else self.eligible
        return self.restarts > 0 or (since is not None and since <= (now if self.end is None else self.end))

    def begin_work(self, now: float) -> None:
        """It has started on `nodes`: when it will end by itself, if its work is known."""
        if self.work is not None:
            self.left, self.left_at = self.work.seconds, now
            self.finish_at = now + self.left / self.work.speed(len(self.nodes))
            self.finish_code = self.work.exit_code

    def change_speed(self, now: float, nodes: int) -> None:
        """It goes on with so many nodes, which moves its end if its work has begun and has a speed-up."""
        if self.work is not None and self.work.speedup is not None and self.finish_at is not None:
            self.left -= (now - self.left_at) * self.work.speed(len(self.nodes))
            self.left_at = now
            self.finish_at = max(now + self.left / self.work.speed(nodes), now)

    def view(self, priority: int, cpus: int, now: float) -> Job:
        """The row that squeue would show; `cpus` per node."""
        pending, running = self.state is JobState.PENDING, self.state.holds_nodes
        count = len(self.nodes) if running else self.num_nodes
        limit_at = None if self.time_limit == math.inf else self.limit_at
        # A time that is to come is shown whatever else the job waits for.
        put_off = self.begin if pending and self.begin is not None and self.begin > now else None
        return Job(
            id=self.id,
            uid=self.uid,
            user=self.user,
            account=self.account,
            partition=self.partition,
            qos=self.qos,
            state=self.state,
            reason=self.reason if pending or self.state.ended else "None",
            submit=self.submit,
            eligible=self.eligible if put_off is None else put_off,
            start=self.planned if pending else self.start,
            end=None if pending else limit_at if running else self.end,
            time_limit=None if self.time_limit == math.inf else self.time_limit,
            num_nodes=count,
            num_cpus=count * cpus,
            nodes=self.nodes,
            priority=priority,
            dependency=self.dependency.render() if pending else "",
            array_job=None if self.array is None else self.array.job,
            array_task=self.index,
            tasks=self.tasks,
            restarts=self.restarts,
            reservation=self.reservation,
            batch_host=self.nodes[0] if running and self.batch and self.nodes else "",
            min_nodes=self.least if pending and self.least < count else None,
        )

    def texts(self) -> JobTexts:
        """What its user wrote; the script came by stdin, so there is no command."""
        if isinstance(self.spec, Allocation):
            return JobTexts(self.id, self.name)
        return JobTexts(self.id, self.name, self.spec.comment or "", self.spec.workdir or "")

    def record(self) -> AccountingRecord:
        """What sacct would show."""
        return AccountingRecord(
            id=self.id,
            name=self.name,
            user=self.user,
            partition=self.partition,
            qos=self.qos,
            account=self.account,
            state=self.state,
            exit_code=self.exit_code,
            submit=self.submit,
            eligible=self.eligible,
            start=self.start,
            end=self.end,
            time_limit=None if self.time_limit == math.inf else self.time_limit,
            num_nodes=len(self.nodes) if self.state.holds_nodes else self.num_nodes,
        )
