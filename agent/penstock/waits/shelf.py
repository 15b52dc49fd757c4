"""Every geometry's learner, kept in the agent's store: predict, observe, remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from penstock.api import Geometry
from penstock.waits.base import NO_HINTS, Estimate, Hints, Known, Learner, Observation

__all__ = ["Memory", "Shelf"]


class Memory(Protocol):
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

    def add_wait(self, key: str, estimate: float | None, wait: float, censored: int, now: float) -> None:
        """Keep an observed wait."""
        ...


class Shelf:
    """A learner per geometry over a `Memory`, so that concurrent workflows share what is learned (paper 002, 4.3).

    `fresh` makes a learner that knows nothing. Saved state that is damaged, newer, or learned over other alternatives
    is set aside and `say(key, why)` told so, once; learning starts afresh. `hints` says what others expect of a
    geometry's job that is submitted now. `seed` only for demos and tests.
    """

    def __init__(
        self,
        memory: Memory,
        now: Callable[[], float],
        fresh: Callable[[], Learner],
        *,
        say: Callable[[str, str], None] = lambda key, why: None,
        hints: Callable[[Geometry], Hints] = lambda geometry: NO_HINTS,
        seed: int | None = None,
    ) -> None:
        self._memory = memory
        self._now = now
        self._fresh = fresh
        self._say = say
        self._hints = hints
        self._rng = np.random.default_rng(seed)
        self.name = fresh().name  # a wrong setting fails here, not at the first workflow

    def learner(self, geometry: Geometry) -> Learner:
        """What is known of a geometry."""
        learner, key = self._fresh(), self._key(geometry)
        try:
            state = self._memory.learned(key)
            if state is not None:
                learner.restore(state)
        except ValueError as error:
            self._memory.set_aside(key, self._now())
            self._say(key, str(error))
        return learner

    def predict(self, geometry: Geometry) -> Estimate:
        """The wait to count with for a job of this geometry."""
        return self.learner(geometry).predict(self._rng, self._hints(geometry))

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        """Learn from a wait; `estimate` is its prediction, None where there was none."""
        if observation.known is Known.NOTHING:
            return
        now = self._now()
        seconds = None if estimate is None else estimate.seconds
        self._memory.add_wait(geometry.key, seconds, observation.seconds, int(observation.known), now)
        learner = self.learner(geometry)
        learner.update(observation, estimate, self._rng)
        self._memory.save_learned(self._key(geometry), learner.to_state(), now)

    def _key(self, geometry: Geometry) -> str:
        return f"{self.name} {geometry.key}"
