"""The availability profile: which nodes are free when, and the earliest time that enough of them are free together.

Nodes are pinned: a job keeps the nodes it began on, so it is not enough that *some* `count` nodes are free at every
instant of its run; the same ones must be free throughout. Sets of nodes are integers:

node i of a machine is bit 1 << i, a set of nodes is the sum of its bits, and the search along the time line is a run
of `and`s. Preference is the order of the bits, lowest first. `NodeBits` turns names into bits and back.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import TypeVar

from penstock.future.steps import cut, join

__all__ = ["BitProfile", "NodeBits", "lowest", "members"]

T = TypeVar("T")

_FLAGS = bytes(1 if c == ord("1") else 0 for c in range(256))


def lowest(mask: int, count: int) -> int:
    """The lowest `count` bits that are set in `mask`; all of them if there are no more."""
    low, high = count, mask.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (mask & ((1 << middle) - 1)).bit_count() >= count:
            high = middle
        else:
            low = middle + 1
    return mask & ((1 << low) - 1)


def members(of: Sequence[T], mask: int) -> tuple[T, ...]:
    """Those of `of` whose bits are set, in their order."""
    return tuple(compress(of, bin(mask)[:1:-1].encode().translate(_FLAGS)))


class NodeBits:
    """The numbering of a machine's nodes. ValueError when a name is there twice."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._bits = {name: 1 << index for index, name in enumerate(self.names)}
        if len(self._bits) != len(self.names):
            raise ValueError("a node is named twice")
        self.all = (1 << len(self.names)) - 1

    def mask(self, names: Iterable[str]) -> int:
        """The set of these nodes; KeyError for a name that is not known."""
        bits, mask = self._bits, 0
        for name in names:
            mask |= bits[name]
        return mask

    def named(self, mask: int) -> tuple[str, ...]:
        """The names of a set, in the machine's order."""
        return members(self.names, mask)


class BitProfile:
    """Free nodes over time, from `start` to eternity; at the beginning all of `everything` for ever.

    Segment i lasts from `times[i]` to `times[i + 1]`, the last one for ever, and `free[i]` are the nodes free in it.
    Both lists are for reading by planners in a hurry; they change only through the methods. Of nodes that will do,
    those in `first` are taken first.
    """

    __slots__ = ("first", "free", "times")

    def __init__(self, everything: int, start: float = 0.0, first: int = 0) -> None:
        self.times = [start]
        self.free = [everything]
        self.first = first

    @classmethod
    def of_ends(cls, everything: int, now: float, ends: Mapping[float, int], first: int = 0) -> BitProfile:
        """All of `everything`, of which some nodes are taken from `now` until an instant (the set by the instant;
        infinite: for ever). A node that is named twice is taken until the later one."""
        profile = cls(everything, now, first)
        times, free = [], []
        taken = 0
        for end in sorted((end for end in ends if end > now), reverse=True):
            if (more := taken | ends[end]) != taken:
                if end < math.inf:
                    times.append(end)
                    free.append(everything & ~taken)
                taken = more
        profile.times += reversed(times)
        profile.free[0] = everything & ~taken
        profile.free += reversed(free)
        return profile

    def copy(self) -> BitProfile:
        """One that can be changed by itself."""
        twin = BitProfile.__new__(BitProfile)
        twin.times, twin.free, twin.first = self.times.copy(), self.free.copy(), self.first
        return twin

    def forget(self, now: float) -> None:
        """Drop what lies before `now`, where the profile begins from now on."""
        times = self.times
        if times[0] >= now:
            return
        past = bisect_right(times, now) - 1
        if past > 0:
            del times[:past]
            del self.free[:past]
        times[0] = now

    def common(self, begin: float, end: float, within: int) -> int:
        """The nodes of `within` that are free all the time from `begin` to `end` (an empty stretch is an instant)."""
        times, free = self.times, self.free
        i = bisect_right(times, begin) - 1 if begin > times[0] else 0
        within &= free[i]
        steps = len(times)
        i += 1
        while i < steps and times[i] < end and within:
            within &= free[i]
            i += 1
        return within

    def block(self, mask: int, begin: float, end: float = math.inf) -> None:
        """Take nodes from `begin` to `end`, whether they are free or not. What lies before the profile is ignored."""
        first, last = self._split(begin, end)
        free = self.free
        keep = ~mask
        free[first:last] = [nodes & keep for nodes in free[first:last]]
        join(self.times, self.free, last)
        join(self.times, self.free, first)

    def open(self, mask: int, begin: float, end: float = math.inf) -> None:
        """Make nodes free from `begin` to `end`, whatever they were."""
        first, last = self._split(begin, end)
        free = self.free
        free[first:last] = [nodes | mask for nodes in free[first:last]]
        join(self.times, self.free, last)
        join(self.times, self.free, first)

    def earliest(
        self, count: int, duration: float, after: float, within: int, avoid: int = 0
    ) -> tuple[float, int] | None:
        """The first time from `after` on at which `count` nodes of `within` are free together for `duration` seconds,
        and which nodes: those in `first`, then the lowest, but if it begins later than `after`, those in `avoid` last.
        None: there never is such a time.
        """
        times, free = self.times, self.free
        steps = len(times)
        i = bisect_right(times, after) - 1 if after > times[0] else 0
        j, common = i, within  # what is free of the window that begins with segment i, up to segment j
        while i < steps:
            begin = max(after, times[i])
            end = begin + duration
            while True:
                if j > i and (j == steps or times[j] >= end):
                    return begin, self._chosen(common, count, avoid if begin > after else 0)
                common &= free[j]
                j += 1
                if common.bit_count() < count:
                    break
            # A window with room that contains the segment at which this one failed begins behind the last one from
            # which there is none up to there.
            i, common = j, within
            while i > 0 and (more := common & free[i - 1]).bit_count() >= count:
                i, common = i - 1, more
        return None

    def _chosen(self, common: int, count: int, avoid: int) -> int:
        """Of these nodes so many: none of `avoid`, if there are enough, then those in `first`, then the lowest."""
        if avoid and (wanted := common & ~avoid) != common:
            short = count - wanted.bit_count()
            return lowest(wanted, count) if short <= 0 else wanted | lowest(common & avoid, short)
        if self.first & common:
            best = lowest(common & self.first, count)
            return best | lowest(common & ~self.first, count - best.bit_count())
        return lowest(common, count)

    def _split(self, begin: float, end: float) -> tuple[int, int]:
        """Cut the time line at both ends; the segments that now fill [begin, end) exactly."""
        begin = max(begin, self.times[0])
        if end <= begin:
            return 0, 0
        first = cut(self.times, self.free, begin)
        return first, len(self.times) if end == math.inf else cut(self.times, self.free, end)
