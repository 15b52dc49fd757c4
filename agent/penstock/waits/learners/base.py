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

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.values.waits import Distribution, Estimate, Observation

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "BOUND",
    "LIMITS",
    "NO_HINTS",
    "PLANNED",
    "PROMISE",
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
