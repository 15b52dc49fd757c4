"""What a cluster is, and one picture of it. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from penstock.api.jobs import Job
from penstock.api.owners import LimitHolder, Owner

__all__ = [
    "ASLEEP",
    "License",
    "Node",
    "OwnerLimits",
    "Partition",
    "Reservation",
    "ReservationSpec",
    "SiteConfig",
    "Snapshot",
    "release_name",
]

ASLEEP: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"})
"""Words in the states of nodes that power saving has suspended, or that are on their way there or back."""


@dataclass(frozen=True, slots=True)
class Node:
    """A compute node. `usable` is false when it is down, drained, reserved for maintenance or not responding; one that
    power saving has suspended (`asleep`) is usable, as Slurm wakes it for a job.

    `memory` in MB, None where the site does not say; `gres` as Slurm writes it ("gpu:a100:4(S:0-1)"); `arch` as the
    node's kernel says it ("x86_64"). These and `features` are empty where a backend does not ask. `idle_since` is the
    instant at which the last job left it (Slurm's LastBusyTime, whole seconds), None where that is not known.
    """

    name: str
    state: str
    cpus: int
    usable: bool
    partitions: tuple[str, ...] = ()
    memory: float | None = None
    features: tuple[str, ...] = ()
    gres: str = ""
    arch: str = ""
    idle_since: float | None = None

    @property
    def completing(self) -> bool:
        """Whether a job's epilogue or its last processes still run on it; the job may be off the queue by then."""
        return "COMPLETING" in self.state

    @property
    def asleep(self) -> bool:
        """Whether it is suspended, or on its way there or back, so that nothing can run on it at once."""
        return "POWER" in self.state and not ASLEEP.isdisjoint(self.state.split("+"))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; times in seconds, None unlimited; `max_nodes` None when it sets no limit of its own.

    `accounts` and `qos` are those that may use it, empty: all; a name that begins with `-` is shut out. `exclusive`:
    jobs get whole nodes. `billing` are its TRESBillingWeights by name ("CPU", "Mem" per GB, "GRES/gpu"). `own_qos` is
    the QOS whose limits hold for all of its jobs (its option QOS); empty: none, or a backend does not say.
    """

    name: str
    nodes: tuple[str, ...]
    up: bool
    default: bool
    max_time: float | None
    default_time: float | None
    max_nodes: int | None
    min_nodes: int = 0
    max_cpus_per_node: int | None = None
    accounts: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    exclusive: bool = False
    billing: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    own_qos: str = ""

    @property
    def most_nodes(self) -> int:
        """That it gives one job."""
        return len(self.nodes) if self.max_nodes is None else min(len(self.nodes), self.max_nodes)


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """What Slurm lets an owner have, and what of it is in use, at one moment.

    `partition` is the job's, None where there is no single one of that name. `qos` are the QOS that limit the job, the
    one that goes first in front: of each limit the first of them that sets it counts, and those of `associations` where
    none does. `associations` are the user's own with the account and those of the accounts above it, up to the root; of
    the accounts only group limits hold, for all others have been passed on to the user's. `associated`: the user has an
    association with the account; None: not known. `unknown` says why not all of it is known; empty: it is.
    """

    owner: Owner
    partition: Partition | None
    qos: tuple[LimitHolder, ...] = ()
    associations: tuple[LimitHolder, ...] = ()
    associated: bool | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are kept for somebody from `start` to `end` (infinity for never); jobs of others stay off them.

    `flags` are as Slurm writes them, which is not always how they were given (`PURGE_COMP=00:10:00`). A name in `users`
    or `accounts` that begins with `-` is shut out, and everybody else is let in.
    """

    name: str
    start: float
    end: float
    nodes: tuple[str, ...]
    users: frozenset[str]
    accounts: frozenset[str]
    flags: frozenset[str]
    active: bool
    partition: str = ""


@dataclass(frozen=True, slots=True)
class ReservationSpec:
    """A reservation to create. Slurm chooses and pins the nodes at once, unless `nodelist` names them (then it has as
    many as `nodes` says); it keeps whole minutes, rounded up.

    `flags` are Slurm's (`FLEX`, `PURGE_COMP=10`, which is in minutes…). Who may use it: `users` or `accounts`, at
    least one of either. `start` is kept to the second and may lie some minutes back; an infinite `duration` is a year.
    """

    name: str
    start: float
    duration: float
    nodes: int
    partition: str | None = None
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    nodelist: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class License:
    """A licence that jobs can ask for: how many there are, are in use, and are kept by reservations."""

    name: str
    total: int
    used: int
    reserved: int = 0


def release_name(version: Iterable[int]) -> str:
    """A release as Slurm writes it, such as 22.05.8."""
    return ".".join(f"{part:02d}" if i == 1 else str(part) for i, part in enumerate(version))


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """The settings of a cluster that change what Penstock may do.

    `priority_weight_age` is PriorityWeightAge, None where it is not known. `max_jobs_accrue` is of how many pending
    jobs of a user age counts (the least MaxJobsAccruePU of any QOS); None: of all, as far as is known. `operator`: who
    asks may raise priorities and time limits, and change jobs of others. `max_array` is MaxArraySize: the task numbers
    of an array are below it.

    `accounting`: slurmdbd keeps the jobs; None where a backend does not say. `enforced` is AccountingStorageEnforce,
    `private` PrivateData, `controller_parameters` SlurmctldParameters, all in small letters. `scron`: users have
    crontabs in Slurm (scrontab). `mail_domain` is MailDomain: a user's address is USER@ that; empty: none is set.
    `next_job` is the number that the next job gets (NEXT_JOB_ID) when this was read; None: a backend does not say.
    `wakes_in` is ResumeTimeout: so many seconds a suspended node takes at most until jobs run on it.
    """

    version: tuple[int, ...]
    cluster: str
    select_type: str
    scheduler_parameters: frozenset[str]
    prolog_flags: frozenset[str]
    priority_type: str
    priority_flags: frozenset[str]
    min_job_age: float
    priority_weight_age: int | None = None
    max_jobs_accrue: int | None = None
    operator: bool = False
    max_array: int = 1001
    accounting: bool | None = None
    enforced: frozenset[str] = frozenset()
    private: frozenset[str] = frozenset()
    controller_parameters: frozenset[str] = frozenset()
    scron: bool = False
    mail_domain: str = ""
    next_job: int | None = None
    wakes_in: float = 60.0

    @property
    def release(self) -> str:
        """Slurm's release as Slurm writes it, such as 22.05.8."""
        return release_name(self.version)

    @property
    def permits_expansion(self) -> bool:
        """Whether the merge can work: allowed, and no `extern` step in every job."""
        return "permit_job_expansion" in self.scheduler_parameters and not (self.prolog_flags & {"CONTAIN", "X11"})

    @property
    def accrues_always(self) -> bool:
        """Whether a job with an unfulfilled dependency ages."""
        return "ACCRUE_ALWAYS" in self.priority_flags


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at Slurm. `problems` lists what is stale or failed; acting needs an empty list (`usable`).

    Partitions, reservations and licences may be some minutes older than jobs and nodes. A node within an active
    reservation is not usable for jobs outside of it. `wakes_in` is how many seconds a node that is asleep takes at most
    until jobs run on it (Slurm's ResumeTimeout).
    """

    taken_at: float
    jobs: Mapping[int, Job]
    nodes: Mapping[str, Node]
    partitions: Mapping[str, Partition]
    problems: tuple[str, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    licenses: tuple[License, ...] = ()
    wakes_in: float = 60.0
    # What was worked out before: policies ask the same of one picture for every job.
    _idle: dict[str | None, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _pending: dict[str | None, tuple[Job, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def usable(self) -> bool:
        """Whether the picture is complete and fresh enough to act on."""
        return not self.problems

    def busy_nodes(self) -> frozenset[str]:
        """Names of the nodes that any job holds."""
        return frozenset(n for job in self.jobs.values() if job.state.holds_nodes for n in job.nodes)

    def idle_nodes(self, partition: str | None = None) -> tuple[str, ...]:
        """Usable nodes that no job holds or has yet to clear, in the partition if one is named, sorted by name.

        Slurm starts jobs on all; on those `asleep` nothing runs before they wake. KeyError: no such partition.
        """
        if partition not in self._idle:
            busy = self.busy_nodes()
            names: Sequence[str] | Mapping[str, Node]
            names = self.nodes if partition is None else self.partitions[partition].nodes
            known = ((n, self.nodes[n]) for n in names if n in self.nodes and n not in busy)
            self._idle[partition] = tuple(sorted(n for n, node in known if node.usable and not node.completing))
        return self._idle[partition]

    def pending(self, partition: str | None = None) -> tuple[Job, ...]:
        """Pending jobs that may start (eligible, not held), highest priority first, then oldest.

        With a partition: those that could use any of its nodes, also by way of another partition.
        """
        if partition in self._pending:
            return self._pending[partition]
        wanted = None if partition is None else set(self.partitions[partition].nodes)

        def fits(job: Job) -> bool:
            names = job.partition.split(",")
            return wanted is None or any(
                name == partition or (name in self.partitions and wanted & set(self.partitions[name].nodes))
                for name in names
            )

        jobs = (j for j in self.jobs.values() if j.pending and j.eligible is not None and j.priority > 0 and fits(j))
        self._pending[partition] = tuple(sorted(jobs, key=lambda j: (-j.priority, j.submit, j.id)))
        return self._pending[partition]
