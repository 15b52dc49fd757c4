"""The near future of a cluster on pinned sets of nodes: who runs where, and when everybody in the queue will start.

Times and durations are numbers of any one unit, sets of nodes are integers as in `future.bits`. Two policies (Singh
2008, chapter 3): `conservative` gives every job, in order of priority, the earliest hole that is left; `aggressive`
(EASY) holds nodes for the first waiting job only and lets every other one start that does not delay it.

A plan on counts of processors would not do: its Table 3 cannot come from one (jobs keep the nodes they began
on), and Slurm's reservations pin their nodes when they are made.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from penstock.future.bits import BitProfile, lowest
from penstock.future.planner import Ask, Backfill

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Claim", "ClusterQueue", "PendingJob", "Policy", "QueueSchedule", "free_set", "make_plan"]

Policy = Literal["conservative", "aggressive"]
_LENGTHS: Final = 64  # classes of durations that share a bound
_CHECKPOINTS: Final = 24


@dataclass(frozen=True, slots=True)
class Claim:
    """A running job, a reservation or a node that is down: the set `nodes` from `start` up to, not including, `end`.

    `end` may be infinite.
    """

    id: str
    nodes: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A pending job: `procs` nodes out of the set `within`, those in `need` among them, for `duration`, not before
    `after`. `weight` is what a unit of its delay costs (the paper: its processors)."""

    id: str
    procs: int
    duration: float
    within: int
    weight: float
    after: float = -math.inf
    need: int = 0


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A cluster at `now`: `size` nodes, what is taken of them, and the pending jobs, the first to be served first.

    Of nodes that will do a job takes those in `first` first.
    """

    size: int
    now: float
    claims: tuple[Claim, ...] = ()
    waiting: tuple[PendingJob, ...] = ()
    policy: Policy = "conservative"
    first: int = 0

    @property
    def everything(self) -> int:
        """The set of all nodes."""
        return (1 << self.size) - 1

    def taken(self) -> BitProfile:
        """What is free if nobody waited."""
        ends: dict[float, int] = {}
        later = []
        for claim in self.claims:
            if claim.start <= self.now:
                ends[claim.end] = ends.get(claim.end, 0) | claim.nodes
            else:
                later.append(claim)
        profile = BitProfile.of_ends(self.everything, self.now, ends, self.first)
        for claim in later:
            profile.block(claim.nodes, claim.start, claim.end)
        return profile


class _Bounds:
    """No job of this width and length can start before…: learned from the jobs that were placed already.

    Placing jobs only ever takes nodes away. So where a job found its first hole, no later job that is as wide and as
    long or more can find an earlier one. One table per set of nodes that jobs are restricted to.
    """

    __slots__ = ("_lengths", "_tables", "_widths")

    def __init__(self, widths: Sequence[int], lengths: Sequence[float]) -> None:
        self._widths, self._lengths = widths, lengths
        self._tables: dict[int, np.ndarray[tuple[int, int], np.dtype[np.float64]]] = {}

    @classmethod
    def of(cls, waiting: Sequence[PendingJob]) -> _Bounds:
        lengths = sorted({job.duration for job in waiting})
        step = max(1, len(lengths) // _LENGTHS)
        return cls(sorted({job.procs for job in waiting}), sorted({*lengths[::step], *lengths[-1:]}))

    def copy(self) -> _Bounds:
        twin = _Bounds(self._widths, self._lengths)
        twin._tables = {within: table.copy() for within, table in self._tables.items()}
        return twin

    def get(self, job: PendingJob) -> float:
        table = self._tables.get(job.within)
        if table is None:
            return -math.inf
        length = bisect_right(self._lengths, job.duration) - 1
        return float(table[bisect_left(self._widths, job.procs), length])

    def put(self, job: PendingJob, start: float) -> None:
        import numpy as np  # slow to load, and who only reads what was bought plans nothing

        table = self._tables.get(job.within)
        if table is None:
            table = np.full((len(self._widths), len(self._lengths)), -np.inf)
            self._tables[job.within] = table
        part = table[bisect_left(self._widths, job.procs) :, bisect_left(self._lengths, job.duration) :]
        np.maximum(part, start, out=part)


class _State(NamedTuple):
    """The plan of the first `jobs` jobs."""

    jobs: int
    profile: BitProfile
    bounds: _Bounds

    def copy(self) -> _State:
        return _State(self.jobs, self.profile.copy(), self.bounds.copy())


@dataclass(frozen=True, slots=True)
class QueueSchedule:
    """When every waiting job starts (`starts`, infinite for never) and on which set of nodes, in the queue's order.

    `profile` is what is free beside all of them, `taken` what would be free if none of them waited.
    """

    queue: ClusterQueue
    starts: tuple[float, ...]
    nodes: tuple[int, ...]
    profile: BitProfile
    taken: BitProfile
    _states: tuple[_State, ...] = field(default=(), repr=False)

    @property
    def last_finish(self) -> float:
        """When the last of all that ends has ended; at least now."""
        return max(self.instants())

    def instants(self) -> list[float]:
        """Now, and every later time at which anything starts or ends, ascending."""
        queue = self.queue
        times = {queue.now}
        for claim in queue.claims:
            times.update((claim.start, claim.end))
        for job, start in zip(queue.waiting, self.starts, strict=True):
            times.update((start, start + job.duration))
        return sorted(t for t in times if queue.now <= t < math.inf)

    def starts_beside(self, nodes: int, start: float, end: float) -> tuple[float, ...]:
        """When every job starts if these nodes are taken from `start` to `end` as well. Exact: the same as planning
        everything anew, but of the conservative plan only what can change is planned again."""
        queue = self.queue
        if queue.policy == "aggressive":
            profile = self.taken.copy()
            profile.block(nodes, start, end)
            return tuple(_aggressive(queue, profile)[0])
        first = self._first_hit(nodes, start, end)
        if first is None:
            return self.starts
        state = self._states[bisect_right(self._states, first, key=lambda s: s.jobs) - 1].copy()
        for job, begin, on in zip(
            queue.waiting[state.jobs : first],
            self.starts[state.jobs : first],
            self.nodes[state.jobs : first],
            strict=True,
        ):
            if begin < math.inf:
                state.profile.block(on, begin, begin + job.duration)
        state.profile.block(nodes, start, end)
        return self.starts[:first] + self._again(first, state)

    def _first_hit(self, nodes: int, start: float, end: float) -> int | None:
        """The first job, in the queue's order, that stands on these nodes at that time: all before it stay."""
        for i, (job, begin, on) in enumerate(zip(self.queue.waiting, self.starts, self.nodes, strict=True)):
            if begin < end and on & nodes and begin + job.duration > start:
                return i
        return None

    def _again(self, first: int, state: _State) -> tuple[float, ...]:
        """Plan the jobs from `first` on again, in a profile with the slot in it.

        What differs from the plan without the slot is the slot itself and what jobs that moved have left behind. A job
        can only start earlier than it did where it could use something left behind; up to the time at which the
        first such hole begins, it stays where it was, or is looked for from the last start that ends before that.
        """
        profile, bounds = state.profile, state.bounds
        now, left = self.queue.now, math.inf
        starts = []
        for job, begin, on in zip(self.queue.waiting[first:], self.starts[first:], self.nodes[first:], strict=True):
            if begin < math.inf:
                end = begin + job.duration
                if end <= left and profile.common(begin, end, on) == on:
                    profile.block(on, begin, end)
                    starts.append(begin)
                    continue
            found = _earliest(profile, job, max(now, bounds.get(job), min(begin, left - job.duration)))
            if found is None:
                starts.append(math.inf)
                continue
            if job.after <= now and not job.need:
                bounds.put(job, found[0])
            profile.block(found[1], found[0], found[0] + job.duration)
            starts.append(found[0])
            if found != (begin, on):
                left = min(left, begin)
        return tuple(starts)


def make_plan(queue: ClusterQueue) -> QueueSchedule:
    """Plan the whole queue by its policy. Claims are taken as they are, also if they overlap."""
    taken = queue.taken()
    profile = taken.copy()
    if queue.policy == "aggressive":
        starts, nodes = _aggressive(queue, profile)
        return QueueSchedule(queue, tuple(starts), tuple(nodes), profile, taken)
    bounds = _Bounds.of(queue.waiting)
    every = max(16, len(queue.waiting) // _CHECKPOINTS)
    states = []
    starts, nodes = [], []
    for i, job in enumerate(queue.waiting):
        if i % every == 0:
            states.append(_State(i, profile, bounds).copy())
        found = _earliest(profile, job, max(queue.now, bounds.get(job)))
        if found is None:
            starts.append(math.inf)
            nodes.append(0)
            continue
        if job.after <= queue.now and not job.need:
            bounds.put(job, found[0])
        profile.block(found[1], found[0], found[0] + job.duration)
        starts.append(found[0])
        nodes.append(found[1])
    return QueueSchedule(queue, tuple(starts), tuple(nodes), profile, taken, tuple(states))


def _earliest(profile: BitProfile, job: PendingJob, after: float) -> tuple[float, int] | None:
    after = max(after, job.after)
    if job.need:
        return Ask(0, job.procs, job.duration, job.within, need=job.need).earliest(profile, after)
    return profile.earliest(job.procs, job.duration, after, job.within)


def _aggressive(queue: ClusterQueue, profile: BitProfile) -> tuple[list[float], list[int]]:
    """Let time run from event to event, with one reservation at a time; `profile` gets what starts."""
    starts, nodes = [math.inf] * len(queue.waiting), [0] * len(queue.waiting)
    pending = list(range(len(queue.waiting)))
    planner, now = Backfill(protect=1), queue.now
    later = sorted({job.after for job in queue.waiting if queue.now < job.after < math.inf})
    while pending:
        trial = profile.copy()
        trial.forget(now)
        planner.renew(trial, (), now)
        reserved = math.inf
        waiting = []
        for place, i in enumerate(pending):
            if planner.hopeless(1):
                waiting += pending[place:]
                break
            job = queue.waiting[i]
            if job.after > now or job.procs > planner.most(""):
                waiting.append(i)
                continue
            placed = planner.place(Ask(i, job.procs, job.duration, job.within, need=job.need), now)
            if placed is not None and placed.start <= now:
                starts[i], nodes[i] = now, placed.nodes
                profile.block(placed.nodes, now, placed.end)
            else:
                waiting.append(i)
                if placed is not None:
                    reserved = placed.start
        pending = waiting
        position = bisect_right(profile.times, now)
        times = [*profile.times[position : position + 1], *later[bisect_right(later, now) :][:1], reserved]
        now = min(times)
        if now == math.inf:
            break
    return starts, nodes


def free_set(
    profile: BitProfile, procs: int, start: float, end: float, prefer: BitProfile | None = None, within: int = -1
) -> int | None:
    """`procs` nodes of `within` that are free from `start` to `end`: first those that are free in `prefer`, too, then
    the others, the lowest first. None if there are too few."""
    free = profile.common(start, end, within)
    if free.bit_count() < procs:
        return None
    best = lowest(prefer.common(start, end, free), procs) if prefer is not None else 0
    return best | lowest(free & ~best, procs - best.bit_count())
