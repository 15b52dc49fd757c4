"""Whether the picture of who held which node agrees with Slurm's accounting. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock_lab.demo.timeline import Bar

__all__ = ["Held", "difference"]

_MOMENT: Final = 1.5
"""Accounting has whole seconds: what is shorter than this (a resizer, before its nodes are merged) may be nothing."""


@dataclass(frozen=True, slots=True)
class Held:
    """A job had a node from `start` to `end` (seconds since the epoch)."""

    node: str
    job: int
    start: float
    end: float


def difference(bars: Iterable[Bar], books: Iterable[Held]) -> float | None:
    """By how many seconds the two differ at most, at the begin or the end of a time in which a job held a node; None
    where one has such a time that the other has not."""
    drawn, booked = _joined(Held(b.node, b.job, b.start, b.end) for b in bars), _joined(books)
    if [(one.node, one.job) for one in drawn] != [(one.node, one.job) for one in booked]:
        return None
    pairs = zip(drawn, booked, strict=True)
    return max((max(abs(a.start - b.start), abs(a.end - b.end)) for a, b in pairs), default=0.0)


def _joined(times: Iterable[Held]) -> list[Held]:
    """In order, and those of one job on one node that touch each other as one: accounting has one for each size."""
    found: list[Held] = []
    for one in sorted(times, key=lambda held: (held.node, held.job, held.start)):
        last = found[-1] if found else None
        if last is not None and (last.node, last.job) == (one.node, one.job) and one.start - last.end < _MOMENT:
            found[-1] = Held(one.node, one.job, last.start, max(last.end, one.end))
        else:
            found.append(one)
    return [one for one in found if one.end - one.start >= _MOMENT]
