"""When jobs of a bag would start on a candidate, by a plan of its queue: those that wait already, and further ones.

Whole nodes or CPUs are counted, not named, on the picture that every plan is made of (`future.cluster`). Others' jobs
end by their time limits, the bag's own by their predicted run times; the plan is late by how much users ask for more
than they need, which `calibrated` corrects by what was learned of waits. Where it is known how much that is, `futures`
draws them instead. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import Job, Snapshot
from penstock.future.bits import BitProfile
from penstock.future.cluster import YEAR, Cluster, Unknown
from penstock.future.counted import Counted
from penstock.future.planner import Ask
from penstock.future.profile import place
from penstock_planning.broker.partitions import Candidate

__all__ = ["Starts", "calibrated", "outlasting", "planned"]

_MOST_WAITING: Final = 2000
"""Jobs of others that are planned; of a longer queue the rest starts later than anything that matters."""
_SHORT: Final = 60.0
_FACTORS: Final = (0.1, 4.0)


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds from now: of the bag's own tasks that wait, by their job and in the order of the array, and of as many
    further jobs as were asked for (fewer, if they never fit). `waited` is how long those of `own` have waited (s).
    `drawn`: of each of the further jobs, ascending, where they were drawn; the others are medians then."""

    own: Mapping[int, Sequence[float]]
    further: Sequence[float]
    waited: Mapping[int, float]
    drawn: Sequence[Sequence[float]] = ()


def planned(
    snapshot: Snapshot,
    candidate: Candidate,
    units: int,
    limit: float,
    count: int,
    run: float,
    own: Collection[int] = (),
) -> Starts:
    """The plan for `count` further jobs of `units` nodes or CPUs each, that run `run` s under a limit of `limit` s.

    `own` are the ids of jobs (of arrays: the array's) that are the bag's. Estimated starts count as they stand.
    """
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
    further = _waves(profile, [(units, lasts[1], now)] * count if units > 0 else [], lasts[0], now)
    return Starts(found, [float(begin - now) for begin in further], waited)


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
