"""Futures that are said instead of drawn, and random ones of random presents."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.future.drawn import Arrivals, OwnJob
from penstock.future.present import Closing, Present, Running, Waiting


class Arrival(NamedTuple):
    submit: float
    nodes: int
    area: int
    limit: float
    run: float


class Given:
    """The arrivals come in two parts, with an empty one between."""

    def __init__(self, ends: Sequence[float] = (), runs: Sequence[float] = (), arrivals: Sequence[Arrival] = ()):
        self.ends, self.runs = np.array(ends, dtype=float), np.array(runs, dtype=float)
        half = len(arrivals) // 2
        self._parts = [arrivals[:half], (), arrivals[half:]] if arrivals else []

    def arrivals(self, part):
        if part >= len(self._parts):
            return None
        rows = self._parts[part]
        kinds = (float, np.int64, np.int64, float, float)
        return Arrivals(*(np.array([row[i] for row in rows], dtype=kind) for i, kind in enumerate(kinds)))


@dataclass
class World:
    present: Present
    drawn: Given
    own: Sequence[OwnJob]


def random_world(seed: int, most: int = 15) -> World:
    """Small nodes, times and queues, so that much happens at the same instant: several areas that overlap, closures,
    nodes that stay closed, jobs that come later or never, and jobs of ours behind others."""
    rng = random.Random(seed)
    now = float(rng.choice([0, 1000]))
    sizes = [rng.randint(1, 6) for _ in range(rng.randint(1, 4))]
    masks = [((1 << size) - 1) << sum(sizes[:i]) for i, size in enumerate(sizes)]
    areas = tuple(dict.fromkeys(sum(rng.sample(masks, rng.randint(1, len(masks)))) for _ in range(rng.randint(1, 4))))
    cells = tuple(tuple(a for a, area in enumerate(areas) if area & mask) for mask in masks)
    free, running = list(sizes), []

    def part() -> tuple[int, ...]:
        taken = tuple(rng.randint(0, left) if rng.random() < 0.5 else 0 for left in free)
        free[:] = [left - one for left, one in zip(free, taken, strict=True)]
        return taken

    for _ in range(rng.randint(0, most // 2)):
        limit, kept = rng.choice([10.0, 20.0, 30.0, 60.0, math.inf]), rng.choice([-math.inf, -math.inf, now + 40.0])
        start = now - rng.randint(0, 9)
        if any(taken := part()):
            running.append(Running(taken, start, limit, max(start + limit, kept, now + 1.0), kept))
    closed = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        start = now + rng.randint(-5, 60)
        nodes = part() if start <= now else tuple(rng.randint(0, 1) for _ in sizes)
        closed.append(Closing(nodes, start, max(start, now) + rng.randint(1, 40)))

    def some() -> float:
        return float(rng.choice([1, 2, 5, 5, 10, 20, 40]))

    def asked() -> tuple[int, int]:
        area = rng.randrange(len(areas))
        return rng.randint(1, areas[area].bit_count() + (rng.random() < 0.05)), area

    waiting = tuple(
        Waiting(*asked(), some(), rng.choice([-math.inf] * 6 + [now + rng.randint(1, 60), math.inf]))
        for _ in range(rng.randint(0, most))
    )
    present = Present(now, areas, cells, tuple(free), tuple(running), waiting, tuple(closed), {})
    came = sorted(now + rng.randint(1, 100) for _ in range(rng.randint(0, most)))
    drawn = Given(
        [min(job.end, now + rng.randint(1, 50)) for job in running],
        [float(rng.randint(1, 40)) for _ in waiting],
        [Arrival(submit, *asked(), some(), some()) for submit in came],
    )
    own = [
        OwnJob(rng.randint(1, areas[0].bit_count()), some(), some(), tuple(p for p in range(i) if rng.random() < 0.4))
        for i in range(rng.randint(1, 4))
    ]
    return World(present, drawn, own)
