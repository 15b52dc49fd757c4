"""Times in which something was so, such as a pause: pairs of when it began and when it ended, None while it lasts.

In their order, and none over another. Seconds since the epoch. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

__all__ = ["Intervals", "begun", "ended", "intervals_of", "lasts", "overlap"]

Intervals = tuple[tuple[float, float | None], ...]

_MOST: Final = 100
"""So many are kept: who pauses and resumes all day must not fill the state file."""


def lasts(known: Intervals) -> bool:
    """Whether the last one has not ended."""
    return bool(known) and known[-1][1] is None


def begun(known: Intervals, at: float) -> Intervals:
    """With one that lasts from now on; itself where one lasts already. Of very many the oldest are forgotten."""
    return known if lasts(known) else (*known, (at, None))[-_MOST:]


def ended(known: Intervals, at: float) -> Intervals:
    """With the one that lasts over; itself where none does. Where the clock was set back, it was no time."""
    return (*known[:-1], (known[-1][0], max(at, known[-1][0]))) if lasts(known) else known


def overlap(known: Iterable[tuple[float, float | None]], since: float, until: float) -> float:
    """How many seconds from `since` to `until` are in one of these at least, which may lie over each other."""
    total, at = 0.0, since
    for begin, end in sorted(known, key=lambda one: one[0]):
        begin, end = max(begin, at), until if end is None else min(end, until)
        if end > begin:
            total += end - begin
            at = end
    return total


def intervals_of(data: Iterable[Any]) -> Intervals:
    """As they were stored."""
    return tuple((float(begin), None if end is None else float(end)) for begin, end in data)
