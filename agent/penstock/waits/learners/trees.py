"""Boosted trees for a median: what a table of numbers says about another one, fitted by least absolute deviation.

Gradient boosting as Friedman has it for this loss ("LAD-TreeBoost", Annals of Statistics 29, 2001): each tree is grown
on the signs of what is still missing, and its leaves hold the medians of that. The trees are *oblivious*: one question
a level, the same for all nodes of it, so that a tree is `depth` pairs (column, threshold) and 2^depth values, and a
leaf is found by `depth` comparisons. Questions are looked for among quantiles of the columns, each time over a random
half of the rows and of the columns. Pure numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.waits.learners.states import array, reading

__all__ = ["Trees", "fit"]

Array = NDArray[np.float64]

TREES: Final = 120
DEPTH: Final = 6
RATE: Final = 0.1
_BINS: Final = 32
_PART: Final = 0.5
_PRIOR: Final = 20.0
"""Rows that a leaf is imagined to have besides its own, with nothing missing: small leaves move little."""


@dataclass(frozen=True, slots=True)
class Trees:
    """A fitted model: `columns` and `thresholds` one row a tree and level, `values` one row a tree and leaf."""

    base: float
    columns: NDArray[np.int64]
    thresholds: Array
    values: Array

    def predict(self, row: Array) -> float:
        """The expected value for one row of the table."""
        depth = self.columns.shape[1]
        leaves = (row[self.columns] > self.thresholds) @ (1 << np.arange(depth)[::-1])
        return float(self.base + self.values[np.arange(len(leaves)), leaves].sum())

    def to_state(self) -> dict[str, Any]:
        """JSON-able; thresholds exact, values to six decimals."""
        return {
            "base": self.base,
            "columns": self.columns.tolist(),
            "thresholds": self.thresholds.tolist(),
            "values": [[round(v, 6) for v in row] for row in self.values.tolist()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], width: int) -> Trees:
        """What `to_state` gave, for a table of `width` columns. ValueError when it is damaged."""
        with reading("trees"):
            trees = len(state["columns"])
            depth = len(state["columns"][0])
            columns = array(state["columns"], trees, depth, low=0, high=width - 1).astype(np.int64)
            thresholds = array(state["thresholds"], trees, depth)
            values = array(state["values"], trees, 1 << depth)
            return cls(float(array(state["base"])), columns, thresholds, values)


def fit(table: Array, target: Array, rng: np.random.Generator, trees: int = TREES, depth: int = DEPTH) -> Trees:
    """Fit `target` by the rows of `table` (finite numbers, at least one row and column)."""
    rows, width = table.shape
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, _BINS + 1)[1:-1])) for column in table.T]
    # bin > b exactly when the value > edges[b]
    bins = np.array([e.searchsorted(column) for e, column in zip(edges, table.T, strict=True)], dtype=np.int64)
    base = float(np.median(target))
    missing = target - base
    columns = np.zeros((trees, depth), dtype=np.int64)
    thresholds, values = np.zeros((trees, depth)), np.zeros((trees, 1 << depth))
    for tree in range(trees):
        some = np.flatnonzero(rng.random(rows) < _PART)
        asked = rng.permutation(width)[: max(1, int(width * _PART))]
        leaf = np.zeros(rows, dtype=np.int64)
        for level, (column, at) in enumerate(_grow(bins[:, some], np.sign(missing[some]), edges, asked, depth)):
            columns[tree, level] = column
            thresholds[tree, level] = edges[column][at]
            leaf = leaf * 2 + (bins[column] > at)
        values[tree] = RATE * _medians(leaf, missing, 1 << depth)
        missing = missing - values[tree][leaf]
    return Trees(base, columns, thresholds, values)


def _grow(
    bins: NDArray[np.int64], signs: Array, edges: list[Array], asked: NDArray[np.int64], depth: int
) -> list[tuple[int, int]]:
    """The questions of one tree: per level the column and bin that separate the signs best over all its nodes."""
    leaf = np.zeros(bins.shape[1], dtype=np.int64)
    questions: list[tuple[int, int]] = []
    for level in range(depth):
        cells = (1 << level) * _BINS
        best, choice = -1.0, (int(asked[0]), 0)
        for column in asked.tolist():
            if not len(edges[column]):
                continue
            cell = leaf * _BINS + bins[column]
            total = np.bincount(cell, signs, cells).reshape(-1, _BINS).cumsum(axis=1)
            count = np.bincount(cell, None, cells).reshape(-1, _BINS).cumsum(axis=1)
            rest, left = total[:, -1:] - total, count[:, -1:] - count
            gain = (total**2 / (count + _PRIOR) + rest**2 / (left + _PRIOR)).sum(axis=0)[: len(edges[column])]
            at = int(gain.argmax())
            if gain[at] > best:
                best, choice = float(gain[at]), (column, at)
        questions.append(choice)
        leaf = leaf * 2 + (bins[choice[0]] > choice[1])
    return questions


def _medians(leaf: NDArray[np.int64], missing: Array, leaves: int) -> Array:
    """The median of what is missing in each leaf, drawn towards 0 where it has few rows."""
    ordered = missing[np.lexsort((missing, leaf))]
    count = np.bincount(leaf, minlength=leaves)
    first = count.cumsum() - count
    low = np.minimum(first + np.maximum(count - 1, 0) // 2, len(ordered) - 1)
    high = np.minimum(first + count // 2, len(ordered) - 1)
    return np.asarray(0.5 * (ordered[low] + ordered[high]) * count / (count + _PRIOR), dtype=np.float64)
