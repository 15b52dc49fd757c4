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

        Each window of `length` seconds is looked at from its end. The last step with too few free ends not only this
        window but every one that begins up to that step, so the next begins behind it, and what was looked at is not
        looked at again. Windows are long beside steps, so that most steps are never looked at.
        """
        times, free = self.times, self.free
        steps = len(times)
        good = first  # from the begin of the window up to this step there is room
        while True:
            stop = bisect_left(times, times[first] + length, first + 1, steps)
            at = stop - 1
            while at >= good and free[at] >= width:
                at -= 1
            if at < good:
                return times[first]
            first = at + 1
            good = stop

    def earliest_from(self, width: int, length: int, time: int) -> int:
        """The same from `time` on, which may lie between two steps."""
        return self.earliest(width, length, cut(self.times, self.free, time) if time > self.times[0] else 0)

    def earlier(self, width: int, length: int, begin: int, after: int = 0) -> int:
        """Where a reservation of `width` that now begins at `begin` would go if it were taken out and put back.

        Its own processors count as free without being taken out: from a place ahead of `begin` it can only reach into
        the time that is its own anyway, so that of a window only the part ahead of `begin` has to be looked at. That
        is done as in `earliest`.
        """
        times, free = self.times, self.free
        last = bisect_left(times, begin)
        first = good = bisect_left(times, after) if after > times[0] else 0
        while first < last:
            end = times[first] + length
            stop = last if end >= begin else bisect_left(times, end, first + 1, last)
            at = stop - 1
            while at >= good and free[at] >= width:
                at -= 1
            if at < good:
                return times[first]
            first = at + 1
            good = stop
        return begin

    def take(self, width: int, begin: int, end: int | None) -> None:
        """Take processors from `begin` up to `end` (seconds; None: for ever); the caller knows that they are free."""
        if not width:
            return
        times, free = self.times, self.free
        first = bisect_left(times, begin)  # `cut` and `join` written out: nothing is called as often
        steps = len(times)
        fresh = first == steps or times[first] != begin
        if fresh:
            times.insert(first, begin)
            free.insert(first, free[first - 1])
            steps += 1
        last = steps
        if end is not None:
            last = bisect_left(times, end, first)
            if last == steps or times[last] != end:
                times.insert(last, end)
                free.insert(last, free[last - 1])
                free[first:last] = [count - width for count in free[first:last]]
            else:
                free[first:last] = [count - width for count in free[first:last]]
                join(times, free, last)
        else:
            free[first:] = [count - width for count in free[first:]]
        if not fresh:
            join(times, free, first)

    def give(self, width: int, begin: int, end: int) -> None:
        """Free what was taken."""
        self.take(-width, begin, end)

    def move(self, width: int, begin: int, to: int, length: int) -> None:
        """Take processors from `to` on, earlier than `begin`, and free them from `begin` on, each for `length` seconds.

        What is both freed and taken stays as it is.
        """
        self.take(width, to, min(to + length, begin))
        self.take(-width, max(to + length, begin), begin + length)
