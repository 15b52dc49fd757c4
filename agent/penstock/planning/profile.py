"""The availability profile: which nodes are free when, and the earliest time that enough of them are free together.

Nodes are pinned: a job keeps the nodes it began on, so it is not enough that *some* `count` nodes are free at every
instant of its run; the same ones must be free throughout. Sets of nodes are kept as the bits of an integer, which makes
the search along the time line a run of `and`s.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Profile", "Slot"]


@dataclass(frozen=True, slots=True)
class Slot:
    """These nodes, from `start` up to but not including `end` (seconds; `end` may be infinite)."""

    start: float
    end: float
    nodes: tuple[str, ...]


class Profile:
    """Free nodes over time, from `start` to eternity, for a fixed list of nodes.

    Nodes are preferred in the order given here, the first ones first. At the beginning all of them are free for ever.
    """

    def __init__(self, nodes: Sequence[str], start: float = 0.0) -> None:
        self._names = tuple(nodes)
        self._bits = {name: 1 << index for index, name in enumerate(self._names)}
        if len(self._bits) != len(self._names):
            raise ValueError("a node is named twice")
        # Segment i lasts from _times[i] to _times[i + 1], the last one for ever; _free[i] are the nodes free in it.
        self._times = [start]
        self._free = [(1 << len(self._names)) - 1]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, free or not, in order of preference."""
        return self._names

    @property
    def start(self) -> float:
        """Where the profile begins; what lies before is unknown to it."""
        return self._times[0]

    def claim(self, nodes: Iterable[str], begin: float, end: float = math.inf) -> None:
        """Take nodes from `begin` to `end`. ValueError, and no change, when one of them is not free all that time.

        What lies before the profile's start is ignored.
        """
        mask = self._mask(nodes)
        if any((self._free[i] & mask) != mask for i in self._overlapping(begin, end)):
            raise ValueError(f"not all free from {begin} to {end}")
        for i in self._split(begin, end):
            self._free[i] &= ~mask

    def give_back(self, nodes: Iterable[str], begin: float, end: float = math.inf) -> None:
        """Make nodes free from `begin` to `end`, whatever they were."""
        mask = self._mask(nodes)
        for i in self._split(begin, end):
            self._free[i] |= mask

    def free_during(self, begin: float, end: float, within: Iterable[str] | None = None) -> tuple[str, ...]:
        """The nodes (of `within`) that are free all the time from `begin` to `end`, in order of preference."""
        common = self._all if within is None else self._mask(within)
        for i in self._overlapping(begin, end):
            common &= self._free[i]
        return self._unmask(common)

    def free_at(self, time: float) -> tuple[str, ...]:
        """The nodes that are free at this instant."""
        return self.free_during(time, time)

    def earliest(
        self, count: int, duration: float, after: float = -math.inf, within: Iterable[str] | None = None
    ) -> Slot | None:
        """The first slot of `count` nodes (of `within`) for `duration` seconds that begins at `after` or later.

        None when there never is one. Takes time in proportion to the number of claims, squared at worst.
        """
        wanted = self._all if within is None else self._mask(within)
        after = max(after, self._times[0])
        i = bisect_right(self._times, after) - 1
        while i < len(self._times):
            begin = max(after, self._times[i])
            common, blocked_at = wanted, None
            for j in self._overlapping(begin, begin + duration):
                common &= self._free[j]
                if common.bit_count() < count:
                    blocked_at = j
                    break
            if blocked_at is None:
                return Slot(begin, begin + duration, self._unmask(common, count))
            # No window that contains a segment with too few free nodes of its own can do: jump past it.
            alone = (self._free[blocked_at] & wanted).bit_count()
            i = blocked_at + 1 if alone < count else i + 1
        return None

    def segments(self) -> Iterator[Slot]:
        """The time line: maximal stretches with the same free nodes, in order, the last one endless."""
        begin = self._times[0]
        for i, free in enumerate(self._free):
            last = i + 1 == len(self._free)
            if last or self._free[i + 1] != free:
                end = math.inf if last else self._times[i + 1]
                yield Slot(begin, end, self._unmask(free))
                begin = end

    @property
    def _all(self) -> int:
        return (1 << len(self._names)) - 1

    def _mask(self, nodes: Iterable[str]) -> int:
        mask = 0
        for name in nodes:
            mask |= self._bits[name]
        return mask

    def _unmask(self, mask: int, count: int | None = None) -> tuple[str, ...]:
        """Names of the lowest `count` bits (all without a count)."""
        names: list[str] = []
        while mask and (count is None or len(names) < count):
            lowest = mask & -mask
            names.append(self._names[lowest.bit_length() - 1])
            mask ^= lowest
        return tuple(names)

    def _overlapping(self, begin: float, end: float) -> range:
        """Segments that overlap [begin, end); an empty interval counts as the instant `begin`."""
        first = max(bisect_right(self._times, begin) - 1, 0)
        return range(first, max(bisect_left(self._times, end), first + 1))

    def _split(self, begin: float, end: float) -> range:
        """Cut the time line at both ends; the segments that now fill [begin, end) exactly."""
        begin = max(begin, self._times[0])
        if end <= begin:
            return range(0)
        return range(self._cut(begin), self._cut(end))

    def _cut(self, time: float) -> int:
        if time == math.inf:
            return len(self._times)
        index = bisect_left(self._times, time)
        if index == len(self._times) or self._times[index] != time:
            self._times.insert(index, time)
            self._free.insert(index, self._free[index - 1])
        return index
