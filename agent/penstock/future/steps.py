"""A step function of time, kept as two parallel lists: `values[i]` holds from `times[i]` up to `times[i + 1]`, the last
one for ever. Plain lists and linear scans: a real machine's has tens to a few hundred steps, at which CPython's list
primitives beat any tree. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeVar

__all__ = ["cut", "join"]

T = TypeVar("T", int, float)


def cut(times: list[T], values: list[int], time: T) -> int:
    """The step that begins at `time`, made if there is none; `time` is not before the first."""
    at = bisect_left(times, time)
    if at == len(times) or times[at] != time:
        times.insert(at, time)
        values.insert(at, values[at - 1])
    return at


def join(times: list[T], values: list[int], at: int) -> None:
    """Join a step, if there is such a one, with the one before it when both have the same."""
    if 0 < at < len(values) and values[at] == values[at - 1]:
        del times[at]
        del values[at]
