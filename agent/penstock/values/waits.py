"""A wait in the queue: what was predicted of it, and what was seen of it afterwards. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Distribution", "Estimate", "Known", "Observation"]

_NOTHING: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted wait of `seconds`. `index` says which alternative it is, -1 where it is none.

    `said` is what else was said of the wait (s, by name): by each of the learner's experts, and as its
    bound. The whole estimate comes back with the observation.
    """

    index: int
    seconds: float
    said: Mapping[str, float] = field(default_factory=lambda: _NOTHING)


class Known(IntEnum):
    """What is known of a wait. The numbers are kept in the store."""

    EXACT = 0
    """It was so long."""
    AT_MOST = 1
    """Left-censored: the nodes were ready as soon as the stage before had ended, when they could have been had earlier
    is hidden."""
    MORE_THAN = 2
    """Right-censored: the job still waits after so long, or was cancelled then."""
    NOTHING = 3
    """There was no wait, or it says nothing about the queue (a hold, a maintenance, a licence): learn nothing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a wait: so many seconds, known to be that exactly, at most or at least (`Known`).

    Raises ValueError for a wait that is negative or not finite.
    """

    seconds: float
    known: Known = Known.EXACT

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds) or self.seconds < 0:
            raise ValueError(f"a wait is a finite number of seconds >= 0, not {self.seconds!r}")

    @classmethod
    def at_most(cls, seconds: float) -> Observation:
        """The wait was hidden behind the stage before: at most this long."""
        return cls(seconds, Known.AT_MOST)

    @classmethod
    def more_than(cls, seconds: float) -> Observation:
        """Still waiting after this long, or cancelled then."""
        return cls(seconds, Known.MORE_THAN)

    @classmethod
    def nothing(cls) -> Observation:
        """Nothing to be learned from."""
        return cls(0.0, Known.NOTHING)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Waits in seconds, ascending, and their probabilities, which sum to 1."""

    values: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def at(cls, seconds: float) -> Distribution:
        """All of it at one wait."""
        import numpy as np  # each command loads this module, and few need that

        return cls(np.array([seconds]), np.ones(1))

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64], weights: NDArray[np.float64]) -> Distribution:
        """From waits in any order with weights of any positive sum."""
        import numpy as np

        seconds = np.asarray(values, dtype=np.float64)
        order = seconds.argsort(kind="stable")
        return cls(seconds[order], weights[order] / weights.sum())

    @property
    def point(self) -> float:
        """The median, in seconds: half of the waits are longer. It minimises the expected |log10(estimate / wait)|."""
        return self.quantile(0.5)

    def quantile(self, q: float) -> float:
        """The smallest wait (s) that is not exceeded with probability `q`."""
        return float(self.values[self.index(q)])

    def index(self, q: float) -> int:
        """Which of `values` that is."""
        reached = int(self.weights.cumsum().searchsorted(q * (1 - 1e-12)))
        return min(reached, len(self.values) - 1)

    def draw(self, rng: np.random.Generator) -> int:
        """Which of `values` a random draw gives."""
        return self.index(float(rng.random()))
