"""A bag of tasks over several resources, and tasks that wait moved when another resource has become clearly better.

The paper sends all tasks to the one resource that is best for a single task. But a resource takes only so many at a
time, so that the last of a large bag may end sooner elsewhere. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Hysteresis", "Lane", "Move", "Pending", "makespan", "rebalance", "spread"]


@dataclass(frozen=True, slots=True)
class Lane:
    """A resource as a bag sees it: when its first, second, … further job would start there (`starts`, seconds from now,
    rising), how long each runs (`run`, s), and how many tasks it holds (`per`)."""

    name: str
    starts: Sequence[float]
    run: float
    per: int = 1


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
class Move:
    """The job `key` goes to the lane `to`, where it is expected to end at `end` and not at `before` (s from now)."""

    key: int
    to: str
    before: float
    end: float


def spread(count: int, lanes: Sequence[Lane]) -> dict[str, int]:
    """How many jobs to send to each lane so that the last of `count` tasks is done as early as possible.

    A lane's jobs end one after the other, so it is the earliest ends of all lanes that are taken; of equal ends that
    of the lane that is named first. Lanes that get nothing are left out. ValueError when the lanes' starts do not
    suffice.
    """
    taken: dict[str, int] = {}
    ends = [(lane.starts[0] + lane.run, order) for order, lane in enumerate(lanes) if lane.starts]
    heapq.heapify(ends)
    left = count
    while left > 0:
        if not ends:
            raise ValueError(f"the lanes have no room for {left} of {count} tasks")
        _, order = heapq.heappop(ends)
        lane = lanes[order]
        taken[lane.name] = number = taken.get(lane.name, 0) + 1
        left -= lane.per
        if number < len(lane.starts):
            heapq.heappush(ends, (lane.starts[number] + lane.run, order))
    return taken


def makespan(taken: Mapping[str, int], lanes: Sequence[Lane]) -> float:
    """When the last job ends (seconds from now) if so many are sent to each lane; 0 for none."""
    ends = [lane.starts[taken[lane.name] - 1] + lane.run for lane in lanes if taken.get(lane.name)]
    return max(ends, default=0.0)


def rebalance(waiting: Sequence[Pending], lanes: Sequence[Lane], hysteresis: Hysteresis) -> list[Move]:
    """Which jobs that wait should move, the one that would end last first.

    `lanes` are for jobs that are submitted anew. Only the job that ends last counts: when it cannot be moved to an end
    that is clearly sooner, nothing is gained by moving others.
    """
    next_in = dict.fromkeys((lane.name for lane in lanes), 0)
    moves = []
    for job in sorted(waiting, key=lambda job: (-job.end, -job.key)):
        best: tuple[float, int, Lane] | None = None
        for order, lane in enumerate(lanes):
            needed = -(-job.tasks // lane.per)
            last = next_in[lane.name] + needed - 1
            if lane.name == job.lane or last >= len(lane.starts):
                continue
            found = (lane.starts[last] + lane.run, order, lane)
            if best is None or found[:2] < best[:2]:
                best = found
        if best is None or not hysteresis.exceeded(job.end, best[0]):
            break
        lane = best[2]
        next_in[lane.name] += -(-job.tasks // lane.per)
        moves.append(Move(job.key, lane.name, job.end, best[0]))
    return moves
