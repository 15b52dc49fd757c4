"""What a predictor of queue waits can do, and what it is told afterwards. Pure: randomness is handed in.

A `Learner` knows one geometry. It holds a distribution over waits, from which come an estimate, a quantile or a draw,
and is updated with what is known of a wait afterwards. A complete one that expects the last wait again:

    class Last:
        '''The last wait that was seen.'''

        name = "last"

        def __init__(self):
            self.seconds = 60.0

        def distribution(self, hints=NO_HINTS):
            return Distribution.at(self.seconds)

        def predict(self, rng, hints=NO_HINTS):
            return Estimate(-1, self.seconds)

        def bound(self, hints=NO_HINTS):
            return None

        def update(self, observation, estimate, rng):
            if observation.known is Known.EXACT:
                self.seconds = observation.seconds

        def to_state(self):
            return {"version": 1, "seconds": self.seconds}

        def restore(self, state):
            self.seconds = float(state["seconds"])

`model_store.ModelStore` knows all geometries, with a learner for each. What it learns is saved in the transaction that
stores the workflow whose stage was observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.values.waits import Estimate, Observation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BOUND",
    "LIMITS",
    "NO_HINTS",
    "PLANNED",
    "PROMISE",
    "Distribution",
    "Hints",
    "Learner",
]

Hints = Mapping[str, float]
"""What others expect of this very job, in seconds, by name: `slurm` its own estimate, `queue` our plan of the queue,
`queue95` what 95 of 100 jobs of which that is expected do not exceed, `limits` when it starts if all run to the end of
their time limits and nobody is put before it."""

NO_HINTS: Final[Hints] = MappingProxyType({})


PROMISE: Final = 0.95
"""The share of waits that a bound is to cover."""
BOUND: Final = "bound95"
"""The name that the bound has among what is said."""
PLANNED: Final = "queue95"
"""The name of the plan's bound among hints, and among what is said."""
LIMITS: Final = "limits"
"""The name of the wait by time limits among hints."""


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


class Learner(Protocol):
    """Learns the waits of one geometry."""

    name: str
    """What it is called in the configuration."""

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """What is believed now of a job submitted now."""
        ...

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The wait to count with: the median, or what else the learner's policy picks. Learns nothing."""
        ...

    def bound(self, hints: Hints = NO_HINTS) -> float | None:
        """Seconds that 95 of 100 waits do not exceed; None where the learner has no way of its own to say (yet): then
        `common` tells it from how far waits fell from the learner's estimates."""
        ...

    def update(self, observation: Observation, estimate: Estimate | None, rng: np.random.Generator) -> None:
        """Learn from a wait; `estimate` is what `predict` said of it, None where it was not asked."""
        ...

    def to_state(self) -> dict[str, Any]:
        """Everything learned, JSON-able and exact; `version` tells the form."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged, newer, or does not fit."""
        ...
