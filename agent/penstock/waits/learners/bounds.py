"""How far waits fall from what was expected of them, by how long that was: what makes a bound that can be counted on.

A wait that is expected to be short scatters otherwise than one that is expected to be long: a job that should start at
once may wait for hours, one that should wait a day hardly waits for ten. So the logarithms of wait / estimate are kept
in *bins* of the estimate, which hold equally many of the newest waits each, of all classes of jobs together; a class
alone has too few. The bound is the estimate times the factor at a level of its bin: split conformal prediction, taken
bin by bin ("Mondrian", Vovk and others, 2003). It keeps its promise in each bin, however the estimates are made.

Queues change, so each bin's level is held to the promise by adaptive conformal inference (Gibbs and Candes, NeurIPS
2021): after each wait it moves up if the wait lay beyond what was said, and down a little if not. A level above 1
reaches beyond the longest wait of the bin.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.values.waits import Distribution, Known, Observation
from penstock.waits.learners.base import PROMISE
from penstock.waits.learners.states import array, expect, numbers, reading

__all__ = ["LEAST", "Bounds"]

LEAST: Final = 1.0
"""Seconds that stand for shorter waits and estimates: waits are known to the second."""

_VERSION: Final = 1
_KEEP: Final = 4000
_BINS: Final = 20
_IN_A_BIN: Final = 100
"""Waits that a bin holds at least: of fewer the bound would be the largest or the one below."""
_ENOUGH: Final = 20
"""Waits from which on their largest covers the next one with a probability of 95 %."""
_RATE: Final = 0.005
_LEVELS: Final = (0.9, 1.1)
_BEYOND: Final = 5.0
"""Decades by which a bound moves when its level, above 1, moves by 1."""
_PRIOR: Final = 1.0
"""Decades by which a bound exceeds the estimate as long as nothing is known."""
_UNIT: Final = 10_000
"""Logarithms are kept to so many parts of a decade. A bound is rounded up, or a wait like the last would miss."""


class _Bin:
    """The newest factors (log10) of one bin, sorted, and the level at which its bound is read off."""

    def __init__(self, ratios: Iterable[float], level: float) -> None:
        self.sorted = sorted(ratios)
        self.level = level

    @property
    def reach(self) -> float:
        """Decades from an estimate to its bound."""
        n = len(self.sorted)
        if not n:  # its waits were the oldest ones
            return _PRIOR
        return self.sorted[min(math.ceil(self.level * (n + 1)) - 1, n - 1)] + _BEYOND * max(self.level - 1.0, 0.0)


class Bounds:
    """Bounds of waits from estimates of them, by the newest `keep` waits; `promise` is the share that a bound is to
    cover."""

    def __init__(self, promise: float = PROMISE, keep: int = _KEEP) -> None:
        self.promise = promise
        self._keep = keep
        self._pairs: deque[tuple[float, float]] = deque()  # (log10 of the estimate, log10 of wait / estimate)
        self._edges: list[float] = []
        self._bins = [_Bin((), promise)]
        self._new = 0

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def known(self) -> bool:
        """Whether enough waits are known to promise anything."""
        return len(self._pairs) >= _ENOUGH

    def add(self, observation: Observation, estimate: float, bound: float | None = None) -> None:
        """A wait that `estimate` (s) and `bound` (s) were said of; without the latter it is what would be said now.

        Of a censored one only what is certain counts: "at most" below the estimate, "more than" above it; one that is
        already known to be longer than its bound has missed it.
        """
        if observation.known is Known.NOTHING:
            return
        place = _log(estimate)
        ratio = round(_log(observation.seconds) - place, 4)
        if (observation.known is Known.AT_MOST and ratio > 0) or (observation.known is Known.MORE_THAN and ratio < 0):
            return
        own = self._bin(place)
        within = observation.seconds <= bound if bound is not None else ratio <= self._reach(place)
        if observation.known is Known.EXACT or not within:
            own.level = min(max(own.level + _RATE * (self.promise - within), _LEVELS[0]), _LEVELS[1])
        self._pairs.append((place, ratio))
        bisect.insort(own.sorted, ratio)
        if len(self._pairs) > self._keep:
            self._forget(*self._pairs.popleft())
        self._new += 1
        if self._new * 10 > len(self._pairs):
            self._cut_anew()

    def bound(self, estimate: float) -> float:
        """Seconds that the wait exceeds with probability 1 - promise; while little is known, ten times the estimate."""
        place = _log(estimate)
        most: float = 10.0 ** (place + self._reach(place) + (0.51 / _UNIT if self.known else 0.0))
        return round(most, 1)

    def at_least(self, estimate: float) -> float:
        """Seconds that a wait has been by what was missed most so far; 0 as long as nothing is known."""
        worst = max((ratio for _, ratio in self._pairs), default=-math.inf)
        return float(10.0 ** (_log(estimate) + worst))

    def around(self, estimate: float) -> Distribution | None:
        """Waits to reckon with when `estimate` (s) is expected; None while too little is known."""
        if not self.known:
            return None
        place = _log(estimate)
        ratios = np.array(self._bin(place).sorted)
        if not len(ratios):
            return None
        return Distribution(10.0 ** (place + ratios), np.full(len(ratios), 1.0 / len(ratios)))

    def _bin(self, place: float) -> _Bin:
        return self._bins[bisect.bisect_right(self._edges, place)]

    def _reach(self, place: float) -> float:
        if not self.known:
            return max([_PRIOR, *(ratio for _, ratio in self._pairs)])
        return self._bin(place).reach

    def _forget(self, place: float, ratio: float) -> None:
        ratios = self._bin(place).sorted
        del ratios[bisect.bisect_left(ratios, ratio)]

    def _cut_anew(self) -> None:
        """Bins of equally many waits; each goes on at the level of the one that was in its place."""
        self._new = 0
        count = min(max(len(self._pairs) // _IN_A_BIN, 1), _BINS)
        places = np.array([place for place, _ in self._pairs])
        cuts = np.quantile(places, np.linspace(0, 1, count + 1)[1:-1], method="lower") if count > 1 else []
        edges = [float(low) for low in np.unique(cuts) if low > places.min()]
        levels = [self._bins[i * len(self._bins) // (len(edges) + 1)].level for i in range(len(edges) + 1)]
        self._edges = edges
        self._bins = self._binned(levels)

    def _binned(self, levels: Sequence[float]) -> list[_Bin]:
        """All pairs in the bins between the edges, which have these levels."""
        ratios: list[list[float]] = [[] for _ in levels]
        for place, ratio in self._pairs:
            ratios[bisect.bisect_right(self._edges, place)].append(ratio)
        return [_Bin(*each) for each in zip(ratios, levels, strict=True)]

    def to_state(self) -> dict[str, Any]:
        """JSON-able; see `_UNIT`."""
        return {
            "version": _VERSION,
            "estimates": [round(place * _UNIT) for place, _ in self._pairs],
            "ratios": [round(ratio * _UNIT) for _, ratio in self._pairs],
            "edges": self._edges,
            "levels": [round(each.level, 6) for each in self._bins],
            "new": self._new,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged or newer."""
        with reading("bounds"):
            expect(state, "version", _VERSION)
            places = [x / _UNIT for x in numbers(state["estimates"], self._keep)]
            ratios = [x / _UNIT for x in numbers(state["ratios"], self._keep, low=-math.inf)]
            pairs = list(zip(places, ratios, strict=True))
            edges = numbers(state["edges"], _BINS - 1)
            if any(a >= b for a, b in itertools.pairwise(edges)):
                raise ValueError("the edges of the bins do not ascend")
            levels = array(state["levels"], len(edges) + 1, low=_LEVELS[0], high=_LEVELS[1]).tolist()
            new = int(state["new"])
        self._pairs, self._edges, self._new = deque(pairs), edges, new
        self._bins = self._binned(levels)


def _log(seconds: float) -> float:
    return round(math.log10(max(seconds, LEAST)), 4)
