"""What was known by then, for many jobs at once: the values of a group that had been seen before a time. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock_lab.history.numbering import numbered

__all__ = ["Past", "dense", "median_and_bound", "narrow"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def dense(*columns: NDArray[Any]) -> NDArray[np.int32]:
    """Numbers from 0 on, equal where all columns are. Columns hold whole numbers >= 0 whose ranges fit into 63 bits
    together; ValueError otherwise."""
    return numbered(_key(columns))  # nobody else holds the key: it is let go as soon as it is sorted


def _key(columns: Sequence[NDArray[Any]]) -> Ints:
    """One number for each row."""
    key = np.zeros(len(columns[0]), np.int64)
    room = 1
    for column in columns:
        size = int(column.max(initial=0)) + 1
        room *= size
        if room >= 1 << 63:
            raise ValueError("too many groups")
        key *= size
        key += column
    return key


def narrow(most: int) -> type[np.int32] | type[np.int64]:
    """The smaller kind of numbers that holds all below `most`: half the memory, where there are millions."""
    return np.int32 if most <= 1 << 31 else np.int64


class Past:
    """Values by group and by when each became known (s, not negative). Of what became known in the same second nothing
    counts as known: so no job is told its own end."""

    def __init__(self, group: NDArray[Any], known: NDArray[Any], values: NDArray[Any]) -> None:
        self._span = int(known.max(initial=0)) + 2
        self._kind = narrow((int(group.max(initial=0)) + 1) * self._span)
        keys = self._key(group, known)
        order = np.argsort(keys, kind="stable")
        self._keys: NDArray[Any] = keys[order]
        self.values = values[order]
        self._first = np.concatenate(([0], np.cumsum(np.bincount(group)))) if len(group) else np.zeros(1, np.int64)

    def before(self, group: NDArray[Any], at: NDArray[Any]) -> tuple[Ints, Ints]:
        """The places of `values` that were known at these times, from the first to before the second, oldest first."""
        return self._first[group], np.searchsorted(self._keys, self._key(group, np.minimum(at, self._span - 1)), "left")

    def _key(self, group: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
        keys: NDArray[Any] = group.astype(self._kind)
        np.multiply(keys, self._span, out=keys)
        np.add(keys, at.astype(self._kind, copy=False), out=keys)
        return keys

    def newest(self, first: Ints, last: Ints, most: int) -> Floats:
        """The newest values between these places, up to so many, in a row for each; NaN where there are fewer."""
        places = last[:, None] - 1 - np.arange(most)
        missing = places < first[:, None]
        np.maximum(places, 0, out=places)
        found = self.values[places].astype(np.float64) if len(self.values) else np.zeros(places.shape)
        found[missing] = np.nan
        return found


def median_and_bound(rows: Floats, share: float) -> tuple[Floats, Floats]:
    """The median of each row, and what `share` of further values do not exceed; NaN where a row has too few for it.

    Of n values that are alike the k-th smallest is not exceeded by the next with probability k / (n + 1).
    """
    most = rows.shape[1]
    counts = most - np.isnan(rows).sum(axis=1)
    ordered = np.sort(rows, axis=1)  # NaN comes last
    every = np.arange(len(rows))
    upper = np.maximum(counts // 2, 0)
    lower = np.maximum((counts - 1) // 2, 0)
    median = (ordered[every, np.minimum(lower, most - 1)] + ordered[every, np.minimum(upper, most - 1)]) / 2
    place = np.array([math.ceil(share * (n + 1) - 1e-9) for n in range(most + 1)])[counts]
    enough = place <= counts
    bound = np.where(enough & (counts > 0), ordered[every, np.minimum(place, most) - 1], np.nan)
    return median, bound
