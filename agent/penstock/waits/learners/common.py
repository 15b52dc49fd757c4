"""What the learners of all classes of a cluster learn together: who is to be trusted, and how far waits scatter.

A class of jobs has few waits of its own. Whether the queue's plan or history is nearer to the truth, and how far waits
fall from what was expected, are facts about the site, so every wait of every class teaches them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from penstock.values.waits import Estimate, Known, Observation
from penstock.waits.learners.base import BOUND, LIMITS, PLANNED, PROMISE, Hints
from penstock.waits.learners.bounds import Bounds
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.share_mix import trust
from penstock.waits.learners.states import expect, numbers, reading

__all__ = ["OWN", "Common"]

OWN: Final = ("penstock", "slurm")
"""Who is judged on the jobs that were predicted: we, and Slurm's own estimate (`sbatch --test-only`)."""

_VERSION: Final = 1
_KEEP: Final = 2000
_JUDGED: Final = 500
_LATEST: Final = 200
_FEW: Final = 5
_SOON: Final = 60.0
"""Seconds within which Slurm starts what has room: it looks once in half a minute."""


class Common:
    """`trust` weighs the experts of `share-mix`; `bounds` are those of every learner that has none of its own; `judged`
    has the waits that Slurm, too, said something of."""

    def __init__(self) -> None:
        self.trust = trust()
        self.bounds = Bounds(keep=_KEEP)
        self._held: deque[bool] = deque(maxlen=_LATEST)  # whether the plan's bounds were
        self.judged = Judged(OWN, _JUDGED)

    def bound(self, estimate: Estimate, hints: Hints) -> float:
        """Seconds that 95 of 100 waits do not exceed of which `estimate` is said, no less than that.

        The plan's bound is learned from every job of the queue. Jobs that are predicted here may fare otherwise: when
        more than twice as many as promised have missed it of late, it is no less than what those that are predicted
        here say by themselves. While too few waits are known to say anything, it is no more than time limits allow.
        """
        most = max(hints.get(PLANNED, 0.0), estimate.seconds)
        if PLANNED in hints and self._holds:
            return most
        found = max(most, self.bounds.bound(estimate.seconds))
        if LIMITS in hints and not self.bounds.known:
            # Ten times the estimate is a guess: the limits of those before it leave no room for most of it.
            found = min(found, max(most, hints[LIMITS], self.bounds.at_least(estimate.seconds), _SOON))
        return found

    @property
    def _holds(self) -> bool:
        missed = self._held.count(False)
        return missed <= _FEW or missed <= 2 * (1.0 - PROMISE) * len(self._held)

    def learn(self, observation: Observation, estimate: Estimate) -> None:
        """A wait, and what was said of it. The trust is charged by the learner that has it."""
        said = estimate.said
        self.bounds.add(observation, estimate.seconds, None if PLANNED in said else said.get(BOUND))
        if observation.known is Known.EXACT and PLANNED in said:
            self._held.append(observation.seconds <= said[PLANNED])
        if observation.known is Known.EXACT and "slurm" in said:
            self.judged.add(observation.seconds, {"penstock": estimate.seconds, "slurm": said["slurm"]})

    def to_state(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "version": _VERSION,
            "trust": self.trust.to_state(),
            "bounds": self.bounds.to_state(),
            "held": [int(one) for one in self._held],
            "judged": self.judged.to_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged or newer."""
        fresh = Common()
        with reading("common"):
            expect(state, "version", _VERSION)
            fresh.trust.restore(state["trust"])
            fresh._held.extend(x > 0 for x in numbers(state["held"], _LATEST))
            bounds, judged = state["bounds"], state["judged"]
        fresh.bounds.restore(bounds)
        fresh.judged.restore(judged)
        self.__dict__.update(fresh.__dict__)
