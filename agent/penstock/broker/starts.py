"""When jobs of a bag would start on a candidate, by a plan of its queue: those that wait already, and further ones.

Whole nodes or CPUs are counted, not named. Jobs are placed in the order of the queue, each at the earliest time that
leaves those before it where they are (conservative backfilling). Others' jobs end by their time limits, the bag's own
by their predicted run times; the plan is late by how much users ask for more than they need, which `calibrated`
corrects by what was learned of waits. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import Job, Snapshot
from penstock.broker.partitions import Candidate
from penstock.future.counts import CountProfile

__all__ = ["Starts", "calibrated", "outlasting", "planned"]

_FOR_EVER: Final = 365 * 86400
_OVERDUE: Final = 60
_MOST_WAITING: Final = 2000
"""Jobs of others that are planned; of a longer queue the rest starts later than anything that matters."""
_SHORT: Final = 60.0
_FACTORS: Final = (0.1, 4.0)


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds from now: of the bag's own tasks that wait, by their job and in the order of the array, and of as many
    further jobs as were asked for (fewer, if they never fit). `waited` is how long those of `own` have waited (s)."""

    own: Mapping[int, Sequence[float]]
    further: Sequence[float]
    waited: Mapping[int, float]


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

    `own` are the ids of jobs (of arrays: the array's) that are the bag's.
    """
    now = int(snapshot.taken_at)
    each = 1 if candidate.whole else candidate.rig.cpus
    held: dict[str, tuple[float, int]] = {}
    shared: list[tuple[int, int]] = []
    for job in snapshot.jobs.values():
        inside = [node for node in job.nodes if node in candidate.nodes] if job.state.holds_nodes else []
        if not inside:
            continue
        end = _end(job, now, run if (job.array_job or job.id) in own else None)
        if candidate.whole:
            for node in inside:
                held[node] = max(held.get(node, (0.0, 0)), (end, job.id))
        else:
            shared.append((int(end), max(job.num_cpus * len(inside) // max(len(job.nodes), 1), 1)))
    running = sorted((int(end), 1) for end, _ in held.values()) if candidate.whole else sorted(shared)
    usable = len(candidate.usable | held.keys()) if candidate.whole else len(candidate.usable) * each
    free = max(usable - sum(n for _, n in running), 0)
    profile = CountProfile.of_ends(now, free, running)
    _block_reservations(profile, snapshot, candidate, each, now)
    most = profile.free[-1]
    found: dict[int, list[float]] = {}
    waited: dict[int, float] = {}
    placed = 0
    for job in snapshot.pending(candidate.partition.name):
        key = job.array_job or job.id
        mine = key in own
        if job.put_off:
            continue
        width = max(min(job.num_nodes if candidate.whole else job.num_cpus, most), 1)
        length = int(max(run if mine else _limit(job), 1))
        for _ in range(job.tasks):
            if placed >= _MOST_WAITING and not mine:
                break
            placed += 1
            # One that asked for a later start takes nothing before that.
            begin = _place(profile, width, length, after=int(job.eligible or now))
            if mine:
                found.setdefault(key, []).append(float(begin - now))
                waited[key] = snapshot.taken_at - job.submit
    further = []
    if 0 < units <= most:
        for _ in range(count):
            further.append(float(_place(profile, units, int(max(run, 1)), int(max(limit, run, 1))) - now))
    return Starts(found, sorted(further), waited)


def _place(profile: CountProfile, width: int, length: int, room: int | None = None, after: int = 0) -> int:
    """Take `length` seconds at the first place from `after` on that has `room` for so many (the limit that the
    scheduler goes by)."""
    begin = profile.earliest_from(width, room or length, after)
    profile.take(width, begin, begin + length)
    return begin


def _end(job: Job, now: int, run: float | None) -> float:
    if run is not None and job.start is not None:
        return max(job.start + run, now + 1)
    end = job.end if job.end is not None else now + _FOR_EVER
    return max(min(end, now + _FOR_EVER), now + _OVERDUE)


def _limit(job: Job) -> float:
    return float(_FOR_EVER) if job.time_limit is None else min(job.time_limit, _FOR_EVER)


def _block_reservations(profile: CountProfile, snapshot: Snapshot, candidate: Candidate, each: int, now: int) -> None:
    """Nodes that will be reserved. Those of an active reservation are not usable anyhow."""
    for held in snapshot.reservations:
        inside = len(candidate.nodes & set(held.nodes))
        if held.active or not inside or held.end == float("inf") or held.end <= now:
            continue
        begin, end = max(int(held.start), now), int(held.end)
        width = min(inside * each, _least(profile, begin, end))
        if width > 0:
            profile.take(width, begin, end)


def _least(profile: CountProfile, begin: int, end: int) -> int:
    times, free = profile.times, profile.free
    return min(n for i, n in enumerate(free) if times[i] < end and (i + 1 == len(times) or times[i + 1] > begin))


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
