"""Expects what somebody else expects of the very job: Slurm's own estimate, or our plan of the queue."""

from __future__ import annotations

import numpy as np

from penstock.values.waits import Distribution, Estimate
from penstock.waits.learners.base import NO_HINTS, Hints
from penstock.waits.learners.history import Median

__all__ = ["Hinted"]


class Hinted(Median):
    """The hint called `hint`, and where there is none the median of the last waits."""

    def __init__(self, hint: str) -> None:
        super().__init__()
        self.name = hint

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """The hint alone."""
        return Distribution.at(hints[self.name]) if self.name in hints else super().distribution(hints)

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The hint."""
        return Estimate(-1, hints.get(self.name, self.seconds))
