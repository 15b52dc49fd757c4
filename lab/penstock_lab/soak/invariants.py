"""What must hold, whatever happens: pure functions from what was seen to what is wrong with it (empty: nothing).

What was seen comes in the same words from the simulated and from the real Slurm. Times are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from statistics import linear_regression

__all__ = [
    "Act",
    "Asked",
    "Event",
    "Forgery",
    "Held",
    "Kind",
    "Memory",
    "Seen",
    "accounting_agrees",
    "authorised",
    "bystanders_untouched",
    "explained",
    "journal_closed",
    "memory_flat",
    "nodes_free",
    "nothing_orphaned",
    "percentile",
    "refused",
    "stages_in_order",
    "stages_once",
]

_COMPLETED = "COMPLETED"
_ALIVE = frozenset({"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "RESIZING", "REQUEUED"})
# Ends that no agent can help: its node died, or the stage ran into its own limit.
_SLURMS_FAULT = frozenset({"NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "PREEMPTED"})


class Kind(StrEnum):
    """What a job of Slurm is to the agent."""

    STAGE = "stage"  # the agent submitted it
    GUIDED = "guided"  # its user did, and asked the agent to release it in time
    MALLEABLE = "malleable"  # its program asks the agent about its size
    HOLDER = "holder"  # a resizer or a companion, which the agent asked for
    SLOT = "slot"  # it idles in a slot that a user holds
    BAG = "bag"  # tasks of a bag
    RESERVED = "reserved"  # of a workflow in reserved slots
    BYSTANDER = "bystander"  # nobody asked the agent for anything


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as accounting has it. `run` and `unit` say of which workflow and which of its jobs it is, `of` which job a
    holder holds nodes for. `wanted` is how many nodes were asked for, `nodes` how many it had at its end."""

    job: int
    user: str
    kind: Kind
    state: str
    start: float | None = None
    end: float | None = None
    run: str = ""
    unit: str = ""
    of: int | None = None
    wanted: int = 1
    nodes: int = 1

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state not in _ALIVE


@dataclass(frozen=True, slots=True)
class Event:
    """What a stage's own script wrote down: it began, or it came to its end, in this job."""

    run: str
    stage: str
    job: int
    what: str  # "begin" or "end"
    at: float


@dataclass(frozen=True, slots=True)
class Asked:
    """A workflow that was handed over, and what became of it: `after` are the parents of each stage, `phase` the
    agent's last word. `fails` names the stage that fails by itself; empty: none does. `given_up`: by its user, or its
    slots were lost: it need not have completed."""

    run: str
    user: str
    after: Mapping[str, Collection[str]]
    phase: str
    why: str = ""
    fails: str = ""
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """A change that the agent asked Slurm for."""

    verb: str
    job: int
    at: float


@dataclass(frozen=True, slots=True)
class Forgery:
    """A request that must be refused, and what was answered to it."""

    what: str
    accepted: bool
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A node that is not free: by which job, and whether it is out of order."""

    node: str
    job: int | None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The agent's memory in bytes at an instant."""

    at: float
    size: float
    life: int = 0


def stages_once(asked: Iterable[Asked], events: Iterable[Event], jobs: Iterable[Seen]) -> list[str]:
    """No stage is lost, and none is done twice.

    Every workflow has come to its end. One that nothing was wrong with has completed, with each stage done exactly
    once. No stage is ever done twice, nor at work twice at the same time.
    """
    ends: Counter[tuple[str, str]] = Counter()
    jobs_at_work: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    by_job: dict[int, Seen] = {}
    excused = set()
    for j in jobs:  # a job that was put back into the queue has several rows
        by_job[j.job] = j
        if j.state in _SLURMS_FAULT:
            excused.add(j.run)
    wrong: list[str] = []
    for e in events:
        job = by_job.get(e.job)
        if e.what == "begin":
            jobs_at_work[e.run, e.stage][e.job] = e.at
        elif job is None or job.state == _COMPLETED:
            # A job of several stages that died among them is done again from its beginning.
            ends[e.run, e.stage] += 1
    for (run, stage), count in ends.items():
        if count > 1:
            wrong.append(f"{run}/{stage} was done {count} times")
    for (run, stage), begun in jobs_at_work.items():
        spans = sorted((at, _end(by_job.get(number)), number) for number, at in begun.items())
        for (_, end, first), (begin, _, second) in pairwise(spans):
            if begin < end:
                wrong.append(f"{run}/{stage} was at work in jobs {first} and {second} at the same time")
    for one in asked:
        wrong += _fate(one, ends, excused)
    return wrong


def _end(job: Seen | None) -> float:
    return math.inf if job is None or job.end is None else job.end


def _fate(one: Asked, ends: Mapping[tuple[str, str], int], excused: Collection[str]) -> list[str]:
    missing = [stage for stage in one.after if not ends.get((one.run, stage))]
    if one.phase not in ("completed", "failed", "cancelled"):
        return [f"{one.run} has not come to its end: it is {one.phase or 'not known to the agent'}"]
    if one.phase == "completed" and missing:
        return [f"{one.run} has completed, but {', '.join(missing)} was never done"]
    if one.fails:
        return [] if one.phase in ("failed", "cancelled") else [f"{one.run} is {one.phase}, though {one.fails} fails"]
    if one.phase != "completed" and one.run not in excused and not one.given_up:
        return [f"{one.run} is {one.phase} ({one.why}), though nothing was wrong with it"]
    return []


def stages_in_order(asked: Iterable[Asked], events: Iterable[Event], slack: float = 0.0) -> list[str]:
    """No stage begins before all those have been done that it comes after; `slack`: how exact the times are (s)."""
    begins: dict[tuple[str, str], float] = {}
    ends: dict[tuple[str, str], float] = {}
    for e in events:
        times = begins if e.what == "begin" else ends
        times[e.run, e.stage] = min(e.at, times.get((e.run, e.stage), math.inf))
    wrong = []
    for one in asked:
        for stage, parents in one.after.items():
            begin = begins.get((one.run, stage), math.inf)
            for parent in parents:
                end = ends.get((one.run, parent), math.inf)
                if begin + slack < end:
                    told = "never" if end == math.inf else f"{end - begin:.0f} s later"
                    wrong.append(f"{one.run}/{stage} began before {parent}, which it comes after, was done ({told})")
    return wrong


def accounting_agrees(asked: Iterable[Asked], events: Iterable[Event], jobs: Iterable[Seen]) -> list[str]:
    """What the scripts wrote is what accounting knows: each line's job is there, of that workflow and its user; and the
    agent has submitted nothing that nobody asked for."""
    users = {one.run: one.user for one in asked}
    by_job = {j.job: j for j in jobs}
    wrong = []
    for e in events:
        job = by_job.get(e.job)
        if job is None:
            wrong.append(f"{e.run}/{e.stage} ran in job {e.job}, which accounting does not know")
        elif job.run != e.run:
            wrong.append(f"{e.run}/{e.stage} ran in job {e.job}, which accounting has as one of {job.run or 'no run'}")
        elif job.user != users.get(e.run, job.user):
            wrong.append(f"{e.run}/{e.stage} of {users[e.run]} ran in job {e.job} of {job.user}")
    for job in by_job.values():
        if job.kind in (Kind.STAGE, Kind.RESERVED) and job.run not in users:
            wrong.append(f"job {job.job} is of {job.run}, which nobody asked for")
    return list(dict.fromkeys(wrong))


def nodes_free(held: Iterable[Held], alive: Iterable[Seen]) -> list[str]:
    """After all has ended: no job is left, and every node is idle."""
    wrong = [f"job {j.job} ({j.kind} of {j.user}) is still {j.state}" for j in alive if not j.ended]
    for one in held:
        whose = "nobody" if one.job is None else f"job {one.job}"
        wrong.append(f"node {one.node} is not free: {whose}{', ' if one.state else ''}{one.state}")
    return wrong


def nothing_orphaned(jobs: Iterable[Seen], now: float, patience: float) -> list[str]:
    """No resizer or companion outlives the job that it holds nodes for by more than `patience` seconds."""
    by_job = {j.job: j for j in jobs}
    wrong = []
    for j in by_job.values():
        if j.kind is not Kind.HOLDER or j.ended or j.of is None:
            continue
        parent = by_job.get(j.of)
        if parent is not None and parent.ended and parent.end is not None and now - parent.end > patience:
            wrong.append(f"job {j.job} holds nodes for job {j.of}, which ended {now - parent.end:.0f} s ago")
    return wrong


_MAY: Mapping[str, frozenset[Kind]] = {
    "submit": frozenset({Kind.STAGE, Kind.SLOT, Kind.BAG, Kind.RESERVED}),
    "allocate": frozenset({Kind.HOLDER}),
    "cancel": frozenset({Kind.STAGE, Kind.HOLDER, Kind.SLOT, Kind.BAG, Kind.RESERVED}),
    "hold": frozenset({Kind.BAG}),
    "merge": frozenset({Kind.HOLDER}),
    "shrink": frozenset({Kind.MALLEABLE}),
    "release": frozenset({Kind.STAGE, Kind.GUIDED, Kind.BAG}),
    "requeue": frozenset({Kind.GUIDED}),
    "update": frozenset({Kind.STAGE, Kind.GUIDED, Kind.MALLEABLE, Kind.HOLDER, Kind.RESERVED}),
}


def authorised(acts: Iterable[Act], jobs: Iterable[Seen], user: str) -> list[str]:
    """Every act was on a job of the user whom the agent serves, and one that asked for this kind of act."""
    by_job = {j.job: j for j in jobs}
    wrong = []
    for act in acts:
        job = by_job.get(act.job)
        if job is None:
            continue  # Slurm never had it: the request was refused
        if job.user != user:
            wrong.append(f"{act.verb} of job {act.job}, which is {job.user}'s and not {user}'s")
        elif job.kind not in _MAY.get(act.verb, frozenset()):
            wrong.append(f"{act.verb} of job {act.job}, a {job.kind}")
    return wrong


def bystanders_untouched(jobs: Iterable[Seen]) -> list[str]:
    """Jobs that asked for nothing have run to their end on as many nodes as they asked for."""
    wrong = []
    for j in jobs:
        if j.kind is not Kind.BYSTANDER or not j.ended or j.state in _SLURMS_FAULT:
            continue
        if j.state != _COMPLETED:
            wrong.append(f"job {j.job} of {j.user}, which asked for nothing, ended {j.state}")
        elif j.nodes != j.wanted:
            wrong.append(f"job {j.job} of {j.user}, which asked for nothing, ended on {j.nodes} of {j.wanted} nodes")
    return wrong


def refused(forgeries: Iterable[Forgery]) -> list[str]:
    """Nobody gets what is not theirs."""
    return [f"{f.what} was accepted: {f.answer[:200]}" for f in forgeries if f.accepted]


def journal_closed(intents: Iterable[tuple[str, str, float]]) -> list[str]:
    """No intent (verb, subject, opened) is open when nothing is under way."""
    return [f"the journal has an open intent: {verb} {subject}, of {at:.0f}" for verb, subject, at in intents]


def explained(decisions: Mapping[str, int | None]) -> list[str]:
    """`penstock explain` has an answer for every job that the agent looked after: by subject, how many decisions it
    tells of (None: an error)."""
    return [f"explain {subject} says nothing" for subject, count in decisions.items() if not count]


@dataclass(frozen=True, slots=True)
class _Life:
    times: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)


def memory_flat(samples: Sequence[Memory], per_day: float, shortest: float, most: float = math.inf) -> list[str]:
    """The agent's memory does not grow: of every life of at least `shortest` seconds and six samples the line through
    the samples of its second half rises by at most `per_day` bytes a day; and none is above `most` bytes."""
    lives: defaultdict[int, _Life] = defaultdict(_Life)
    wrong = []
    for s in samples:
        lives[s.life].times.append(s.at)
        lives[s.life].sizes.append(s.size)
        if s.size > most:
            wrong.append(f"the agent has {s.size / 1e6:.1f} MB, more than {most / 1e6:.0f} MB")
    for number, life in lives.items():
        if len(life.times) < 6 or life.times[-1] - life.times[0] < shortest:
            continue
        half = len(life.times) // 2
        slope = linear_regression(life.times[half:], life.sizes[half:]).slope * 86400
        if slope > per_day:
            wrong.append(f"memory of life {number} grows by {slope / 1e6:.2f} MB a day, more than {per_day / 1e6:g} MB")
    return wrong[:5]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that `share` of them do not exceed; nan without any."""
    if not values:
        return math.nan
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
