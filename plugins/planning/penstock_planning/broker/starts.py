"""When jobs of a bag would start on a candidate: those that wait already, and further ones. Pure.

By a plan of its queue (`planned`) whole nodes or CPUs are counted, not named, on the picture that every plan is made of
(`future.cluster`). Others' jobs end by their time limits, the bag's own by their predicted run times. Users ask for
several times what they need, so the plan is late by as much, which `calibrated` corrects by what was learned of waits,
and then slow nodes that are free at once look better than fast ones that soon are. Shorter jobs put into the same plan
are wrong, too: the scheduler goes by limits, so what fits beside its reservations and what does not is another.

Futures of the queue that are drawn from its past (`foreseen`, by `future.draws`) have both: a replay decides by limits,
and jobs end when they are done.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import Job, Snapshot
from penstock.core.pace import at_once
from penstock.future.bands import drawn_starts, queue_starts
from penstock.future.bits import BitProfile
from penstock.future.cluster import YEAR, Cluster, Unknown
from penstock.future.counted import Counted
from penstock.future.drawn import OwnJob
from penstock.future.draws import Drawing
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.planner import Ask
from penstock.future.present import Present
from penstock.future.profile import place
from penstock.future.replay import HORIZON
from penstock_planning.broker.partitions import Candidate

__all__ = ["Further", "Starts", "calibrated", "foreseen", "outlasting", "planned"]

_FUTURES: Final = 9
"""Drawn at each look: medians of so many choose as well as those of more, and every pass over a bag asks anew."""
_WORK: Final = 500_000
"""What one candidate may take, in units of some two microseconds. In deeper queues the plan by limits stands."""
_MOST: Final = 5000
"""Tasks in the queue that are looked at."""
_MOST_WAITING: Final = 2000
"""Jobs of others that are planned; of a longer queue the rest starts later than anything that matters."""
_SHORT: Final = 60.0
_FACTORS: Final = (0.1, 4.0)


@dataclass(frozen=True, slots=True)
class Further:
    """`count` further jobs of a bag, each like `job`. `own` are the ids of those that are there already (of arrays: the
    array's)."""

    job: OwnJob
    count: int
    own: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds from now: of the bag's own tasks that wait, by their job and in the order of the array, and of as many
    further jobs as were asked for (fewer, if they never fit). `waited` is how long those of `own` have waited (s).
    `drawn`: of each of the further jobs, ascending, where they were drawn; the others are medians then."""

    own: Mapping[int, Sequence[float]]
    further: Sequence[float]
    waited: Mapping[int, float]
    drawn: Sequence[Sequence[float]] = ()


def planned(snapshot: Snapshot, candidate: Candidate, further: Further) -> Starts:
    """The plan for further jobs, in the candidate's nodes or CPUs. Estimated starts count as they stand."""
    (units, limit, run, _), own = further.job, further.own
    cluster = Cluster.of(snapshot, Unknown(endless=YEAR))
    now, lasts = int(cluster.now), (max(run, 1.0), max(limit, run, 1.0))
    line = list(_in_line(cluster, candidate, own))
    mine = [(job, (ask.nodes, min(ask.duration, lasts[1]), ask.after)) for job, ask in line if job.head in own]
    begins: list[float] = []
    if mine:
        # By their limits, as the scheduler sees them, they are ahead of who comes after them.
        profile = _free(cluster, candidate, run, own)
        for job, ask, taken in [(job, ask, place(profile, ask, now)) for job, ask in line]:
            if taken is not None and job.head in own:
                profile.open(ask.nodes, taken[0], taken[0] + ask.duration)
        begins = list(_waves(profile, [ask for _, ask in mine], lasts[0], now))
    profile = _free(cluster, candidate, run, own)
    found: dict[int, list[float]] = {}
    waited: dict[int, float] = {}
    for (job, (units_of_it, *_)), begin in zip(mine, begins, strict=False):
        profile.block(units_of_it, begin, begin + lasts[0])
        found.setdefault(job.head, []).append(float(begin - now))
        waited[job.head] = cluster.now - job.submit
    for job, ask in line:
        if job.head not in own:
            place(profile, ask, now)
    asks = [(units, lasts[1], now)] * further.count if units > 0 else []
    return Starts(found, [float(begin - now) for begin in _waves(profile, asks, lasts[0], now)], waited)


def _waves(profile: Counted, asks: Sequence[tuple[int, float, float]], run: float, now: float) -> Iterator[float]:
    """When jobs of so many units and time limits start, none before its instant, one after the other; it stops at one
    that never fits.

    While a job runs the scheduler keeps its units for it up to its limit, so that beside what it keeps for a large job
    only a few may start at once. When it has ended the rest of its time is free for the next.
    """
    running: list[tuple[float, float, int]] = []  # until when, until when it might have run, and its units
    at = now
    for units, limit, after in asks:
        while True:
            hole = profile.earliest(units, limit, max(at, after))
            if not running or (hole is not None and hole[0] <= running[0][0]):
                break
            at, until, its = heapq.heappop(running)
            profile.open(its, at, until)
        if hole is None:
            return
        at = hole[0]
        profile.block(units, at, at + limit)
        heapq.heappush(running, (at + run, at + limit, units))
        yield at


def _free(cluster: Cluster, candidate: Candidate, run: float, own: Collection[int]) -> Counted:
    """What of the candidate is free when nobody waits; the bag's own jobs end when they are expected to."""
    ends = {
        held.job.id: max(held.job.start + run, cluster.now + 1)
        for held in cluster.held
        if held.job.head in own and held.job.start is not None
    }
    nodes = cluster.mask(candidate.nodes)
    if candidate.whole:
        return Counted.of(_once_awake(cluster, cluster.free_by(ends)), nodes)
    busy = []
    for held in cluster.held:
        if inside := (held.nodes & nodes).bit_count():
            cpus = max(held.job.num_cpus * inside // max(len(held.job.nodes), 1), 1)
            busy.append((ends.get(held.job.id, held.end), cpus))
    return Counted.of(_once_awake(cluster, cluster.open_nodes()), nodes, candidate.rig.cpus, busy)


def _once_awake(cluster: Cluster, profile: BitProfile) -> BitProfile:
    """The same with nodes that are asleep free only when they are awake at the latest."""
    profile.block(cluster.asleep, cluster.now, cluster.now + cluster.snapshot.wakes_in)
    return profile


def _in_line(cluster: Cluster, candidate: Candidate, own: Collection[int]) -> Iterator[tuple[Job, Ask]]:
    """Who waits for the candidate, in order and once for each task, in its units. The bag's own jobs of which nobody
    knows when they start come last, as if they lacked nothing but nodes."""
    others, nodes = 0, cluster.mask(candidate.nodes)
    for entry in cluster.queue(cluster.nodes_of(candidate.partition.name), tasks=_MOST_WAITING):
        mine = entry.job.head in own
        others += not mine
        if mine or others <= _MOST_WAITING:
            yield entry.job, entry.ask if candidate.whole else entry.ask._replace(nodes=max(entry.job.num_cpus, 1))
    for job in cluster.snapshot.pending(candidate.partition.name):
        if job.head in own and job.id not in cluster.by_job and not job.put_off:
            units = max(job.least_nodes if candidate.whole else job.num_cpus, 1)
            for _ in range(max(job.tasks, 1)):
                yield job, Ask(job.id, units, YEAR, nodes)


def foreseen(snapshot: Snapshot, candidate: Candidate, further: Further, past: QueuePast) -> Starts | None:
    """The same as `planned`, in the median of nine futures; what waits already of the bag runs as long.

    None where nothing can be drawn: of too few jobs it is known how long they ran, jobs share nodes, the candidate is
    but a part of its partition, one of its own is in the queue that lacks more than nodes, or the queue is too deep.
    """
    cluster, job, own = Cluster.of(snapshot), further.job, further.own
    nodes = cluster.nodes_of(candidate.partition.name)
    if len(past.used) < ENOUGH or not candidate.whole or cluster.mask(candidate.nodes) != nodes:
        return None
    entries = list(cluster.queue(nodes, places=_MOST))
    mine = [where for where, entry in enumerate(entries) if entry.job.head in own]
    waiting = {j.id for j in snapshot.pending(candidate.partition.name) if j.head in own and not j.put_off}
    if not waiting <= cluster.by_job.keys():
        return None
    drawing = Drawing(Present.of(cluster, candidate.partition.name, _MOST), past, 0, dict.fromkeys(mine, job.run))
    jobs = [job] * further.count
    later = at_once(drawn_starts(drawing, lambda _draw: jobs, work=_WORK, futures=_FUTURES))
    theirs = at_once(queue_starts(drawing, mine, _WORK, _FUTURES)) if mine else []
    if not later or len(theirs) != len(mine):
        return None
    found: dict[int, list[float]] = {}
    waited: dict[int, float] = {}
    for where, starts in zip(mine, theirs, strict=True):
        entry = entries[where].job
        found.setdefault(entry.head, []).append(min(_middle(starts) - cluster.now, HORIZON))
        waited[entry.head] = cluster.now - entry.submit
    drawn = [[start - cluster.now for start in starts] for starts in later]
    medians = sorted(median for starts in drawn if (median := _middle(starts)) < math.inf)
    return Starts({job: sorted(starts) for job, starts in found.items()}, medians, waited, drawn[: len(medians)])


def _middle(ascending: Sequence[float]) -> float:
    return ascending[len(ascending) // 2]


def calibrated(starts: Sequence[float], expected: float, first: float) -> list[float]:
    """The starts of a plan by which a job that is submitted now starts after `first` seconds, while `expected` are
    known from experience: stretched alike, or moved if the plan has it start at once."""
    if first < _SHORT:
        return [start + max(expected - first, 0.0) for start in starts]
    factor = min(max(expected / first, _FACTORS[0]), _FACTORS[1])
    return [start * factor for start in starts]


def outlasting(expected: Sequence[float], plan: Sequence[float], waited: float) -> list[float]:
    """The starts of jobs that have waited for so long already. Waits are of all scales: what has waited for a time is
    expected to wait as long again, however soon experience has it start, but not beyond the plan."""
    return [max(soon, min(late, waited)) for soon, late in zip(expected, plan, strict=True)]
