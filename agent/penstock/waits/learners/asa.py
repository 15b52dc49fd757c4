"""ASA's estimator of queue waits: Algorithm 1 of the ASA paper, to the letter, under its three sampling policies.

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

**Policies** (section 4.4). *default* samples from p and charges what was sampled. *greedy* always picks the
alternative of the least perceived loss, the smallest of several, and charges that. *tuned* samples as default does, and
once the true wait is known goes through lines 3 to 7 another `repetition` times with that wait: the replays are drawn
from p as it is by then.

**Censored waits.** When a stage's nodes are ready the moment its parent ends, all that is known is "the true wait w was
at most c". The index nearest to w is then at most the index nearest to c (nearness to a sorted list is monotone), so
exactly the alternatives above nearest(c) are certainly not optimal: those are charged 1, the others nothing. If
nearest(c) is the first alternative this coincides with the exact rule. What is uncertain is never charged, so long
estimates that hide the wait survive; they cost nothing where the dependency keeps nodes from being held early. A wait
of more than c charges the alternatives below nearest(c), by the same argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.values.waits import Distribution, Estimate, Known, Observation
from penstock.waits.learners.alternatives import ALTERNATIVES, check, nearest
from penstock.waits.learners.base import NO_HINTS, Hints
from penstock.waits.learners.states import array, expect, reading

__all__ = ["GAMMAS", "POLICIES", "AsaLearner"]

GAMMAS: Final[Mapping[str, Callable[[int], float]]] = {
    "constant": lambda t: 1.0,
    "inverse-sqrt": lambda t: 1.0 / math.sqrt(t),
    "harmonic": lambda t: 1.0 / t,
}
"""Non-increasing sequences gamma_t, t = 1, 2, ... The proof (appendix A) has gamma = 1."""

POLICIES: Final = ("default", "greedy", "tuned")

_VERSION: Final = 1
# A log weight this far below the best has p < 1e-260: never drawn, yet exp() does not underflow and a change of the
# queue is not slowed down by weights that fell without bound.
_FLOOR: Final = -600.0


class AsaLearner:
    """Algorithm 1 for one job geometry. `alternatives` in seconds, strictly ascending; `gamma` a key of `GAMMAS`.

    Raises ValueError for alternatives that are not positive and ascending, an unknown gamma or policy, and a
    repetition below 0.
    """

    def __init__(
        self,
        alternatives: Sequence[float] = ALTERNATIVES,
        gamma: str = "constant",
        policy: str = "default",
        repetition: int = 50,
    ) -> None:
        values = check(alternatives)
        if gamma not in GAMMAS:
            raise ValueError(f"gamma must be one of {', '.join(GAMMAS)}, not {gamma!r}")
        if policy not in POLICIES or repetition < 0:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, and repetition not below 0")
        self.name = f"asa-{policy}"
        self.alternatives = values
        self.gamma = gamma
        self.policy = policy
        self.repetition = repetition
        self.round = 1
        self.trials = 0
        self._values = np.array(values)
        self._log_weights: NDArray[np.float64] = np.zeros(len(values))
        self._losses: NDArray[np.float64] = np.zeros(len(values))
        self._p: NDArray[np.float64] | None = None

    @property
    def p(self) -> NDArray[np.float64]:
        """The distribution over the alternatives now; sums to 1. Constant within a round."""
        if self._p is None:
            weights = np.exp(self._log_weights)
            self._p = np.asarray(weights / weights.sum(), dtype=np.float64)
        return self._p

    @property
    def losses(self) -> tuple[float, ...]:
        """What each alternative has been charged in the open round; none exceeds 1 between calls."""
        return tuple(float(x) for x in self._losses)

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """The alternatives and p."""
        return Distribution(self._values, self.p)

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The alternative that the policy picks."""
        if self.policy == "greedy":
            perceived = self._losses * GAMMAS[self.gamma](self.round) - self._log_weights
            index = int(perceived.argmin())
        else:
            index = self.distribution().draw(rng)
        return Estimate(index, self.alternatives[index])

    def loss(self, index: int, observation: Observation) -> float:
        """Equation 3 for the alternative `index`; if censored, only what is certain (module docstring)."""
        low, high = self._innocent(observation)
        return 0.0 if low <= index <= high else 1.0

    def bound(self, hints: Hints = NO_HINTS) -> float | None:
        """None: p says which alternative is best, not how waits scatter."""
        return None

    def update(self, observation: Observation, estimate: Estimate | None, rng: np.random.Generator) -> None:
        """Charge the alternative that was picked; tuned: then replay. Learns nothing where there was no estimate."""
        if observation.known is Known.NOTHING or estimate is None or not 0 <= estimate.index < len(self.alternatives):
            return
        self.charge(estimate.index, observation)
        if self.policy == "tuned":
            self._replay(observation, rng)

    def charge(self, index: int, observation: Observation) -> float:
        """Charge a sampled alternative with its loss (line 5), closing the round if that is due (lines 3, 7).

        Returns the loss. Raises ValueError for an index that is not an alternative's.
        """
        if not 0 <= index < len(self.alternatives):
            raise ValueError(f"there is no alternative {index}: 0 to {len(self.alternatives) - 1}")
        loss = self.loss(index, observation)
        self.trials += 1
        if loss:
            self._losses[index] += loss
            if self._losses[index] > 1.0:
                self._close_round()
        return loss

    def _innocent(self, observation: Observation) -> tuple[int, int]:
        """The first and the last alternative that are not charged."""
        best, last = nearest(self.alternatives, observation.seconds), len(self.alternatives) - 1
        match observation.known:
            case Known.EXACT:
                return best, best
            case Known.AT_MOST:
                return 0, best
            case Known.MORE_THAN:
                return best, last
            case _:
                return 0, last

    def _replay(self, observation: Observation, rng: np.random.Generator) -> None:
        """`repetition` trials of Algorithm 1 with one wait. Drawn a round at a time, as p changes only with it."""
        low, high = self._innocent(observation)
        left = self.repetition
        while left:
            drawn = self.p.cumsum().searchsorted(rng.random(left) * (1 - 1e-12))
            used = 0
            for index in drawn.tolist():
                used += 1
                if not low <= index <= high:
                    self._losses[index] += 1.0
                    if self._losses[index] > 1.0:
                        self._close_round()
                        break
            left -= used
            self.trials += used

    def _close_round(self) -> None:
        """Line 7 in logarithms. Only differences matter, so the best weight is kept at 0: no over- or underflow."""
        weights = self._log_weights - GAMMAS[self.gamma](self.round) * self._losses
        weights -= weights.max()
        self._log_weights = np.maximum(weights, _FLOOR)
        self._losses = np.zeros(len(self.alternatives))
        self._p = None
        self.round += 1

    def to_state(self) -> dict[str, Any]:
        """Everything learned, JSON-able and exact."""
        return {
            "version": _VERSION,
            "alternatives": list(self.alternatives),
            "gamma": self.gamma,
            "round": self.round,
            "trials": self.trials,
            "log_weights": self._log_weights.tolist(),
            "losses": self._losses.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave; the policy and gamma stay those wanted now.

        Raises ValueError when the state is of another version, was learned over other alternatives, or is damaged:
        what was learned about one list means nothing for another.
        """
        with reading("ASA"):
            expect(state, "version", _VERSION)
            expect(state, "alternatives", list(self.alternatives))
            m = len(self.alternatives)
            weights = array(state["log_weights"], m)
            losses = array(state["losses"], m, low=0.0, high=1.0)
            number, trials = int(state["round"]), int(state["trials"])
            if number < 1 or trials < 0:
                raise ValueError("impossible counts")
        self.round, self.trials, self._losses, self._p = number, trials, losses, None
        self._log_weights = np.maximum(weights - weights.max(), _FLOOR)
