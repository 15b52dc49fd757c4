"""Every geometry's learner, kept in the agent's store: predict, observe, remember."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np

from penstock.api import Geometry
from penstock.waits.base import BOUND, NO_HINTS, Estimate, Hints, Known, Learner, Observation
from penstock.waits.geometry import classify
from penstock.waits.pooling import WaitStore, begin

__all__ = ["LearnerStorage", "ModelStore"]

_AT_HAND: Final = 256
"""Learners kept in memory between predictions; a stored one takes a third of a millisecond to read."""


class LearnerStorage(WaitStore, Protocol):
    """Where learned state is kept (the agent's store)."""

    def learned(self, key: str) -> dict[str, Any] | None:
        """A learner's saved state. ValueError when it is damaged."""
        ...

    def save_learned(self, key: str, state: Mapping[str, Any], now: float) -> None:
        """Save a learner's state."""
        ...

    def set_aside(self, key: str, now: float) -> None:
        """Keep a state that is of no use where a person can find it."""
        ...

    def add_wait(
        self, key: str, estimate: float | None, wait: float, censored: int, now: float, bound: float | None = None
    ) -> None:
        """Keep an observed wait."""
        ...


class ModelStore:
    """A learner per class of geometries over a `LearnerStorage`, so that concurrent workflows share what is learned
    (ASA paper, 4.3); `per_user` false: users, too.

    `fresh` makes a learner that knows nothing, which then begins with the waits of geometries like its own. Saved state
    that is damaged, newer, or learned over other alternatives is set aside and `say(key, why)` told so, once; learning
    starts afresh. `complete` fills in what the site knows of a geometry, `hints` says what others expect of its job
    that is submitted now. `seed` only for demos and tests.
    """

    def __init__(
        self,
        memory: LearnerStorage,
        now: Callable[[], float],
        fresh: Callable[[], Learner],
        *,
        say: Callable[[str, str], None] = lambda key, why: None,
        hints: Callable[[Geometry], Hints] = lambda geometry: NO_HINTS,
        complete: Callable[[Geometry], Geometry] = lambda geometry: geometry,
        per_user: bool = True,
        seed: int | None = None,
    ) -> None:
        self._memory = memory
        self._now = now
        self._fresh = fresh
        self._say = say
        self._hints = hints
        self._complete = complete
        self._per_user = per_user
        self._rng = np.random.default_rng(seed)
        # With whether it has learned itself; else it knows others' waits only.
        self._at_hand: OrderedDict[str, tuple[Learner, bool]] = OrderedDict()
        self.name = fresh().name  # a wrong setting fails here, not at the first workflow

    def key(self, geometry: Geometry) -> str:
        """What the geometry's waits are kept under."""
        return classify(self._complete(geometry), per_user=self._per_user).key

    def learner(self, geometry: Geometry) -> Learner:
        """What is known of a geometry. It is not to be changed."""
        key = self.key(geometry)
        if key not in self._at_hand:
            self._at_hand[key] = self._read(geometry)
            if len(self._at_hand) > _AT_HAND:
                self._at_hand.popitem(last=False)
        self._at_hand.move_to_end(key)
        return self._at_hand[key][0]

    def hints(self, geometry: Geometry) -> Hints:
        """What others expect of a job of this geometry that is submitted now."""
        return self._hints(self._complete(geometry))

    def predict(self, geometry: Geometry) -> Estimate:
        """The wait to count with for a job of this geometry."""
        learner, hints = self.learner(geometry), self.hints(geometry)
        estimate = learner.predict(self._rng, hints)
        bound = learner.bound(hints)
        return estimate if bound is None else replace(estimate, said={**estimate.said, BOUND: bound})

    def expected(self, geometry: Geometry) -> float:
        """The wait (s) that is believed of a job of this geometry now: the median, the same however often it is asked
        for. `predict` is what is learned by, and a learner may draw it at random."""
        return self.learner(geometry).distribution(self.hints(geometry)).point

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        """Learn from a wait; `estimate` is its prediction, None where there was none."""
        if observation.known is Known.NOTHING:
            return
        now, key = self._now(), self.key(geometry)
        # From the store, and none at hand: what is learned inside a transaction may yet be undone.
        # What others began with is no longer all that is known.
        for old in [k for k, (_, own) in self._at_hand.items() if k == key or not own]:
            del self._at_hand[old]
        learner, _ = self._read(geometry)
        said = (None, None) if estimate is None else (estimate.seconds, estimate.said.get(BOUND))
        self._memory.add_wait(key, said[0], observation.seconds, int(observation.known), now, said[1])
        learner.update(observation, estimate, self._rng)
        self._memory.save_learned(f"{self.name} {key}", learner.to_state(), now)

    def import_waits(self, waits: Iterable[tuple[Geometry, float, float]]) -> int:
        """Keep waits (geometry, seconds, when the job started) that nobody predicted, say from accounting; how many.

        Learners of geometries that have none yet begin with them.
        """
        count = 0
        for geometry, seconds, at in waits:
            self._memory.add_wait(self.key(geometry), None, seconds, int(Known.EXACT), at)
            count += 1
        self._at_hand.clear()
        return count

    def _read(self, geometry: Geometry) -> tuple[Learner, bool]:
        """The learner as the store has it, and whether it has learned itself; else it begins with others' waits."""
        wanted = classify(self._complete(geometry), per_user=self._per_user)
        learner, name = self._fresh(), f"{self.name} {wanted.key}"
        try:
            state = self._memory.learned(name)
            if state is not None:
                learner.restore(state)
                return learner, True
        except ValueError as error:
            self._memory.set_aside(name, self._now())
            self._say(name, str(error))
            learner = self._fresh()
        begin(learner, wanted, self._memory, self._rng)
        return learner, False
