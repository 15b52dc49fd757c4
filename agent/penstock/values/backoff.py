"""How long to wait before what has failed is tried again: longer with every failure in a row, up to a limit."""

from __future__ import annotations

from random import Random
from typing import Final

__all__ = ["Ladder", "backoff"]

_DOUBLINGS: Final = 10
_RUNGS: Final = (0.0, 1.0, 2.0, 5.0, 15.0, 60.0, 120.0, 300.0)


def backoff(first: float, failures: int, longest: float) -> float:
    """Seconds: `first`, doubled `failures` times (ten at most), and never more than `longest`."""
    return min(first * 2.0 ** min(failures, _DOUBLINGS), longest)


class Ladder:
    """The same for a service that many clients share: the first failure costs nothing, many in a row cost minutes, and
    the clients are spread. `spread` 0.2 makes pauses up to 20 % shorter or longer."""

    def __init__(self, rng: Random, rungs: tuple[float, ...] = _RUNGS, spread: float = 0.2) -> None:
        self._rng = rng
        self._rungs = rungs
        self._spread = spread
        self.failures = 0

    def failed(self) -> float:
        """One more failure; the pause after it in seconds."""
        pause = self._rungs[min(self.failures, len(self._rungs) - 1)]
        self.failures += 1
        return pause * self._rng.uniform(1 - self._spread, 1 + self._spread)

    def succeeded(self) -> None:
        """Start at the bottom again."""
        self.failures = 0
