"""The time to completion of a workload, as Ha et al. measures it (section IV-B, golden case G11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Span", "Times", "times_of"]

Span = tuple[float, float]
"""From and to, seconds."""


@dataclass(frozen=True, slots=True)
class Times:
    """`execution` (Tx): seconds in which at least one task runs; `waiting` (Tq): in which none runs and at least one
    waits for its resource."""

    waiting: float
    execution: float

    @property
    def total(self) -> float:
        """TTC = Tq + Tx."""
        return self.waiting + self.execution


def times_of(tasks: Iterable[tuple[Span, Span]]) -> Times:
    """From the wait and the execution of each task. Waits after the end of the last execution do not count."""
    rows = list(tasks)
    running = _union(execution for _, execution in rows)
    last = running[-1][1] if running else 0.0
    waiting = _union((begin, min(end, last)) for (begin, end), _ in rows)
    return Times(_length(waiting) - _overlap(waiting, running), _length(running))


def _union(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans that do not touch, ascending."""
    joined: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _length(spans: Sequence[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def _overlap(one: Sequence[Span], other: Sequence[Span]) -> float:
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in one for b in other)
