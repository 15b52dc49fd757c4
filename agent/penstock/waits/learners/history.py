"""Learners that keep waits as they were: the last one, and the median of the last eleven. Baselines, and experts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from penstock.values.waits import Distribution, Estimate, Known, Observation
from penstock.waits.learners.base import NO_HINTS, Hints
from penstock.waits.learners.states import expect, numbers, reading

__all__ = ["FIRST", "Last", "Median"]

FIRST: Final = 500.0
"""Seconds to expect of a queue that nothing is known of: the middle one of the paper's 53 alternatives."""

_VERSION: Final = 1


class Median:
    """The median of the last `keep` waits (eleven). A censored one counts as the estimate, moved into its bound."""

    name = "median"

    def __init__(self, keep: int = 11) -> None:
        self._waits: deque[float] = deque(maxlen=keep)

    @property
    def knows(self) -> bool:
        """Whether there was any wait yet."""
        return bool(self._waits)

    @property
    def seconds(self) -> float:
        """The estimate."""
        waits = sorted(self._waits)
        if not waits:
            return FIRST
        middle = len(waits) // 2
        # The mean of the middle two on the scale on which errors are measured.
        return waits[middle] if len(waits) % 2 else math.sqrt(waits[middle - 1] * waits[middle])

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """The kept waits, alike."""
        if not self._waits:
            return Distribution.at(FIRST)
        return Distribution.of(list(self._waits), np.ones(len(self._waits)))

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The median."""
        return Estimate(-1, self.seconds)

    def bound(self, hints: Hints = NO_HINTS) -> float | None:
        """None: eleven waits are too few."""
        return None

    def update(self, observation: Observation, estimate: Estimate | None, rng: np.random.Generator) -> None:
        """Keep the wait."""
        if observation.known is Known.EXACT:
            self._waits.append(observation.seconds)
        elif observation.known is Known.AT_MOST:
            self._waits.append(min(observation.seconds, self.seconds))
        elif observation.known is Known.MORE_THAN:
            self._waits.append(max(observation.seconds, self.seconds))

    def to_state(self) -> dict[str, Any]:
        """See `Learner`."""
        return {"version": _VERSION, "waits": list(self._waits)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Learner`."""
        with reading(self.name):
            expect(state, "version", _VERSION)
            waits = numbers(state["waits"], self._waits.maxlen or 0)
            self._waits.clear()
            self._waits.extend(waits)


class Last(Median):
    """The last wait."""

    name = "last"

    def __init__(self) -> None:
        super().__init__(keep=1)
