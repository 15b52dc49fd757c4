"""Fixed-share Hedge over the alternatives: every one is charged once the true wait is known.

Unlike Algorithm 1, which charges what it picked and whose fixed point under noisy waits is p ~ 1 / (rate of loss), it
settles on the alternative of least mean loss, and leaves it again when the queue changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.values.waits import Distribution, Estimate, Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES, check, logs
from penstock.waits.learners.base import NO_HINTS, Hints
from penstock.waits.learners.hedge import charge, fixed_share
from penstock.waits.learners.states import array, expect, reading

__all__ = ["ShareLearner"]

_VERSION: Final = 1


class ShareLearner:
    """`eta`: how fast weights follow losses (4 to 8); `share`: what is dealt out anew at each wait (0.005 to 0.02).

    The loss is min(1, |log10(theta / wait)|), or the pinball loss of the chosen `quantile`: then the estimate is
    meant to be exceeded by 1 - quantile of the waits. ValueError for settings out of range.
    """

    name = "share"

    def __init__(
        self,
        alternatives: Sequence[float] = LIVE_ALTERNATIVES,
        eta: float = 8.0,
        share: float = 0.02,
        quantile: float = 0.5,
    ) -> None:
        if not (eta > 0 and 0 <= share < 1 and 0 < quantile < 1):
            raise ValueError("eta must be above 0, share within [0, 1), quantile within (0, 1)")
        self.alternatives = check(alternatives)
        self.eta, self.share, self.quantile = eta, share, quantile
        self._values = np.array(self.alternatives)
        self._logs = logs(self.alternatives)
        self._weights: NDArray[np.float64] = np.full(len(self._values), 1.0 / len(self._values))

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """The weights: a belief about which alternative is best, narrower than the waits themselves."""
        return Distribution(self._values, self._weights)

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The weighted median."""
        index = Distribution(self._values, self._weights).index(0.5)
        return Estimate(index, self.alternatives[index])

    def bound(self, hints: Hints = NO_HINTS) -> float | None:
        """None: the weights say which alternative is best, not how waits scatter."""
        return None

    def update(self, observation: Observation, estimate: Estimate | None, rng: np.random.Generator) -> None:
        """Charge every alternative."""
        losses = charge(self._logs, observation, 1.0, self.quantile)
        if losses is not None:
            self._weights = fixed_share(self._weights, losses, self.eta, self.share)

    def to_state(self) -> dict[str, Any]:
        """See `Learner`."""
        return {"version": _VERSION, "alternatives": list(self.alternatives), "weights": self._weights.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Learner`."""
        with reading("share"):
            expect(state, "version", _VERSION)
            expect(state, "alternatives", list(self.alternatives))
            weights = array(state["weights"], len(self._values), low=0.0)
            if not abs(weights.sum() - 1.0) < 1e-6:
                raise ValueError("the weights do not sum to 1")
            self._weights = weights
