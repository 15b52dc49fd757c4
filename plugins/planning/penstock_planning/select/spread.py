"""A bag of tasks over several resources, and tasks that wait moved when another resource has become clearly better.

The paper sends all tasks to the one resource that is best for a single task. But a resource takes only so many at a
time, so that the last of a large bag may end sooner elsewhere. Pure.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

__all__ = ["Hysteresis", "JobMove", "Lane", "Pending", "ends", "makespan", "rebalance", "spread"]

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Lane:
    """A resource as a bag sees it: when its first, second, … further job would start there (`starts`, seconds from now,
    rising), how long each runs (`run`, s, the median), and how many tasks it holds (`per`). `scatter` is the standard
    deviation of the logarithms of run times.

    `shared` names lanes that have nodes in common with it (partitions over the same nodes), with the part of this
    lane's nodes that are theirs as well: a job here takes so much of a place there.
    """

    name: str
    starts: Sequence[float]
    run: float
    per: int = 1
    shared: Mapping[str, float] = field(default_factory=dict)
    scatter: float = 0.0

    def longest(self, jobs: int) -> float:
        """How long the longest of so many jobs runs (s): the median, of log-normal run times."""
        if not self.scatter or jobs <= 1:
            return self.run
        return self.run * math.exp(self.scatter * _NORMAL.inv_cdf(0.5 ** (1 / jobs)))


@dataclass(frozen=True, slots=True)
class Pending:
    """A job of a bag that waits in `lane`: `key` says which, `tasks` how many it holds, `start` when it is expected to
    begin (seconds from now), `run` how long it runs there (s)."""

    key: int
    lane: str
    tasks: int
    start: float
    run: float

    @property
    def end(self) -> float:
        """When it is expected to be done."""
        return self.start + self.run


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """How much sooner a job must be done elsewhere to be moved: so many seconds, and this share of what is left."""

    seconds: float = 300.0
    share: float = 0.2

    def exceeded(self, end: float, other: float) -> bool:
        """Whether `other` is clearly before `end` (seconds from now)."""
        return end - other > max(self.seconds, self.share * end)


@dataclass(frozen=True, slots=True)
class JobMove:
    """The job `key` goes to the lane `to`, where it is expected to end at `end` and not at `before` (s from now)."""

    key: int
    to: str
    before: float
    end: float


class _Places:
    """Which places of each lane are taken by further jobs, in it or in lanes over the same nodes."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = {lane.name: lane for lane in lanes}
        self._taken: defaultdict[str, float] = defaultdict(float)

    def end(self, lane: Lane, jobs: int = 1) -> float | None:
        """When the last of so many further jobs there would be done (s from now), or the longest of all that were sent
        there; None where they find no room."""
        place = int(self._taken[lane.name] + 1e-9) + jobs - 1
        return lane.starts[place] + lane.longest(place + 1) if place < len(lane.starts) else None

    def take(self, lane: Lane, jobs: int = 1) -> None:
        """So many further jobs go there."""
        self._taken[lane.name] += jobs
        for name, part in lane.shared.items():
            if name in self._lanes:
                self._taken[name] += part * jobs


def spread(count: int, lanes: Sequence[Lane]) -> dict[str, int]:
    """How many jobs to send to each lane so that the last of `count` tasks is done as early as possible.

    A lane's jobs end one after the other, so it is the earliest ends of all lanes that are taken; of equal ends that
    of the lane that is named first. Lanes that get nothing are left out. ValueError when the lanes' starts do not
    suffice.
    """
    taken: dict[str, int] = {}
    places = _Places(lanes)
    queue = [(end, order) for order, lane in enumerate(lanes) if (end := places.end(lane)) is not None]
    heapq.heapify(queue)
    left = count
    while left > 0:
        if not queue:
            raise ValueError(f"there is no room for {left} of {count} tasks")
        said, order = heapq.heappop(queue)
        lane = lanes[order]
        end = places.end(lane)
        if end == said:
            taken[lane.name] = taken.get(lane.name, 0) + 1
            left -= lane.per
            places.take(lane)
            end = places.end(lane)
        if end is not None:  # or later than it was said, by a job on nodes that they share
            heapq.heappush(queue, (end, order))
    return taken


def ends(taken: Mapping[str, int], lanes: Sequence[Lane]) -> dict[str, float]:
    """When the last job of each lane ends (seconds from now) if so many are sent to each, at the latest."""
    places, found = _Places(lanes), {}
    for lane in lanes:
        places.take(lane, taken.get(lane.name, 0))
    for lane in lanes:
        if taken.get(lane.name):
            last = places.end(lane, 0)
            found[lane.name] = lane.starts[-1] + lane.longest(taken[lane.name]) if last is None else last
    return found


def makespan(taken: Mapping[str, int], lanes: Sequence[Lane]) -> float:
    """When the last job ends (seconds from now) if so many are sent to each lane; 0 for none."""
    return max(ends(taken, lanes).values(), default=0.0)


def rebalance(waiting: Sequence[Pending], lanes: Sequence[Lane], hysteresis: Hysteresis) -> list[JobMove]:
    """Which jobs that wait should move, the one that would end last first.

    `lanes` are for jobs that are submitted anew. Only the job that ends last counts: when it cannot be moved to an end
    that is clearly sooner, nothing is gained by moving others.
    """
    places = _Places(lanes)
    moves = []
    for job in sorted(waiting, key=lambda job: (-job.end, -job.key)):
        best: tuple[float, int, Lane] | None = None
        for order, lane in enumerate(lanes):
            end = places.end(lane, -(-job.tasks // lane.per))
            if lane.name == job.lane or end is None:
                continue
            if best is None or (end, order) < best[:2]:
                best = (end, order, lane)
        if best is None or not hysteresis.exceeded(job.end, best[0]):
            break
        lane = best[2]
        places.take(lane, -(-job.tasks // lane.per))
        moves.append(JobMove(job.key, lane.name, job.end, best[0]))
    return moves
