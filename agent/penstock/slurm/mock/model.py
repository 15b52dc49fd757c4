"""The simulated cluster's nouns: its configuration, its jobs, and the effects that its changes have outside.

Times are seconds since the epoch of whatever clock drives the engine, durations are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.api import AccountingRecord, Allocation, Job, JobSpec, JobState, SiteConfig
from penstock.slurm.mock.dependency import Dependency
from penstock.slurm.mock.speedup import Work

__all__ = [
    "ClusterConfig",
    "Effect",
    "Ended",
    "PartitionConfig",
    "Requeued",
    "Resized",
    "SimJob",
    "Started",
]


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """A partition; `nodes` empty means all. Times in seconds, None unlimited."""

    name: str = "main"
    nodes: tuple[str, ...] = ()
    max_time: float | None = None
    default_time: float | None = None
    max_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What slurm.conf would say. The first partition is the default one; nodes are n1, n2, … unless named.

    A job's priority is 1 + `weight_age` * min(age / `max_age`, 1) + the priority of its QOS. With `accrue_always` age
    counts from submission, else from when the job became eligible. `operators` have AdminLevel=Operator, as root has.
    `merge_latency` and `shrink_latency` are how long such a call takes.
    """

    nodes: int = 8
    cluster: str = "mock"
    cpus: int = 2
    names: tuple[str, ...] = ()
    partitions: tuple[PartitionConfig, ...] = (PartitionConfig(),)
    version: tuple[int, ...] = (24, 11, 5)
    permit_job_expansion: bool = True
    contain: bool = False
    disable_job_shrink: bool = False
    accrue_always: bool = False
    weight_age: float = 1000.0
    max_age: float = 7 * 86400.0
    qos: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"normal": 0}))
    operators: tuple[str, ...] = ()
    min_job_age: float = 300.0
    merge_latency: float = 0.0
    shrink_latency: float = 0.0

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes in order."""
        return self.names or tuple(f"n{i}" for i in range(1, self.nodes + 1))

    def nodes_of(self, partition: PartitionConfig) -> tuple[str, ...]:
        """The partition's nodes in order."""
        return partition.nodes or self.node_names

    def site(self) -> SiteConfig:
        """The settings as the agent reads them."""
        parameters = {"bf_interval=1"}
        if self.permit_job_expansion:
            parameters.add("permit_job_expansion")
        if self.disable_job_shrink:
            parameters.add("disable_job_shrink")
        return SiteConfig(
            version=self.version,
            cluster=self.cluster,
            select_type="select/linear",
            scheduler_parameters=frozenset(parameters),
            prolog_flags=frozenset({"ALLOC", "CONTAIN"} if self.contain else set()),
            priority_type="priority/multifactor",
            priority_flags=frozenset({"ACCRUE_ALWAYS"} if self.accrue_always else set()),
            min_job_age=self.min_job_age,
        )


@dataclass(slots=True)
class SimJob:
    """A job as the simulated controller keeps it; the only mutable noun, and the engine alone changes it.

    `held` is "", "user" or "admin". `finish_at` is when the job ends by itself, None while only the driver knows.
    `work` is what it has to do, where that is known beforehand, and `left` how much of it was left at `left_at`.
    `planned` is the start of its reservation. `merged` are the nodes it gave to `merged_into` as a resizer.
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
    state: JobState = JobState.PENDING
    reason: str = "None"
    eligible: float | None = None
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
    def limit_at(self) -> float:
        """When a started job reaches its time limit."""
        return (self.start or 0.0) + self.time_limit

    def view(self, priority: int, cpus: int) -> Job:
        """The row that squeue would show; `cpus` per node."""
        pending, running = self.state is JobState.PENDING, self.state.holds_nodes
        count = len(self.nodes) if running else self.num_nodes
        limit_at = None if self.time_limit == math.inf else self.limit_at
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
            eligible=self.eligible,
            start=self.planned if pending else self.start,
            end=None if pending else limit_at if running else self.end,
            time_limit=None if self.time_limit == math.inf else self.time_limit,
            num_nodes=count,
            num_cpus=count * cpus,
            nodes=self.nodes,
            priority=priority,
            dependency=self.dependency.render() if pending else "",
        )

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


@dataclass(frozen=True, slots=True)
class Started:
    """The job began on these nodes; its batch host is the first."""

    job: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is over; whatever of it still runs on these nodes is to be killed."""

    job: int
    state: JobState
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resized:
    """The job now has `nodes`; what it ran on the `lost` ones is to be killed at once."""

    job: int
    nodes: tuple[str, ...]
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requeued:
    """The job lost its nodes and waits again; what it ran on them is to be killed."""

    job: int
    nodes: tuple[str, ...]


Effect = Started | Ended | Resized | Requeued
