"""When a pool's tasks will have ended on given allocations. Pure; seconds from now.

Tasks go to lanes, a lane being one node of an allocation, as the pool's own placement sends them: the longest first,
and none to a lane that ends before the task must. Within a lane like tasks run in rounds of as many as its cores hold.
What is left when all lanes have ended is told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock_pool.demand import TaskBatch

__all__ = ["NodeLane", "NodeLanes", "PoolOutlook", "outlook"]

_Vector = NDArray[Any]
_MOST: Final = 8
"""Batches that are looked at one by one."""
_FUZZ: Final = 1e-6


@dataclass(frozen=True, slots=True)
class NodeLane:
    """`nodes` nodes from `start` to `end` with so many cores, `memory` (bytes, None: any) and GPUs each."""

    start: float
    end: float
    cores: float
    memory: int | None = None
    gpus: int = 0
    nodes: int = 1

    def slots(self, batch: TaskBatch) -> int:
        """How many of these tasks run on a node of it at once."""
        most = math.floor(self.cores / batch.cores + _FUZZ) if batch.cores else 1
        if batch.memory and self.memory is not None:
            most = min(most, self.memory // batch.memory)
        return min(most, self.gpus // batch.gpus) if batch.gpus else most


NodeLanes = Sequence[NodeLane]


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    """When the last task that can run has ended (`end`), core-seconds of those that cannot (`left`), and the
    core-seconds that each lane works."""

    end: float
    left: float
    work: Sequence[float]


def outlook(batches: Sequence[TaskBatch], lanes: NodeLanes) -> PoolOutlook:
    """How these tasks come out on these lanes."""
    free = np.array([lane.start for lane in lanes])
    ends = np.array([lane.end for lane in lanes])
    nodes = np.array([lane.nodes for lane in lanes])
    work = np.zeros(len(lanes))
    end = left = 0.0
    for batch in _in_turn(batches):
        seconds = max(batch.seconds, _FUZZ)
        begin = np.maximum(free, batch.after)
        slots = nodes * np.array([lane.slots(batch) for lane in lanes], dtype=float)
        room = ends - begin - max(batch.longest, seconds)
        rounds = np.where(room >= 0, np.minimum(np.floor(room / seconds) + 1, batch.count), 0) * (slots > 0)
        until, unplaced = _place(batch.count, seconds, begin, slots, rounds)
        left += unplaced * batch.cores * batch.seconds
        taken = slots * np.minimum(rounds, np.maximum(np.floor((until - begin) / seconds + _FUZZ), 0))
        taken = np.minimum(taken, np.maximum(batch.count - unplaced - (taken.cumsum() - taken), 0))
        used = taken > 0
        if used.any():
            free = np.where(used, begin + np.ceil(taken / np.maximum(slots, 1)) * seconds, free)
            work += taken * batch.cores * batch.seconds
            end = max(end, float(free[used].max()))
    return PoolOutlook(end, left, work.tolist())


def _place(count: int, seconds: float, begin: _Vector, slots: _Vector, rounds: _Vector) -> tuple[float, float]:
    """The instant at which all of a batch have ended that begin so, and how many find no place."""
    room = float((slots * rounds).sum())
    if room <= 0:
        return 0.0, count
    last = float((begin + rounds * seconds)[rounds > 0].max())
    if room <= count:
        return last, count - room
    low, high = float(begin[rounds > 0].min()), last
    while high - low > max(_FUZZ, 0.01 * seconds, 1e-4 * high):
        middle = (low + high) / 2
        done = (slots * np.minimum(rounds, np.maximum(np.floor((middle - begin) / seconds + _FUZZ), 0))).sum()
        low, high = (low, middle) if done >= count else (middle, high)
    return high, 0


def _in_turn(batches: Sequence[TaskBatch]) -> list[TaskBatch]:
    """What is there before what is to come, the longest first; many small batches as one."""
    kept = sorted(batches, key=lambda b: -b.work)
    if len(kept) > _MOST:
        rest = kept[_MOST - 1 :]
        count = sum(b.count for b in rest)
        work = sum(b.work for b in rest)
        cores = max(b.cores for b in rest)
        seconds = work / (count * cores) if count and cores else 0.0
        longest = max(b.longest for b in rest)
        after = min(b.after for b in rest)
        memory, gpus = max(b.memory for b in rest), max(b.gpus for b in rest)
        kept = [*kept[: _MOST - 1], TaskBatch(cores, memory, gpus, seconds, count, longest, after)]
    return sorted((b for b in kept if b.count), key=lambda b: (b.after, -b.seconds))
