"""Hedge over copies of fixed share with different learning rates, and over other experts: the shipped default.

No single (eta, a) is right for every queue: a high eta follows a change at once and chases noise, a low one is slow and
steady. So nine copies learn side by side, three eta times three shares over the ranges 4 to 8 and 0.005 to 0.02, and
a Hedge of the same kind weighs them, together with the last wait and the median of eleven, by what their estimates
would have cost: that is the *history*. A second, slower Hedge weighs the history against what others expect of the very
job, Slurm's own estimate and our plan of the queue, where they are known. Whom of them to trust is a fact about the
site, so the classes of jobs learn it together (`common`). An expert that says nothing of a job is asleep: it is neither
counted nor charged.

The copies' losses reach up to two decades, so that a wait that is off by a factor of a hundred counts for more than one
off by ten; the estimate is the median of all experts' beliefs, mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.values.waits import Distribution, Estimate, Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES, check, logs, nearest
from penstock.waits.learners.base import NO_HINTS, Hints
from penstock.waits.learners.hedge import Pool, charge, fixed_share
from penstock.waits.learners.history import Last, Median
from penstock.waits.learners.states import array, expect, reading

__all__ = ["HINTS", "ShareMix", "trust"]

HINTS: Final = ("slurm", "queue")
"""The experts that speak by hints."""

_VERSION: Final = 3
_BEFORE: Final = 2
"""Had the factors by which waits missed the estimate, too; they are learned by all classes together now (`common`)."""
_UNIT: Final = 1e6
_ETAS: Final = (4.0, 6.0, 8.0)
_SHARES: Final = (0.005, 0.01, 0.02)
_CAP: Final = 2.0
_ETA: Final = 4.0
_SHARE: Final = 0.01
# Which of history and plan is better is a fact about the site that lasts; streaks of luck are not to be followed.
_SLOW_ETA: Final = 0.3
_SLOW_SHARE: Final = 0.001


def trust() -> Pool:
    """A fresh Hedge of history against those who speak by hints."""
    return Pool(("history", *HINTS), _SLOW_ETA, _SLOW_SHARE, reach=_CAP)


class ShareMix:
    """Hedge over experts; `etas` and `shares` span the copies. ValueError for settings out of range.

    `trust` is its own at first; learners of several classes may be given the same one.
    """

    name = "share-mix"

    def __init__(
        self,
        alternatives: Sequence[float] = LIVE_ALTERNATIVES,
        etas: Sequence[float] = _ETAS,
        shares: Sequence[float] = _SHARES,
    ) -> None:
        if not etas or not shares or min(etas) <= 0 or not all(0 <= a < 1 for a in shares):
            raise ValueError("etas must be above 0, shares within [0, 1), at least one each")
        self.alternatives = check(alternatives)
        self._etas, self._shares = tuple(etas), tuple(shares)
        self._values = np.array(self.alternatives)
        self._logs = logs(self.alternatives)
        self._eta = np.repeat(np.array(etas), len(shares))[:, None]
        self._share = np.tile(np.array(shares), len(etas))[:, None]
        m, copies = len(self._values), len(self._eta)
        self._beliefs: NDArray[np.float64] = np.full((copies, m), 1.0 / m)
        self._last, self._median = Last(), Median()
        copied = [f"share-{eta:g}-{share:g}" for eta in etas for share in shares]
        self._history = Pool((*copied, "last", "median"), _ETA, _SHARE, reach=1.0)
        self.trust = trust()

    def weights(self) -> dict[str, float]:
        """How much each of `history`, `slurm` and `queue` counts; they sum to 1."""
        return self.trust.by_name()

    def history(self) -> Distribution:
        """What the waits of the geometry alone make believe: which wait is best to count with."""
        copies = len(self._beliefs)
        own = [one for one in (self._last, self._median) if one.knows]
        weights = self._history.weights
        mixed = np.concatenate([weights[:copies] @ self._beliefs, weights[copies : copies + len(own)]])
        return Distribution.of(np.concatenate([self._values, [one.seconds for one in own]]), mixed)

    def belief(self, hints: Hints = NO_HINTS) -> Distribution:
        """The history, mixed with what others expect of this very job."""
        history, weights = self.history(), self.trust.by_name()
        told = [name for name in HINTS if name in hints]
        if not told:
            return history
        values = np.concatenate([history.values, [hints[name] for name in told]])
        mixed = np.concatenate([weights["history"] * history.weights, [weights[name] for name in told]])
        return Distribution.of(values, mixed)

    def distribution(self, hints: Hints = NO_HINTS) -> Distribution:
        """A belief about which wait is best to count with, narrower than the waits themselves."""
        return self.belief(hints)

    def predict(self, rng: np.random.Generator, hints: Hints = NO_HINTS) -> Estimate:
        """The median of the belief."""
        seconds = self.belief(hints).point
        return Estimate(nearest(self.alternatives, seconds), seconds, self._said(hints))

    def _said(self, hints: Hints) -> dict[str, float]:
        """What every expert says (s), without those that are asleep."""
        medians = (self._beliefs.cumsum(axis=1) >= 0.5).argmax(axis=1)
        said = dict(zip(self._history.names, [self.alternatives[i] for i in medians], strict=False))
        said |= {one.name: one.seconds for one in (self._last, self._median) if one.knows}
        return {**said, "history": self.history().point, **{name: hints[name] for name in HINTS if name in hints}}

    def bound(self, hints: Hints = NO_HINTS) -> float | None:
        """None: the weights say which wait is best to count with, not how waits scatter."""
        return None

    def update(self, observation: Observation, estimate: Estimate | None, rng: np.random.Generator) -> None:
        """Charge every expert for what it said, then every alternative in every copy.

        For what it *said*: by the time a wait is known, others that began meanwhile have been learned from, and an
        expert that only repeats those would look better than it could have been.
        """
        losses = charge(self._logs, observation, _CAP)
        if losses is None:
            return
        said = estimate.said if estimate is not None and "history" in estimate.said else self._said(NO_HINTS)
        self._history.charge(said, observation)
        self.trust.charge(said, observation)
        self._beliefs = fixed_share(self._beliefs, losses, self._eta, self._share)
        self._last.update(observation, None, rng)
        self._median.update(observation, None, rng)

    def to_state(self) -> dict[str, Any]:
        """See `Learner`. Weights in millionths: 10,000 geometries then take less than 50 MB."""
        return {
            "version": _VERSION,
            "alternatives": list(self.alternatives),
            "beliefs": np.rint(self._beliefs * _UNIT).astype(int).tolist(),
            "history": self._history.to_state(),
            "all": self.trust.to_state(),
            "last": self._last.to_state(),
            "median": self._median.to_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Learner`."""
        fresh = ShareMix(self.alternatives, self._etas, self._shares)
        with reading("share-mix"):
            expect(state, "version", _BEFORE if state["version"] == _BEFORE else _VERSION)
            expect(state, "alternatives", list(self.alternatives))
            beliefs = array(state["beliefs"], *self._beliefs.shape, low=0.0) / _UNIT
            if not (np.abs(beliefs.sum(axis=1) - 1.0) < 1e-4).all():
                raise ValueError("the weights do not sum to 1")
            fresh._beliefs = beliefs / beliefs.sum(axis=1, keepdims=True)
            fresh._history.restore(state["history"])
            fresh.trust.restore(state["all"])
            fresh._last.restore(state["last"])
            fresh._median.restore(state["median"])
        self.__dict__.update(fresh.__dict__)
