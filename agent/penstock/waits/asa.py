"""ASA's estimator of queue waits: Algorithm 1 of paper 002, default policy, to the letter.

A distribution p over m fixed alternatives (waits in seconds). A *round* collects trials until one alternative has
been charged more than 1 in total; then every weight is multiplied by exp(-gamma_t * what it was charged):

    p_a <- 1/m                                            (line 0)
    for t = 1, 2, ...:
        l_a <- 0                                          (line 2)
        while max_a l_a <= 1:                             (line 3)
            sample a ~ p, then l_a <- l_a + loss(a)       (lines 4, 5)
        p_a <- exp(-gamma_t * l_a) * p_a / N_t            (line 7)

The loss is 0/1 (equation 3): 0 iff the sampled alternative is the one nearest to the true wait, of two equally near
ones the smaller. The true wait of a stage is known only much later than its estimate is used, so sampling and charging
are two calls; a charge goes to the round that is open when it arrives, whichever round it was sampled in.

**Hidden waits.** When a stage's nodes are ready the moment its parent ends, all that is known is "the true wait w was
at most c". The index nearest to w is then at most the index nearest to c (nearness to a sorted list is monotone), so
exactly the alternatives above nearest(c) are certainly not optimal: those are charged 1, the others nothing. If
nearest(c) is the first alternative this coincides with the exact rule. What is uncertain is never charged, so long
estimates that hide the wait survive; they cost nothing where the dependency keeps nodes from being held early.

The paper's "tuned" and "greedy" sampling policies (section 4.4) are not here.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.waits.base import Estimate, Observation

__all__ = ["ALTERNATIVES", "GAMMAS", "Asa", "nearest"]

ALTERNATIVES: Final[tuple[float, ...]] = tuple(
    float(s)
    for s in (
        *range(10, 100, 5),
        *range(100, 1000, 50),
        *range(1000, 10_000, 1000),
        *range(10_000, 80_000, 10_000),
        100_000,
    )
)
"""The m = 53 alternatives in seconds. Section 4.3 gives m, the maximum (100k s) and "multiples of 10's, 100's, 1k's,
10k's, and 100k" with more of the small ones; it gives no list. This one has 18 + 18 + 9 + 7 + 1."""

GAMMAS: Final[Mapping[str, Callable[[int], float]]] = {
    "constant": lambda t: 1.0,
    "inverse-sqrt": lambda t: 1.0 / math.sqrt(t),
    "harmonic": lambda t: 1.0 / t,
}
"""Non-increasing sequences gamma_t, t = 1, 2, ... The proof (appendix A) has gamma = 1."""

_VERSION: Final = 1
# A log weight this far below the best has p < 1e-260: never drawn, yet exp() does not underflow and a change of the
# queue is not slowed down by weights that fell without bound.
_FLOOR: Final = -600.0


def nearest(alternatives: Sequence[float], wait: float) -> int:
    """The index of the alternative (ascending) nearest to `wait` seconds, of two equally near ones the smaller."""
    right = bisect.bisect_left(alternatives, wait)
    if right == 0:
        return 0
    if right == len(alternatives):
        return right - 1
    return right - 1 if wait - alternatives[right - 1] <= alternatives[right] - wait else right


class Asa:
    """Algorithm 1 for one job geometry. `alternatives` in seconds, strictly ascending; `gamma` a key of `GAMMAS`.

    Raises ValueError for alternatives that are not positive and ascending, and for an unknown gamma.
    """

    def __init__(self, alternatives: Sequence[float] = ALTERNATIVES, gamma: str = "constant") -> None:
        values = tuple(float(a) for a in alternatives)
        if not values or any(not math.isfinite(a) or a < 0 for a in values):
            raise ValueError("alternatives must be finite numbers of seconds >= 0, at least one")
        if any(a >= b for a, b in itertools.pairwise(values)):
            raise ValueError("alternatives must be strictly ascending")
        if gamma not in GAMMAS:
            raise ValueError(f"gamma must be one of {', '.join(GAMMAS)}, not {gamma!r}")
        self.alternatives = values
        self.gamma = gamma
        self.round = 1
        self.trials = 0
        self._log_weights: NDArray[np.float64] = np.zeros(len(values))
        self._losses: NDArray[np.float64] = np.zeros(len(values))

    @property
    def p(self) -> NDArray[np.float64]:
        """The distribution over the alternatives now; sums to 1."""
        weights = np.exp(self._log_weights)
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    @property
    def losses(self) -> tuple[float, ...]:
        """What each alternative has been charged in the open round; none exceeds 1 between calls."""
        return tuple(float(x) for x in self._losses)

    def sample(self, rng: np.random.Generator) -> Estimate:
        """Draw an alternative according to p (line 4). Changes nothing here, only the generator."""
        index = int(rng.choice(len(self.alternatives), p=self.p))
        return Estimate(index, self.alternatives[index])

    def loss(self, index: int, observation: Observation) -> float:
        """Equation 3 for the alternative `index`; if censored, only what is certain (module docstring)."""
        best = nearest(self.alternatives, observation.seconds)
        wrong = index > best if observation.censored else index != best
        return 1.0 if wrong else 0.0

    def charge(self, index: int, observation: Observation) -> float:
        """Charge a sampled alternative with its loss (line 5), closing the round if that is due (lines 3, 7).

        Returns the loss. Raises ValueError for an index that is not an alternative's.
        """
        if not 0 <= index < len(self.alternatives):
            raise ValueError(f"there is no alternative {index}: 0 to {len(self.alternatives) - 1}")
        loss = self.loss(index, observation)
        self.trials += 1
        self._losses[index] += loss
        if self._losses.max() > 1.0:
            self._close_round()
        return loss

    def _close_round(self) -> None:
        """Line 7 in logarithms. Only differences matter, so the best weight is kept at 0: no over- or underflow."""
        weights = self._log_weights - GAMMAS[self.gamma](self.round) * self._losses
        weights -= weights.max()
        self._log_weights = np.maximum(weights, _FLOOR)
        self._losses = np.zeros(len(self.alternatives))
        self.round += 1

    def to_state(self) -> dict[str, Any]:
        """Everything learned, JSON-able and exact."""
        return {
            "version": _VERSION,
            "alternatives": list(self.alternatives),
            "gamma": self.gamma,
            "round": self.round,
            "trials": self.trials,
            "log_weights": [float(w) for w in self._log_weights],
            "losses": [float(x) for x in self._losses],
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], alternatives: Sequence[float] = ALTERNATIVES, gamma: str | None = None
    ) -> Asa:
        """What `to_state` gave. `alternatives` are those wanted now; `gamma` None keeps the saved one.

        Raises ValueError when the state is of another version, was learned over other alternatives, or is damaged:
        what was learned about one list means nothing for another.
        """
        if state.get("version") != _VERSION:
            raise ValueError(f"ASA state has version {state.get('version')!r}, this release reads {_VERSION}")
        if state.get("alternatives") != [float(a) for a in alternatives]:
            raise ValueError("ASA state was learned over other alternatives")
        try:
            asa = cls(alternatives, gamma if gamma is not None else str(state["gamma"]))
            asa.round = int(state["round"])
            asa.trials = int(state["trials"])
            asa._log_weights = np.array(state["log_weights"], dtype=np.float64)
            asa._losses = np.array(state["losses"], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"ASA state is damaged: {error}") from error
        shape = (len(asa.alternatives),)
        whole = asa._log_weights.shape == shape == asa._losses.shape
        if not whole or asa.round < 1 or asa.trials < 0 or not np.isfinite(asa._log_weights).all():
            raise ValueError("ASA state is damaged: wrong length or range")
        if not ((asa._losses >= 0) & (asa._losses <= 1)).all():
            raise ValueError("ASA state is damaged: losses of an open round lie within [0, 1]")
        asa._log_weights = np.maximum(asa._log_weights - asa._log_weights.max(), _FLOOR)
        return asa
