"""Corrects our plan of the queue by what became of the jobs before: one learner per cluster, fed by every job.

Each job that is seen in the queue gives an example once it starts: what the queue showed when the job was submitted,
and how long it then waited. The newest 15,000 are kept, and boosted trees (`trees`) are fitted to the logarithm of
their waits, anew after every half as many as at the time before, at most 3,000. A wait enters when it is over and not
before, so nothing is learned from the future. Until 300 are known the plan by likely run times stands as it is.

How far waits fall from what was expected of them is learned of every job, too (`bounds`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from penstock.values.waits import Observation
from penstock.waits.learners.bounds import LEAST, Bounds
from penstock.waits.learners.queue_view import FEATURES, View
from penstock.waits.learners.states import array, expect, reading
from penstock.waits.learners.trees import Trees, fit

__all__ = ["QueueLearner"]

_VERSION: Final = 1
_KEEP: Final = 15_000
_SAVED: Final = 4_000
_FIRST: Final = 300
_PERIOD: Final = 3_000
_TIME_OF_DAY: Final = FEATURES.index("time_of_day")


class QueueLearner:
    """Expects waits from views of the queue. `seed` decides which part of the examples each tree sees."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._examples: deque[tuple[tuple[float, ...], float]] = deque(maxlen=_KEEP)
        self._model: Trees | None = None
        self._new = 0
        self._fits = 0
        self.bounds = Bounds()

    def __len__(self) -> int:
        return len(self._examples)

    def times_and_waits(self) -> list[tuple[float, float]]:
        """Of each example: when in the day (s, UTC) it was submitted, and how long it waited (s), `LEAST` for less."""
        return [(features[_TIME_OF_DAY], 10.0**log) for features, log in tuple(self._examples)]

    @property
    def due(self) -> bool:
        """Whether there is enough new to fit again: `refit` takes up to two seconds."""
        known = len(self._examples)
        return known >= _FIRST and self._new >= min(_PERIOD, max(_FIRST, (known - self._new) // 2))

    def expect(self, view: View) -> float | None:
        """The wait (s) of a job that sees this; None when the plan has no place for it, nor anything was learned."""
        if self._model is None:
            planned = view.planned if view.likely is None else view.likely
            return None if planned is None else max(planned, LEAST)
        return float(max(10.0 ** self._model.predict(np.array(view.features)), LEAST))

    def bound(self, expected: float) -> float | None:
        """Seconds that 95 of 100 waits do not exceed of which `expected` (s) is said; None while too few are known."""
        return self.bounds.bound(expected) if self.bounds.known else None

    def add(self, view: View, wait: float, expected: float | None = None, bound: float | None = None) -> None:
        """A job that saw this has started after `wait` seconds; `expected` and `bound` (s) were said of it."""
        if expected is not None:
            self.bounds.add(Observation(wait), expected, bound)
        self._examples.append((view.features, math.log10(max(wait, LEAST))))
        self._new += 1

    def refit(self) -> None:
        """Fit to the examples as they are now."""
        table = np.array([features for features, _ in self._examples])
        target = np.array([log for _, log in self._examples])
        self._fits += 1
        self._model = fit(table, target, np.random.default_rng([self._seed, self._fits]))
        self._new = 0

    def to_state(self) -> dict[str, Any]:
        """JSON-able: the model, and the newest examples."""
        newest = list(self._examples)[-_SAVED:]
        return {
            "version": _VERSION,
            "features": list(FEATURES),
            "fits": self._fits,
            "model": None if self._model is None else self._model.to_state(),
            "examples": [[*(float(f"{x:.5g}") for x in features), round(log, 4)] for features, log in newest],
            "bounds": self.bounds.to_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged, newer, or of other features.

        The model was fitted to more than is kept of the examples, so it stays until as many are new again.
        """
        with reading("queue"):
            expect(state, "version", _VERSION)
            expect(state, "features", list(FEATURES))
            examples = state["examples"]
            count, width = len(examples), len(FEATURES) + 1
            rows = array(examples, count, width) if count else np.empty((0, width))
            model = None if state["model"] is None else Trees.from_state(state["model"], len(FEATURES))
            fits, bounds = int(state["fits"]), Bounds()
            bounds.restore(state["bounds"])
        self.bounds = bounds
        self._examples.clear()
        self._examples.extend((tuple(row[:-1].tolist()), float(row[-1])) for row in rows)
        self._model, self._fits, self._new = model, fits, 0
