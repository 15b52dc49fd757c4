"""QBETS: an upper bound on a quantile of the wait, with a confidence, from order statistics alone.

Nurmi, Brevik, Wolski, "QBETS: queue bounds estimation from time series", JSSPP 2007. Of n waits that are alike and
independent, the k-th smallest is at least the q-quantile with confidence P(Binomial(n, q) <= k - 1); the bound is the
smallest k for which that reaches `confidence`. For 95/95 it takes 59 waits (0.95^59 < 0.05) and is then the largest.

**Change points.** Waits that exceed the bound several times in a row are a rare event for waits that are alike: three
in a row have probability 0.05^3 at most. Then the queue has changed, and the history is cut back to its newest waits,
as few as the bound needs.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from penstock.values.waits import Distribution, Estimate, Known, Observation
from penstock.waits.learners.base import NO_HINTS, Hints
from penstock.waits.learners.history import FIRST
from penstock.waits.learners.states import expect, numbers, reading

__all__ = ["Qbets", "needed", "order"]

_VERSION: Final = 1
_KEEP: Final = 1000
_RARE: Final = 3


@functools.cache
def order(n: int, q: float, confidence: float) -> int | None:
    """Which of n waits, the smallest being 1, bounds the q-quantile with this confidence; None when n is too small."""
    reached = 0.0
    for k in range(n):
        chance = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        reached += math.exp(chance + k * math.log(q) + (n - k) * math.log1p(-q))
        if reached >= confidence:
            return k + 1
    return None


def needed(q: float, confidence: float) -> int:
    """The fewest waits from which the bound can be had."""
    return math.ceil(math.log(1.0 - confidence) / math.log(q))


class Qbets:
    """Bounds the `q`-quantile with `confidence`. ValueError unless both lie within (0, 1)."""

    name = "qbets"

    def __init__(self, q: float = 0.95, confidence: float = 0.95) -> None:
        if not (0 < q < 1 and 0 < confidence < 1):
            raise ValueError("q and confidence must lie within (0, 1)")
        self.q, self.confidence = q, confidence
        self._needed = needed(q, confidence)
        self._waits: deque[float] = deque()
        self._sorted: list[float] = []
        self._exceeded = 0

    def bound(self, hints: Hints = NO_HINTS) -> float | None:
        """Seconds that a wait exceeds with probability 1 - q at most; None until enough waits are known."""
        k = order(len(self._sorted), self.q, self.confidence)
        return None if k is None else self._sorted[k - 1]

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """The waits since the last change, alike."""
        if not self._sorted:
            return Distribution.at(FIRST)
        n = len(self._sorted)
        return Distribution(np.array(self._sorted), np.full(n, 1.0 / n))

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The median of the waits since the last change; the bound is no estimate, for 19 of 20 waits are shorter."""
        middle = len(self._sorted) // 2
        return Estimate(-1, self._sorted[middle] if self._sorted else FIRST)

    def update(self, observation: Observation, estimate: Estimate | None, rng: np.random.Generator) -> None:
        """Keep an exact wait; a censored one has no place among order statistics."""
        if observation.known is not Known.EXACT:
            return
        wait, bound = observation.seconds, self.bound()
        self._exceeded = self._exceeded + 1 if bound is not None and wait > bound else 0
        self._waits.append(wait)
        bisect.insort(self._sorted, wait)
        if self._exceeded >= _RARE:
            self._exceeded = 0
            self._cut(self._needed)
        self._cut(_KEEP)

    def _cut(self, keep: int) -> None:
        while len(self._waits) > keep:
            del self._sorted[bisect.bisect_left(self._sorted, self._waits.popleft())]

    def to_state(self) -> dict[str, Any]:
        """See `Learner`."""
        return {"version": _VERSION, "waits": list(self._waits), "exceeded": self._exceeded}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Learner`."""
        with reading("qbets"):
            expect(state, "version", _VERSION)
            waits, exceeded = numbers(state["waits"], _KEEP), int(state["exceeded"])
            if not 0 <= exceeded < _RARE:
                raise ValueError("impossible count of waits beyond the bound")
            self._waits, self._sorted, self._exceeded = deque(waits), sorted(waits), exceeded
