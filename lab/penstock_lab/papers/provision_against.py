"""Plans beside best effort at the same instants: the figures that every table of plans has. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock_lab.intervals import Interval, mean_of, ratio_of_means

__all__ = ["FIGURES", "Against", "Compared"]

FIGURES: Final = ("makespan", "median", "floor", "cost")
"""Heads of `Against.cells`."""


class Compared(NamedTuple):
    """At one instant: makespan of best effort, the longest path, below which nobody comes (s), the plan's makespan (s),
    and its cost over processors times run time."""

    alone: float
    floor: float
    span: float
    cost: float


class Against(NamedTuple):
    """Of plans at many instants: makespan over the mean of best effort, with a 95 % interval; the median of that of
    each pair; the longest path over best effort; the cost over the least, with an interval."""

    span: Interval
    median: float
    floor: float
    cost: Interval

    @classmethod
    def of(cls, found: Sequence[Compared]) -> Against:
        """Of these instants, of which there is one at least."""
        alone = [each.alone for each in found]
        return cls(
            ratio_of_means([each.span for each in found], alone),
            statistics.median(each.span / each.alone for each in found),
            ratio_of_means([each.floor for each in found], alone).value,
            mean_of([each.cost for each in found]),
        )

    def row(self) -> dict[str, float]:
        """For programs."""
        span, cost = self.span, self.cost
        told = {"makespan": span.value, "low": span.low, "high": span.high, "median": self.median, "floor": self.floor}
        return {**told, "cost": cost.value, "cost_low": cost.low, "cost_high": cost.high}

    def cells(self) -> list[str]:
        """For a table, under `FIGURES`."""
        return [self.span.told(), f"{self.median:.3f}", f"{self.floor:.3f}", self.cost.told()]
