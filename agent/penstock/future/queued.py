"""When those who wait start: at the latest by everybody's time limits, and likely, with a band. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

from penstock.api import Snapshot
from penstock.future.bands import Band, band_of, queue_starts
from penstock.future.cluster import Cluster
from penstock.future.draws import Drawing
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.present import Present
from penstock.future.turns import believed

__all__ = ["DEEP", "FEW", "WORK", "Likely", "QueueStart", "likely_queue", "within"]

FEW: Final = "of too few jobs it is known how long they ran"
DEEP: Final = "the queue is too deep to draw its futures"
WORK: Final = 5_000_000
"""What all may take together: some ten seconds."""
_MOST: Final = (400, 100, 40, 15)
"""Tasks in the queue whose starts are worked out, the first ones: fewer, where so many would take too long."""
_DEEPEST: Final = 2000
"""Tasks in the queue of a part of the cluster beyond which not even the first ones are looked at."""
_AHEAD: Final = 7 * 86400.0
"""Seconds: who starts later than that by everybody's limits is not looked at."""


@dataclass(frozen=True, slots=True)
class QueueStart:
    """When a job in the queue starts. `guaranteed`: if nobody is put before it; infinite: never. `band` None: it is not
    known, and `why`."""

    guaranteed: float
    band: Band | None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        names = ("low", "likely", "high")
        likely = (None, None, None) if self.band is None else map(_finite, self.band)
        return {"guaranteed": _finite(self.guaranteed), **dict(zip(names, likely, strict=True))}

    def line(self, show: Callable[[float], str]) -> str:
        """For people."""
        told = f"In the queue such a job starts at {show(self.guaranteed)} by everybody's time limits"
        if self.guaranteed == math.inf:
            told = "In the queue such a job never starts by everybody's time limits"
        if self.band is None:
            return f"{told}; when it likely does is not known: {self.why}."
        if self.band.likely == math.inf:
            return f"{told}, and likely not within 30 days."
        return f"{told}, likely at {self.likely(show)}."

    def likely(self, show: Callable[[float], str]) -> str:
        """The likely start and its band, where they are known; else nothing."""
        if self.band is None or self.band.likely == math.inf:
            return ""
        return f"{show(self.band.likely)} (9 in 10: {show(self.band.low)} to {show(self.band.high)})"


def within(band: Band, guaranteed: float) -> Band:
    """Nobody runs beyond the limit, so it is not later than that but where somebody is put before it."""
    return Band(*(min(at, guaranteed) for at in band))


@dataclass(frozen=True)
class Likely:
    """Bands of those who wait at `at`, by their names (`7_0` for a task of an array); `why` some have none, or ""."""

    at: float
    bands: Mapping[str, Band]
    why: str = ""


def likely_queue(
    snapshot: Snapshot, guaranteed: Mapping[str, float], past: QueuePast, wider: float, work: float = WORK
) -> Generator[int, None, Likely]:
    """When those who wait likely start, in parts (see `Pace.walk`). `guaranteed` are their starts by everybody's time
    limits, by name; who has none there is not looked at. `wider`: see `bands.Misses`."""
    if len(past.used) < ENOUGH:
        return Likely(snapshot.taken_at, {}, FEW)
    cluster = Cluster.of(believed(snapshot))
    soon = sorted((at, name) for name, at in guaranteed.items() if at < cluster.now + _AHEAD)
    order = {name: place for place, (_at, name) in enumerate(soon)}
    found: dict[str, Band] = {}
    done, why = 0, ""
    for present, names in _regions(cluster):
        here = sorted((order[name], place) for place, name in enumerate(names) if name in order)
        places, starts = list[int](), list[list[float]]()
        for most in _MOST if len(names) <= _DEEPEST else ():
            if starts or (places and len(here) <= most):
                continue
            places = [place for _order, place in here[:most]]
            starts, took = yield from _counted(queue_starts(Drawing(present, past, 0), places, max(work - done, 0)))
            done += took
        if len(starts) < len(here):
            why = DEEP
        for place, known in zip(places if starts else (), starts, strict=True):
            name = names[place]
            found[name] = within(band_of(known, cluster.now, wider), guaranteed[name])
    return Likely(cluster.now, found, why)


def _counted(parts: Generator[int, None, list[list[float]]]) -> Generator[int, None, tuple[list[list[float]], int]]:
    """What it returns, and how much it has done."""
    total = 0
    while True:
        try:
            done = next(parts)
        except StopIteration as end:
            return end.value, total
        total += done
        yield done


def _regions(cluster: Cluster) -> Iterator[tuple[Present, list[str]]]:
    """Parts of the cluster whose jobs never meet, each with the names of those who wait there, in Slurm's order."""
    seen = 0
    for name in cluster.snapshot.partitions:
        nodes = cluster.nodes_of(name)
        if not nodes or nodes & seen:
            continue
        present = Present.of(cluster, name)
        region = reduce(or_, present.areas)
        seen |= region
        tasks: Counter[int] = Counter()
        names = []
        for entry in cluster.queue(region, places=len(present.waiting)):
            names.append(str(entry.job.id) if entry.job.tasks <= 1 else f"{entry.job.id}_{tasks[entry.job.id]}")
            tasks[entry.job.id] += 1
        yield present, names


def _finite(value: float) -> float | None:
    return value if value < math.inf else None
