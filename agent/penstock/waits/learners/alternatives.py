"""The waits that the learners choose among: the paper's 53, and what stands beside them on a live queue."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALTERNATIVES", "LEAST", "LIVE_ALTERNATIVES", "check", "log_error", "logs", "nearest"]

ALTERNATIVES: Final[tuple[float, ...]] = tuple(
    float(s)
    for s in (
        *range(10, 100, 5),
        *range(100, 1000, 50),
        *range(1000, 10_000, 1000),
        *range(10_000, 80_000, 10_000),
        100_000,
    )
)
"""The m = 53 alternatives in seconds. Section 4.3 gives m, the maximum (100k s) and "multiples of 10's, 100's, 1k's,
10k's, and 100k" with more of the small ones; it gives no list. This one has 18 + 18 + 9 + 7 + 1."""

LIVE_ALTERNATIVES: Final[tuple[float, ...]] = (0.0, 1.0, *ALTERNATIVES)
"""With the two answers of an idle cluster: the job starts at once, or with the scheduler's next breath."""

LEAST: Final = 0.3
"""Seconds that stand for shorter waits in logarithms, so that 0 s and 1 s are half a decade apart and not infinite."""


def check(alternatives: Sequence[float]) -> tuple[float, ...]:
    """The alternatives as a tuple. ValueError unless they are finite, >= 0 and strictly ascending, at least one."""
    values = tuple(float(a) for a in alternatives)
    if not values or any(not math.isfinite(a) or a < 0 for a in values):
        raise ValueError("alternatives must be finite numbers of seconds >= 0, at least one")
    if any(a >= b for a, b in itertools.pairwise(values)):
        raise ValueError("alternatives must be strictly ascending")
    return values


def nearest(alternatives: Sequence[float], wait: float) -> int:
    """The index of the alternative (ascending) nearest to `wait` seconds, of two equally near ones the smaller."""
    right = bisect.bisect_left(alternatives, wait)
    if right == 0:
        return 0
    if right == len(alternatives):
        return right - 1
    return right - 1 if wait - alternatives[right - 1] <= alternatives[right] - wait else right


def logs(alternatives: Sequence[float]) -> NDArray[np.float64]:
    """log10 of waits in seconds, floored so that 0 s has one."""
    return np.log10(np.maximum(np.asarray(alternatives, dtype=np.float64), LEAST))


def log_error(estimate: float, wait: float, floor: float = LEAST) -> float:
    """|log10(estimate / wait)|, both at least `floor` seconds."""
    return abs(math.log10(max(estimate, floor) / max(wait, floor)))
