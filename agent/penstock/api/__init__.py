"""The words that every part of Penstock speaks, and the Protocols of its policies. Standard library only.

Times are seconds since the epoch (float), durations are seconds, sizes of jobs are whole nodes unless a name says
`processes`. All values are immutable; a decision carries its reasons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeGuard, runtime_checkable

from penstock.api.owners import HolderKind, Limit, LimitHolder, Owner

__all__ = [
    "ASLEEP",
    "FAR",
    "AccountingRecord",
    "Allocation",
    "Decision",
    "Geometry",
    "HolderKind",
    "Job",
    "JobSpec",
    "JobState",
    "JobTexts",
    "JointPolicy",
    "License",
    "Limit",
    "LimitHolder",
    "Node",
    "NodeNeeds",
    "Offer",
    "Origin",
    "Owner",
    "OwnerLimits",
    "Partition",
    "RanksQueue",
    "Reason",
    "Reservation",
    "ReservationSpec",
    "ResizePolicy",
    "ResizeVerdict",
    "SiteConfig",
    "Snapshot",
    "StartEstimate",
    "Step",
    "Verb",
    "is_joint",
    "plural",
    "release_name",
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


def plural(count: int, noun: str) -> str:
    """So many of them: "1 node", "2 nodes", "0 nodes"; `noun` is one whose plural ends in s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


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

        Slurm starts jobs on all of them. On those that are `asleep` nothing runs before they are awake.
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


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a stable `code` for machines and tests, a sentence for people."""

    code: str
    text: str


class Verb(StrEnum):
    """What the agent can decide to do."""

    SUBMIT = "submit"
    ADOPT = "adopt"
    RELEASE = "release"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    CHANGE = "change"
    RESERVE = "reserve"
    UNRESERVE = "unreserve"
    EXPAND = "expand"
    SHRINK = "shrink"
    NOTHING = "nothing"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing the agent decided about one subject ("job 12", "workflow 3/align"), with everything that led to it."""

    verb: Verb
    subject: str
    reasons: tuple[Reason, ...]
    details: Mapping[str, str | int | float | None] = field(default_factory=lambda: MappingProxyType({}))

    def because(self, code: str, text: str) -> Decision:
        """The same decision with one more reason."""
        return replace(self, reasons=(*self.reasons, Reason(code, text)))

    def rewritten(self, verb: Verb, code: str, text: str) -> Decision:
        """Another verb in its place (a cap, a budget, a dry run), keeping the history of reasons."""
        return replace(self, verb=verb, reasons=(*self.reasons, Reason(code, text)))


@dataclass(frozen=True, slots=True)
class Offer:
    """What a malleable application says of itself at a check (DMR paper, section 5.1); sizes are processes.

    `factor` f >= 2 makes current * f**k and current / f**k reachable within [minimum, maximum]; 1 makes any size so.
    `method`, `companion`, `requests_nodes`, `leaves_within`, `steps_left` and `step_seconds` are `dmr.wire.Check`'s.

    Not from the application: `target` is the size that a resize under way gives it, or its own size while it may not be
    resized again yet, None when a policy may choose; `coming` is how many idle nodes that resize still waits for.
    `base` is the size that it has without the nodes that it was given since it began, which it can always go back to.
    `program` is the same word for all runs of one program, and begins with `?` where only the job's name tells ("": not
    known yet).
    """

    job: int
    size: int
    minimum: int
    maximum: int
    factor: int = 1
    preferred: int | None = None
    per_node: int = 1
    nodes: tuple[str, ...] = ()
    method: str = "replace"
    companion: bool = False
    steps_left: int | None = None
    step_seconds: float | None = None
    target: int | None = None
    coming: int = 0
    requests_nodes: bool = False
    leaves_within: float | None = None
    base: int | None = None
    program: str = ""

    @property
    def shortest_loan(self) -> float | None:
        """Seconds, whole minutes, for which nodes must be free to be lent to it: five times what it takes to leave
        them. None: it is to have them as long as its job may run."""
        return None if self.leaves_within is None else 60.0 * math.ceil(5.0 * max(self.leaves_within, 1.0) / 60.0)

    def reachable(self) -> tuple[int, ...]:
        """The sizes the job can be resized to, ascending, without its own; only those that fill whole nodes."""
        if self.factor == 1:
            first = -(-max(self.minimum, 1) // self.per_node) * self.per_node
            sizes = set(range(first, self.maximum + 1, self.per_node))
        else:
            sizes = set()
            up = self.size * self.factor
            while up <= self.maximum:
                sizes.add(up)
                up *= self.factor
            down = self.size
            while down % self.factor == 0 and down // self.factor >= 1:
                down //= self.factor
                sizes.add(down)
        return tuple(
            sorted(
                s
                for s in sizes
                if s != self.size and self.minimum <= s <= self.maximum and s >= 1 and s % self.per_node == 0
            )
        )


@dataclass(frozen=True, slots=True)
class ResizeVerdict:
    """A policy's answer for one job: the size in processes it should have, and why. Its current size means no action.

    `beneficiary` is the pending job that a shrink is meant for.
    """

    size: int
    reasons: tuple[Reason, ...]
    beneficiary: int | None = None


class ResizePolicy(Protocol):
    """Decides whether a running malleable job should grow or shrink. One policy, one file.

    Found by the entry point `penstock.policies`.

    Called once per pass and job with a usable snapshot only; must be fast, without I/O and clock, and decide by what
    it is shown (it may remember what it was shown before). The core owns everything else: it checks that the size is
    reachable, that the nodes are idle, cool-downs and deadlines, and it records the reasons whatever they are. A
    complete policy that never does anything:

        class Noop:
            '''Leaves every job as it is.'''

            name = "noop"

            def decide(self, offer, job, snapshot):
                return ResizeVerdict(offer.size, (Reason("noop", "this policy never resizes"),))

    A policy that weighs jobs against each other is a `JointPolicy` instead.
    """

    name: str

    def decide(self, offer: Offer, job: Job, snapshot: Snapshot) -> ResizeVerdict:
        """The size that `job`, which made `offer`, should have in the situation of `snapshot`."""
        ...


class JointPolicy(Protocol):
    """Decides for all malleable jobs at once: the other form of a policy, found by the same entry point.

    Called once per pass with the offers of all running malleable jobs. Those with a `target` cannot be decided about:
    they are there to be counted. A job without a verdict stays as it is. Several jobs may shrink for one beneficiary.
    """

    name: str

    def decide_all(self, offers: Sequence[Offer], snapshot: Snapshot) -> Mapping[int, ResizeVerdict]:
        """The verdicts by job number."""
        ...


@runtime_checkable
class RanksQueue(Protocol):
    """A policy that also says in which order an owner's own jobs should be served.

    An administrator chooses it: the queue's order is otherwise nobody's to change. The core puts a job back behind
    others of the same owner that have a lower rank, by a nice value, as the owner could; each once at most, and behind
    nobody else's and none without a rank. Nobody's job is put ahead of its place.
    """

    def ranks(self, snapshot: Snapshot) -> Mapping[int, int]:
        """By number of pending jobs; the lowest first, and of the same rank in the queue's order. Jobs that are left
        out stay where they are, and nobody is put back for them."""
        ...


def is_joint(policy: ResizePolicy | JointPolicy) -> TypeGuard[JointPolicy]:
    """Which form a policy has."""
    return hasattr(policy, "decide_all")
