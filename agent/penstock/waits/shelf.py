"""Every geometry's learner, kept in the agent's store: predict, observe, remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from penstock.api import Geometry
from penstock.waits.asa import ALTERNATIVES, Asa
from penstock.waits.base import Estimate, Observation

__all__ = ["Memory", "Shelf"]


class Memory(Protocol):
    """Where learned state is kept (the agent's store)."""

    def learned(self, key: str) -> dict[str, Any] | None:
        """A learner's saved state."""
        ...

    def save_learned(self, key: str, state: Mapping[str, Any], now: float) -> None:
        """Save a learner's state."""
        ...

    def add_wait(self, key: str, estimate: float | None, wait: float, censored: bool, now: float) -> None:
        """Keep an observed wait."""
        ...


class Shelf:
    """Algorithm 1 per geometry over a `Memory`, so that concurrent workflows share what is learned (paper 002, 4.3).

    State learned over other alternatives is of no use and is started afresh. `seed` only for demos and tests.
    """

    def __init__(
        self,
        memory: Memory,
        now: Callable[[], float],
        alternatives: Sequence[float] = ALTERNATIVES,
        gamma: str = "constant",
        seed: int | None = None,
    ) -> None:
        self._memory = memory
        self._now = now
        self._alternatives = tuple(alternatives)
        self._gamma = gamma
        self._rng = np.random.default_rng(seed)
        Asa(self._alternatives, gamma)  # a wrong setting fails here, not at the first workflow

    def learner(self, geometry: Geometry) -> Asa:
        """What is known of a geometry; uniform if nothing is."""
        state = self._memory.learned(_key(geometry))
        if state is None:
            return Asa(self._alternatives, self._gamma)
        try:
            return Asa.from_state(state, self._alternatives, self._gamma)
        except ValueError:
            return Asa(self._alternatives, self._gamma)

    def predict(self, geometry: Geometry) -> Estimate:
        """Draw a wait for a job of this geometry."""
        return self.learner(geometry).sample(self._rng)

    def observe(self, geometry: Geometry, index: int | None, observation: Observation, estimate: float | None) -> None:
        """Learn from a wait; `index` and `estimate` are those of its prediction, None where there was none."""
        now = self._now()
        self._memory.add_wait(geometry.key, estimate, observation.seconds, observation.censored, now)
        if index is not None and 0 <= index < len(self._alternatives):
            learner = self.learner(geometry)
            learner.charge(index, observation)
            self._memory.save_learned(_key(geometry), learner.to_state(), now)


def _key(geometry: Geometry) -> str:
    return f"asa {geometry.key}"
