"""95 % intervals by resampling. Pure.

Jobs of one window of a queue hang together, so whole windows are drawn, with replacement (B. Efron, *Bootstrap Methods:
Another Look at the Jackknife*, Annals of Statistics 7, 1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "drawn", "mean_of", "ratio_of_means", "resampled", "spanned"]

_DRAWS: Final = 2000
_SEED: Final = 1


class Interval(NamedTuple):
    """A value of all windows, and between which two 95 of 100 values of resampled windows lie."""

    value: float
    low: float
    high: float

    def told(self, form: str = ".3f") -> str:
        """For a table."""
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"


def resampled(windows: int, statistic: Callable[[NDArray[np.intp]], Any]) -> Interval:
    """A statistic of so many windows, which is given the numbers of the windows that were drawn."""
    draws = np.random.default_rng(_SEED).integers(windows, size=(_DRAWS, windows))
    low, high = np.percentile([float(statistic(draw)) for draw in draws], (2.5, 97.5))
    return Interval(float(statistic(np.arange(windows))), float(low), float(high))


@cache
def drawn(windows: int) -> NDArray[np.float64]:
    """How often each of so many windows is in each draw, a row a draw: those of `resampled`, for statistics of sums."""
    draws = np.random.default_rng(_SEED).integers(windows, size=(_DRAWS, windows))
    counts = np.zeros((_DRAWS, windows))
    np.add.at(counts, (np.arange(_DRAWS)[:, None], draws), 1.0)
    return counts


def spanned(value: float, values: NDArray[np.float64]) -> Interval:
    """A value of all windows, and its interval from its values in the draws."""
    low, high = np.percentile(values, (2.5, 97.5))
    return Interval(value, float(low), float(high))


def mean_of(values: Sequence[float] | NDArray[np.float64], blocks: int | None = None) -> Interval:
    """The mean of values that are independent, or that hang together within so many stretches of equal length, in which
    they follow one another. NaN throughout of none."""
    found = np.asarray(values, dtype=float)
    if not len(found):
        return Interval(math.nan, math.nan, math.nan)
    parts = found[:, None] if blocks is None else np.array_split(found, min(blocks, len(found)))
    sums, counts = np.array([part.sum() for part in parts]), np.array([len(part) for part in parts])
    return resampled(len(sums), lambda draw: sums[draw].sum() / counts[draw].sum())


def ratio_of_means(these: Sequence[float], those: Sequence[float]) -> Interval:
    """The mean of the one over that of the other, window by window the same queue. 1 where both are 0 throughout."""
    if len(these) != len(those) or not these:
        raise ValueError(f"pairs are as many of the one as of the other, not {len(these)} and {len(those)}")
    a, b = np.asarray(these, dtype=float), np.asarray(those, dtype=float)

    def ratio(draw: NDArray[np.intp]) -> float:
        above, below = float(a[draw].sum()), float(b[draw].sum())
        if below == 0.0:
            return 1.0 if above == 0.0 else float("inf")
        return above / below

    return resampled(len(a), ratio)
