"""What is to happen when, in a soak on a real Slurm."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable
from itertools import count

__all__ = ["Agenda"]


class Agenda:
    """Times are seconds since the epoch. What comes again and again does so until `until`."""

    def __init__(self, draw: random.Random, until: float) -> None:
        self._draw = draw
        self._until = until
        self._order = count()
        self._ahead: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, instant: float, what: Callable[[], None]) -> None:
        """Once, then."""
        heapq.heappush(self._ahead, (instant, next(self._order), what))

    def again(self, mean: float, what: Callable[[], None]) -> None:
        """At random, on average every `mean` seconds."""

        def now() -> None:
            what()
            if time.time() < self._until:
                self.again(mean, what)

        self.at(time.time() + self._draw.expovariate(1 / mean), now)

    def spread(self, number: int, length: float, what: Callable[[], None]) -> None:
        """So many times within the next `length` seconds, at random."""
        for _ in range(number):
            self.at(time.time() + self._draw.uniform(0.0, length), what)

    def due(self) -> None:
        """Do what is due."""
        now = time.time()
        while self._ahead and self._ahead[0][0] <= now:
            heapq.heappop(self._ahead)[2]()

    def clear(self) -> None:
        """Nothing of it is to happen any more."""
        self._ahead = []
