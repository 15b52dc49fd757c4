"""The simulated cluster's configuration, and the effects that its changes have outside.

Times are seconds since the epoch of whatever clock drives the engine, durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from penstock.api import JobState, SiteConfig

__all__ = [
    "ClusterConfig",
    "Effect",
    "Ended",
    "Failures",
    "NodeLimits",
    "PartitionConfig",
    "PriorityType",
    "Requeued",
    "Resized",
    "Scheduler",
    "Signalled",
    "Started",
    "Weights",
]


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """A partition; `nodes` empty means all. Times in seconds, None unlimited. `priority` is its PriorityJobFactor,
    `features` are those of all its nodes, `qos` is the QOS whose limits hold for all of its jobs."""

    name: str = "main"
    nodes: tuple[str, ...] = ()
    max_time: float | None = None
    default_time: float | None = None
    max_nodes: int | None = None
    priority: int = 1
    features: tuple[str, ...] = ()
    qos: str = ""


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Limits of a QOS or an association, None where there is none: MaxWall in seconds, and of nodes MaxTRESPerJob,
    MaxTRESPerUser (of a QOS only) and GrpTRES."""

    max_wall: float | None = None
    max_nodes: int | None = None
    per_user: int | None = None
    group: int | None = None

    def over(self, account: NodeLimits) -> NodeLimits:
        """A user's limits with those per job that they do not set for themselves passed on by their account."""
        return NodeLimits(
            max_wall=account.max_wall if self.max_wall is None else self.max_wall,
            max_nodes=account.max_nodes if self.max_nodes is None else self.max_nodes,
            group=self.group,
        )


class Scheduler(StrEnum):
    """How jobs are planned: strictly in order, with the head protected, with promises kept, or all anew each time."""

    FCFS = "fcfs"
    EASY = "easy"
    CONSERVATIVE = "conservative"
    REPLAN = "replan"


class PriorityType(StrEnum):
    """Who goes first: by what jobs are (see `priority`), or in order of submission, whatever they wait for.

    Under basic a hold costs a job its place: it queues anew when it is released.
    """

    MULTIFACTOR = "priority/multifactor"
    BASIC = "priority/basic"


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of priority/multifactor beside age; see `priority` for the formulas. All 0: age and QOS alone.

    `qos` None adds the QOS's number itself; a weight multiplies its share of the largest. `calc_period` is how often
    fair-share is worked out anew, `half_life` how fast use is forgotten (seconds), `shares` are those of accounts, 1
    where none is named.
    """

    size: float = 0.0
    favor_small: bool = False
    partition: float = 0.0
    qos: float | None = None
    fairshare: float = 0.0
    half_life: float = 7 * 86400.0
    calc_period: float = 300.0
    shares: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Failures:
    """Nodes that die and come back, each on its own: `mtbf` is a node's mean time from repair to failure, `repair` the
    mean of its (exponential) time in repair, seconds. `shape` is that of the Weibull distribution of the times between
    failures: 1 exponential, below 1 as real machines have it. The same `seed` gives the same failures."""

    mtbf: float
    repair: float = 3600.0
    shape: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.mtbf > 0 and self.repair > 0 and self.shape > 0):
            raise ValueError(f"times and shape of failures are above 0, not {self}")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What slurm.conf would say. The first partition is the default one; nodes are n1, n2, … unless named.

    Under multifactor a job's priority is 1 + `weight_age` * min(age / `max_age`, 1) + the priority of its QOS + what
    `weights` add. With `accrue_always` age counts from submission, else from when the job became eligible for the first
    time (Slurm's AccrueTime): a dependency, a hold or a begin time that comes later does not take it away, unless
    limits are enforced. `select_type` is only what the site says: a job has whole nodes either way.
    `scheduler` plans with time limits, at most `depth` jobs of the queue in a pass (bf_max_job_test); `spare_free` lets
    its reservations prefer nodes that are busy now (see `planning.planner`).
    `licenses` are how many there are of each. `operators` have AdminLevel=Operator, as root has. `max_array` is
    MaxArraySize, `requeue_delay` how long a requeued job has to wait at least (two minutes in Slurm), `batch_delay` how
    long the scheduler leaves a new batch job alone (batch_sched_delay, three seconds in Slurm). `cycle` is how often it
    looks at what has changed (bf_interval), except that it looks at once when an allocation is asked for; 0: always at
    once. `siblings` are the other clusters of the site, whose own siblings do not count. `merge_latency` and
    `shrink_latency` are how long such a call takes, `query_latency` a look at nodes, jobs or steps.
    `enforced` is AccountingStorageEnforce: with "limits" the scheduler holds jobs to `qos_limits`, `account_limits` and
    `user_limits` (of a user's association with any account); with "associations" nobody may use an account that does
    not name them among its `members` (without any members everybody may use every account).
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
    priority: PriorityType = PriorityType.MULTIFACTOR
    accrue_always: bool = False
    select_type: str = "select/linear"
    weight_age: float = 1000.0
    max_age: float = 7 * 86400.0
    qos: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"normal": 0}))
    weights: Weights = Weights()
    scheduler: Scheduler = Scheduler.EASY
    depth: int = 10_000
    spare_free: bool = False
    failures: Failures | None = None
    licenses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    max_array: int = 1001
    requeue_delay: float = 120.0
    batch_delay: float = 0.0
    cycle: float = 0.0
    operators: tuple[str, ...] = ()
    min_job_age: float = 300.0
    merge_latency: float = 0.0
    shrink_latency: float = 0.0
    query_latency: float = 0.0
    siblings: tuple[ClusterConfig, ...] = ()
    enforced: frozenset[str] = frozenset()
    qos_limits: Mapping[str, NodeLimits] = field(default_factory=lambda: MappingProxyType({}))
    account_limits: Mapping[str, NodeLimits] = field(default_factory=lambda: MappingProxyType({}))
    user_limits: Mapping[str, NodeLimits] = field(default_factory=lambda: MappingProxyType({}))
    members: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

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
            select_type=self.select_type,
            scheduler_parameters=frozenset(parameters),
            prolog_flags=frozenset({"ALLOC", "CONTAIN"} if self.contain else set()),
            priority_type=self.priority.value,
            priority_flags=frozenset({"ACCRUE_ALWAYS"} if self.accrue_always else set()),
            min_job_age=self.min_job_age,
            priority_weight_age=None if self.priority is PriorityType.BASIC else int(self.weight_age),
            max_array=self.max_array,
            accounting=True,
            enforced=self.enforced,
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


@dataclass(frozen=True, slots=True)
class Signalled:
    """The job's batch script is sent this signal."""

    job: int
    number: int


Effect = Started | Ended | Resized | Requeued | Signalled
