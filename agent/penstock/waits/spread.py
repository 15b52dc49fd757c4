"""How far waits fall from what was expected: turns an estimate into a distribution that can be counted on.

A learner's weights say which alternative is best, not how much waits scatter. So the logarithms of wait / estimate are
kept, newest 200, and a distribution is the estimate times these factors. Its upper bound is held to its promise by
adaptive conformal inference (Gibbs and Candes, NeurIPS 2021): after each wait the level at which the bound is read off
moves up if the wait lay beyond, and down a little if not, so that in the long run exactly the promised share lies
within, however the queue changes.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from penstock.waits.alternatives import LEAST
from penstock.waits.base import PROMISE, Distribution, Known, Observation
from penstock.waits.states import array, numbers, reading

__all__ = ["Spread"]

_KEEP: Final = 200
_UNIT: Final = 1000
_ENOUGH: Final = 20
_RATE: Final = 0.005
_PRIOR: Final = 1.0
"""Decades by which a bound exceeds the estimate as long as nothing is known."""


class Spread:
    """Factors between waits and their estimates; `promise` is the share of waits that the bound is to cover."""

    def __init__(self, promise: float = PROMISE) -> None:
        self.promise = promise
        self._level = promise
        self._logs: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, observation: Observation, estimate: float) -> None:
        """A wait that `estimate` (s) was said of. Censored ones count as inside their bound, at the estimate."""
        if observation.known is Known.NOTHING:
            return
        ratio = math.log10(max(observation.seconds, LEAST) / max(estimate, LEAST))
        if observation.known is Known.AT_MOST:
            ratio = min(ratio, 0.0)
        elif observation.known is Known.MORE_THAN:
            ratio = max(ratio, 0.0)
        within = ratio <= self._reach()
        self._level = min(max(self._level + _RATE * (self.promise - within), 0.5), 1.0)
        self._logs.append(ratio)
        bisect.insort(self._sorted, ratio)
        if len(self._logs) > _KEEP:
            del self._sorted[bisect.bisect_left(self._sorted, self._logs.popleft())]

    def around(self, estimate: float) -> Distribution | None:
        """Waits to reckon with when `estimate` (s) is expected; None while too little is known."""
        n = len(self._sorted)
        if n < _ENOUGH:
            return None
        return Distribution(max(estimate, LEAST) * 10.0 ** np.array(self._sorted), np.full(n, 1.0 / n))

    def bound(self, estimate: float) -> float:
        """Seconds that the wait exceeds with probability 1 - promise."""
        return float(max(estimate, LEAST) * 10.0 ** self._reach())

    def _reach(self) -> float:
        n = len(self._sorted)
        if n < _ENOUGH:
            return max(_PRIOR, self._sorted[-1]) if n else _PRIOR
        return self._sorted[min(math.ceil(self._level * (n + 1)) - 1, n - 1)]

    def to_state(self) -> dict[str, Any]:
        """JSON-able; in thousandths of a decade."""
        return {"level": round(self._level, 6), "logs": [round(x * _UNIT) for x in self._logs]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError when it is damaged."""
        with reading("spread"):
            level = float(array(state["level"], low=0.5, high=1.0))
            logs = [x / _UNIT for x in numbers(state["logs"], _KEEP, low=-math.inf)]
            self._level, self._logs, self._sorted = level, deque(logs), sorted(logs)
