"""Expects what somebody else expects of the very job: Slurm's own estimate, or our plan of the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.waits.base import NO_HINTS, Distribution, Estimate, Hints, Observation
from penstock.waits.history import Median
from penstock.waits.spread import Spread

__all__ = ["Hinted"]


class Hinted(Median):
    """The hint called `hint`, and where there is none the median of the last waits."""

    def __init__(self, hint: str) -> None:
        super().__init__()
        self.name = hint
        self.spread = Spread()

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """The hint times the factors by which waits missed it of late; the hint alone while too few are known."""
        if self.name not in hints:
            return super().distribution(hints)
        return self.spread.around(hints[self.name]) or Distribution.at(hints[self.name])

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The hint."""
        return Estimate(-1, hints.get(self.name, self.seconds))

    def bound(self, hints: Hints = NO_HINTS) -> float | None:
        """The hint times the factor that has covered 95 of 100 waits of late."""
        return self.spread.bound(hints.get(self.name, self.seconds))

    def update(self, observation: Observation, estimate: Estimate | None, rng: np.random.Generator) -> None:
        """Keep the wait, and by how much the estimate missed it."""
        if estimate is not None:
            self.spread.add(observation, estimate.seconds)
        super().update(observation, estimate, rng)

    def to_state(self) -> dict[str, Any]:
        """See `Learner`."""
        return {**super().to_state(), "spread": self.spread.to_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Learner`."""
        fresh = Hinted(self.name)
        Median.restore(fresh, state)
        fresh.spread.restore(state.get("spread", {}))
        self.__dict__.update(fresh.__dict__)
