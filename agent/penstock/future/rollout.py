"""How soon all jobs of a partition would end if nodes had a price: the rest of a queue played through. Pure.

A price is what holding a node for a second is worth, in seconds by which one job ends later. Where m jobs are there for
N nodes, each node that is given back a second sooner lets about m/N jobs go on, so the price is `dearness` * m / N with
a dearness of about 1, which falls as the queue does. At a price each job has one best size: that of the least
seconds * (1 + price * nodes). So one number says how tightly all jobs of all kinds are packed, and which number is best
is found by playing the queue through with some of them (roll-out; D. P. Bertsekas, J. N. Tsitsiklis, C. Wu, *Rollout
Algorithms for Combinatorial Optimization*, Journal of Heuristics 3, 1997).

What is played is simpler than Slurm: those who wait start in their order, each on its best size or on what is left, and
nobody overtakes. Running jobs shrink at once to their best size while anybody waits. Once nobody does, those that are
left share all nodes, parts of nodes too, and nobody gives any back. Resizes cost nothing and nobody else comes. It
compares prices, and says no time to anybody.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["PlayedJob", "price", "total"]

_Floats = NDArray[np.float64]
_PARTS: Final = 16
"""Nodes are handed out anew when so manieth a part of all has become free."""
_HALVINGS: Final = 20


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """A job: what is left of it takes serial + parallel / n seconds on n nodes, of which it can have `least` to `most`.

    `nodes` it has now (0: it waits); `start` is the most that it starts on.
    """

    serial: float
    parallel: float
    least: int
    most: int
    nodes: int = 0
    start: int = 0

    def seconds(self, nodes: float) -> float:
        """Until it has ended, on so many nodes."""
        return self.serial + self.parallel / nodes

    def best(self, price: float) -> int:
        """Its size at a price per node and second: where seconds * (1 + price * nodes) is least."""
        if self.parallel <= 0:
            return self.least
        if self.serial * price <= 0:
            return self.most
        ideal = min(math.sqrt(self.parallel / (self.serial * price)), self.most)
        low = max(math.floor(ideal), self.least)
        high = min(low + 1, self.most)
        return min((low, high), key=lambda n: (self.seconds(n) * (1 + price * n), n))


def price(dearness: float, jobs: int, nodes: int) -> float:
    """Of a node and second, where so many jobs are there for so many nodes."""
    return dearness * jobs / max(nodes, 1)


def total(running: Sequence[PlayedJob], queue: Sequence[PlayedJob], nodes: int, dearness: float) -> float:
    """Seconds until they end, of all jobs together. Who needs more than all `nodes` never starts, and is left out."""
    waiting = [load for load in queue if load.least <= nodes]
    there, free = len(running) + len(waiting), nodes
    now = found = 0.0
    ends: list[tuple[float, int, int, PlayedJob]] = []
    for place, load in enumerate(running):
        size = load.nodes
        if waiting and size > load.least:
            size = min(size, load.best(price(dearness, there, nodes)))
        free -= size
        ends.append((load.seconds(size), place, size, load))
    heapq.heapify(ends)
    for place, load in enumerate(waiting, len(running)):
        while True:
            wanted = max(min(load.best(price(dearness, there, nodes)), load.start or load.most), load.least)
            size = wanted if wanted <= free else free
            if size >= load.least:
                break
            now, _, given, _ = heapq.heappop(ends)
            found, free, there = found + now, free + given, there - 1
        free -= size
        heapq.heappush(ends, (now + load.seconds(size), place, size, load))
    return found + _shared(ends, now, nodes)


def _shared(ends: Sequence[tuple[float, int, int, PlayedJob]], now: float, nodes: int) -> float:
    """The ends of those that run when nobody waits, added up: they get what becomes free."""
    if not ends:
        return 0.0
    end = np.array([e[0] for e in ends])
    size = np.array([float(e[2]) for e in ends])
    serial = np.array([e[3].serial for e in ends])
    parallel = np.array([e[3].parallel for e in ends])
    most = np.maximum(np.array([float(e[3].most) for e in ends]), size)
    left = (end - now) / np.maximum(serial + parallel / size, 1e-9)
    found, enough = 0.0, max(nodes / _PARTS, 1.0)
    while len(left):
        size = _filled(size, most, np.sqrt(left * parallel), float(nodes))
        rest = left * (serial + parallel / size)
        order = np.argsort(rest)
        gone = 1 + int(np.searchsorted(np.cumsum(size[order]), enough))
        found += float((now + rest[order[:gone]]).sum())
        if gone >= len(order):
            break
        passed, stay = float(rest[order[gone - 1]]), order[gone:]
        left = (left * (1 - passed / np.maximum(rest, 1e-9)))[stay]
        size, most, serial, parallel = size[stay], most[stay], serial[stay], parallel[stay]
        now += passed
    return found


def _filled(size: _Floats, most: _Floats, weight: _Floats, nodes: float) -> _Floats:
    """Sizes up to `most`, none below `size`, with which time is gained at the same rate wherever any is: in proportion
    to the root of what is left to do in parallel."""
    if float(most.sum()) <= nodes or not float(weight.max()) > 0:
        return most if float(most.sum()) <= nodes else size
    low, high = 0.0, nodes / float(weight[weight > 0].min())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if float(np.clip(weight * middle, size, most).sum()) > nodes:
            high = middle
        else:
            low = middle
    return np.clip(weight * low, size, most)
