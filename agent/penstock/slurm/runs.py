"""The rows that accounting has of one job: which of them are one run of it, and in what order. Pure.

There is a row for every run of a requeued job and for every size of a resized one; all but the last of a run are
RESIZING. Each later row is submitted, as accounting has it, when the one before it ended; it starts then, too, or on
24.11 when the job did, which is before its own submission. sacct sorts by the submissions of all jobs' rows, so that
other jobs stand between those of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from penstock.api import JobState

__all__ = ["Period", "runs_of"]

R = TypeVar("R")
_APART: Final = 60.0
"""Seconds by which a size may start after the one before it has ended. What starts later is another job that got the
number of one whose last row was never written, as that of a resizer is not."""


class Period(NamedTuple):
    """A row's state and times, in seconds since the epoch; None: not yet, or never."""

    state: JobState
    submit: float | None
    start: float | None
    end: float | None


def runs_of(rows: Iterable[R], period: Callable[[R], Period]) -> list[list[R]]:
    """The runs of one job, oldest first, each as its sizes, oldest first. The rows may come in any order.

    A run whose last row is RESIZING has a size to come: the job lives, was merged into another one, or the row is
    missing.
    """
    told = [(period(row), row) for row in rows]
    told.sort(key=lambda pair: _order(pair[0]))
    runs: list[list[R]] = []
    before: Period | None = None
    for now, row in told:
        if before is not None and _continues(before, now):
            runs[-1].append(row)
        else:
            runs.append([row])
        before = now
    return runs


def _order(row: Period) -> tuple[float, float, bool]:
    submit, end = (math.inf if at is None else at for at in (row.submit, row.end))
    return submit, end, row.state.ended


def _continues(before: Period, now: Period) -> bool:
    if before.state is not JobState.RESIZING:
        return False
    return before.end is None or now.start is None or now.start <= before.end + _APART
