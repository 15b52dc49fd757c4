"""What a predictor of queue waits can do, and what it is told afterwards. Pure: randomness is handed in.

Another predictor is one class with the two methods of `WaitPredictor`; `shelf.Shelf` is the one in use, Algorithm 1
per geometry. What it learns is saved in the transaction that stores the workflow whose stage was observed. A complete
predictor that always expects the same wait:

    class Constant:
        '''Expects 60 s whatever happens.'''

        def predict(self, geometry):
            return Estimate(0, 60.0)

        def observe(self, geometry, index, observation, estimate):
            pass
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from penstock.api import Geometry

__all__ = ["Estimate", "Observation", "WaitPredictor"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted wait of `seconds`. `index` says which alternative it is; it comes back with the observation."""

    index: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Observation:
    """A wait that was seen, in seconds.

    Exact, or `censored`: the true wait was at most `seconds` (the nodes were ready as soon as the stage before had
    ended, so when they could have been had earlier is hidden; left-censored).

    Raises ValueError for a wait that is negative or not finite.
    """

    seconds: float
    censored: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds) or self.seconds < 0:
            raise ValueError(f"a wait is a finite number of seconds >= 0, not {self.seconds!r}")


class WaitPredictor(Protocol):
    """Predicts how long a job of a geometry will wait, and learns from what really happened."""

    def predict(self, geometry: Geometry) -> Estimate:
        """How long a job of this geometry, submitted now, is going to wait. May be random; learns nothing."""
        ...

    def observe(self, geometry: Geometry, index: int | None, observation: Observation, estimate: float | None) -> None:
        """A job of this geometry waited. `index` and `estimate` (s) are those of its prediction, None without one.

        Called once per job, in any order, possibly days after `predict`.
        """
        ...
