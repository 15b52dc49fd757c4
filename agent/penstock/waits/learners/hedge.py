"""Losses on a logarithmic scale and the fixed-share update that `share` and `share_mix` have in common; experts that
are weighed by it.

Fixed share (Herbster and Warmuth, Machine Learning 32, 1998): w <- (1 - a) w exp(-eta l) / Z + a / m. Every
alternative is charged what it would have cost, not only the one that was picked, and a share `a` of the weight is dealt
out anew, so that none is ever lost and a queue that changes is followed within a few waits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.values.waits import Known, Observation
from penstock.waits.learners.alternatives import LEAST, logs
from penstock.waits.learners.states import array

__all__ = ["Pool", "charge", "fixed_share"]

Array = NDArray[np.float64]


def charge(logs: Array, observation: Observation, cap: float, quantile: float = 0.5) -> Array | None:
    """What waits of so many `logs` (log10 of seconds) would have cost; None when nothing is known.

    The pinball loss for `quantile`, doubled, of log10(theta / wait), at most `cap`: at 0.5 it is |log10(theta / wait)|.
    Of a censored wait only what is certain is charged: below "at most" and above "more than" nothing.
    """
    if observation.known is Known.NOTHING:
        return None
    over: Array = logs - math.log10(max(observation.seconds, LEAST))
    if observation.known is Known.AT_MOST:
        over = np.maximum(over, 0.0)
    elif observation.known is Known.MORE_THAN:
        over = np.minimum(over, 0.0)
    if quantile == 0.5:
        return np.minimum(np.abs(over), cap)
    return np.minimum(np.maximum(2 * (1 - quantile) * over, -2 * quantile * over), cap)


def fixed_share(weights: Array, losses: Array, eta: float | Array, share: float | Array) -> Array:
    """The new weights: one distribution, or one a row with `eta` and `share` as columns. `losses` per weight."""
    new: Array = weights * np.exp(-eta * losses)
    new *= (1.0 - share) / new.sum(axis=-1, keepdims=True)
    new += share / new.shape[-1]
    return new


class Pool:
    """Hedge with fixed share over named experts, of which some may be asleep. Losses are at most `reach` decades."""

    def __init__(self, names: Sequence[str], eta: float, share: float, reach: float) -> None:
        self.names = tuple(names)
        self._eta, self._share, self._reach = eta, share, reach
        self.weights: Array = np.full(len(self.names), 1.0 / len(self.names))

    def by_name(self) -> dict[str, float]:
        """How much each counts; they sum to 1."""
        return dict(zip(self.names, self.weights.tolist(), strict=True))

    def charge(self, said: Mapping[str, float], observation: Observation) -> None:
        """A wait of which they `said` so many seconds, those that were awake. NOTHING is not to be charged."""
        awake = [i for i, name in enumerate(self.names) if name in said]
        losses = charge(logs([said[self.names[i]] for i in awake]), observation, self._reach)
        assert losses is not None
        before = self.weights[awake]
        total = before.sum()
        self.weights[awake] = total * fixed_share(before / total, losses, self._eta, self._share)

    def to_state(self) -> list[float]:
        """JSON-able, to seven decimals."""
        return [round(w, 7) for w in self.weights.tolist()]

    def restore(self, state: object) -> None:
        """Take over what `to_state` gave; a broken one raises what `states.reading` makes a ValueError of."""
        weights = array(state, len(self.names), low=0.0)
        if not abs(weights.sum() - 1.0) < 1e-4:
            raise ValueError("the weights do not sum to 1")
        self.weights = weights / weights.sum()
