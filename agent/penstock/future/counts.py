"""Free processors over time, counted and not named: what conservative and replan plan in, and the view of a queue.

`free[i]` processors are free from `times[i]` up to `times[i + 1]`, the last ones for ever (see `steps`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from penstock.future.steps import cut, join

__all__ = ["CountProfile"]


class CountProfile:
    """Free processors from now to eternity; at the beginning all of them, for ever.

    The lists are for reading by the policies' inner loops; they change only through the methods.
    """

    __slots__ = ("free", "times")

    def __init__(self, procs: int, start: int = 0) -> None:
        self.times = [start]
        self.free = [procs]

    @classmethod
    def of_ends(cls, now: int, free: int, ends: Iterable[tuple[int, int]]) -> CountProfile:
        """`free` processors at `now`, and more at each (end, processors), ends ascending and after `now`."""
        profile = cls(free, now)
        times, steps = profile.times, profile.free
        for end, count in ends:
            free += count
            if end == times[-1]:
                steps[-1] = free
            else:
                times.append(end)
                steps.append(free)
        return profile

    @classmethod
    def of_steps(cls, steps: Sequence[tuple[int, int]]) -> CountProfile:
        """So many free from each (time, processors) on, ascending; of several at one time the last counts."""
        profile = cls(steps[0][1], steps[0][0])
        for time, free in steps[1:]:
            if time == profile.times[-1]:
                profile.free[-1] = free
            elif free != profile.free[-1]:
                profile.times.append(time)
                profile.free.append(free)
        return profile

    def advance(self, now: int) -> None:
        """Forget what lies before `now` (seconds), which never goes backwards."""
        times = self.times
        if len(times) > 1 and times[1] <= now:
            past = bisect_left(times, now + 1) - 1
            del times[:past]
            del self.free[:past]
        if times[0] < now:
            times[0] = now

    def earliest(self, width: int, length: int, first: int = 0) -> int:
        """The first time from step `first` on at which `width` processors are free for `length` seconds.

        `width` must not exceed what is free in the last step.
        """
        times, free = self.times, self.free
        steps = len(times)
        begin = first
        while True:
            while free[begin] < width:
                begin += 1
            end = times[begin] + length
            at = begin + 1
            while at < steps and times[at] < end:
                if free[at] < width:
                    break
                at += 1
            else:
                return times[begin]
            begin = at + 1

    def earliest_from(self, width: int, length: int, time: int) -> int:
        """The same from `time` on, which may lie between two steps."""
        return self.earliest(width, length, cut(self.times, self.free, time) if time > self.times[0] else 0)

    def earlier(self, width: int, length: int, begin: int, first: int) -> int:
        """Where a reservation of `width` that now begins at `begin` would go if it were taken out and put back.

        Looked for from step `first` on. Its own processors count as free without being taken out: from a place ahead
        of `begin` it can only reach into the time that is its own anyway.
        """
        times, free = self.times, self.free
        at = first
        while (start := times[at]) < begin:
            if free[at] >= width:
                end = min(start + length, begin)
                at += 1
                while times[at] < end and free[at] >= width:
                    at += 1
                if times[at] >= end:
                    return start
            at += 1
        return begin

    def crests(self) -> tuple[list[int], list[int]]:
        """The steps with more free processors than any step before: how many, and which steps, both rising."""
        heights, steps = [], []
        top = 0
        for step, count in enumerate(self.free):
            if count > top:
                heights.append(count)
                steps.append(step)
                top = count
        return heights, steps

    def take(self, width: int, begin: int, end: int | None) -> None:
        """Take processors from `begin` up to `end` (seconds; None: for ever); the caller knows that they are free."""
        free = self.free
        times = self.times
        first = cut(times, free, begin)
        last = len(free) if end is None else cut(times, free, end)
        free[first:last] = [count - width for count in free[first:last]]
        join(times, free, last)
        join(times, free, first)

    def give(self, width: int, begin: int, end: int) -> None:
        """Free what was taken."""
        self.take(-width, begin, end)
