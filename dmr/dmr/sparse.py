"""Moves the rows of a CSR matrix: first how long they are, then what is in them.

This module imports numpy and mpi4py; `dmr.redistribute` imports it when data moves.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

import numpy as np

from dmr import plan, points
from dmr.agreement import Item
from dmr.arrays import NOTHING, carry_block, on_host
from dmr.plan import IndexSet, Strip
from dmr.route import Axes, Route, allocate, new_shape, ways
from dmr.streams import Array

__all__ = ["CSRMatrix", "carry_csr"]


class CSRMatrix(NamedTuple):
    """Some rows of a sparse matrix, for those who have no scipy: row i is in [indptr[i], indptr[i + 1])."""

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]


def carry_csr(route: Route, item: Item, value: Any) -> Any:  # noqa: ANN401
    """The rows that this rank holds from now on, as scipy's matrix of the old kind if there is scipy."""
    both = ways(route, item)
    rows = new_shape(route, item, both[1])[0]
    gives, gets = ({other: axes[:1] for other, axes in way.items()} for way in both)
    old_starts = new_starts = np.zeros(1, np.int64)
    if value is not None and route.old_rank is not None:
        old_starts = np.asarray(value.indptr).astype(np.int64)
    lengths = allocate(route, item.name, lambda: np.zeros(rows, np.int64))
    mine = on_host(np.diff(old_starts), False), NOTHING if lengths is None else on_host(lengths, False)
    carry_block(route, 8, *mine, (gives, gets))
    if lengths is not None:
        new_starts = np.concatenate([new_starts, np.cumsum(lengths)])

    ends = (
        {other: [_inside(old_starts, axes[0])] for other, axes in gives.items()},
        {other: [_inside(new_starts, axes[0])] for other, axes in gets.items()},
    )
    arrays: list[Any] = []
    for name, dtype in zip(("data", "indices"), item.dtypes, strict=False):
        block: Any = allocate(route, item.name, functools.partial(np.empty, int(new_starts[-1]), dtype))
        old = NOTHING if route.old_rank is None else on_host(np.asarray(getattr(value, name)), False)
        carry_block(route, dtype.itemsize, old, NOTHING if block is None else on_host(block, False), _some(ends))
        arrays.append(block)
    if route.new_rank is None:
        return None
    data, indices = arrays
    indptr = new_starts if new_starts[-1] > np.iinfo(item.dtypes[2]).max else new_starts.astype(item.dtypes[2])
    return _as_it_was(CSRMatrix(data, indices, indptr, (rows, item.shape[1])), item.like)


def _inside(starts: Array, rows: IndexSet) -> IndexSet:
    """Where the elements of some rows are."""
    if plan.scattered(rows):
        held = points.numbers(rows)
        return points.as_set(points.spans(starts[held], starts[held + 1] - starts[held]))
    parts: list[tuple[int, int]] = []
    for strip in rows:
        assert isinstance(strip, Strip)
        first, size, period, count = strip
        for row in range(first, first + count * period, period):
            start, stop = int(starts[row]), int(starts[row + size])
            if parts and parts[-1][1] == start:
                parts[-1] = parts[-1][0], stop
            elif stop > start:
                parts.append((start, stop))
    return tuple(strip for part in parts for strip in plan.everything(*part))


def _some(ends: tuple[dict[int, Axes], dict[int, Axes]]) -> tuple[dict[int, Axes], dict[int, Axes]]:
    """Without those who have rows in common but nothing in them."""
    gives, gets = ({other: axes for other, axes in end.items() if axes[0]} for end in ends)
    return gives, gets


def _as_it_was(matrix: CSRMatrix, like: str) -> Any:  # noqa: ANN401
    if not like:
        return matrix
    try:
        scipy_sparse = importlib.import_module("scipy.sparse")
    except ImportError:
        return matrix
    return getattr(scipy_sparse, like)((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
