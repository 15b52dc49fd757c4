"""A profile that counts what is free, nodes or CPUs, and does not name it: for expectations, where a second is enough.

That enough is free at every instant of a run is all that is asked. For CPUs any will do; of nodes the same ones must be
free throughout, so a job may be expected a little early here where the others before it end apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from penstock.future.bits import BitProfile
from penstock.future.counts import CountProfile

__all__ = ["Counted", "steps_of"]


def steps_of(
    named: BitProfile, within: int, each: int = 1, busy: Iterable[tuple[float, int]] = ()
) -> list[tuple[int, int]]:
    """`each` units for every node of `within` that is free by name, less what is `busy`: (until when, units)."""
    ends = sorted((int(end), units) for end, units in busy)
    taken = sum(units for _, units in ends)
    free = [
        (int(time), each * (nodes & within).bit_count()) for time, nodes in zip(named.times, named.free, strict=True)
    ]
    steps = []
    there, place, at = 0, 0, 0
    for time in sorted({*(time for time, _ in free), *(end for end, _ in ends if end > free[0][0])}):
        while place < len(free) and free[place][0] <= time:
            there = free[place][1]
            place += 1
        while at < len(ends) and ends[at][0] <= time:
            taken -= ends[at][1]
            at += 1
        steps.append((time, max(there - taken, 0)))
    return steps


class Counted:
    """Implements `profile.Profile`; a place is a number of units, and `within` means nothing.

    Instants are whole seconds, rounded down. `steps` are (since when, how many are free), ascending.
    """

    def __init__(self, steps: Sequence[tuple[int, int]]) -> None:
        self._counts = CountProfile.of_steps(steps)

    @classmethod
    def of(cls, named: BitProfile, within: int, each: int = 1, busy: Iterable[tuple[float, int]] = ()) -> Counted:
        """See `steps_of`."""
        return cls(steps_of(named, within, each, busy))

    @property
    def now(self) -> int:
        """How many are free now."""
        return self._counts.free[0]

    @property
    def most(self) -> int:
        """How many are free in the end, when all that ends has ended."""
        return self._counts.free[-1]

    def earliest(
        self, count: int, duration: float, after: float, within: int = -1, avoid: int = 0
    ) -> tuple[int, int] | None:
        """See `Profile`."""
        times, free = self._counts.times, self._counts.free
        if count <= free[-1] and duration < math.inf:
            return self._counts.earliest_from(count, int(duration), int(after)), count
        begin: float | None = None  # since when enough are free
        for i, units in enumerate(free):
            until = times[i + 1] if i + 1 < len(times) else math.inf
            if units < count:
                begin = None
            elif until > after:
                begin = max(times[i], int(after)) if begin is None else begin
                if begin + duration <= until:
                    return int(begin), count
        return None

    def block(self, place: int, begin: float, end: float = math.inf) -> None:
        """See `Profile`."""
        self._counts.take(place, int(begin), None if end == math.inf else int(end))

    def open(self, place: int, begin: float, end: float) -> None:
        """Free what was blocked, or a part of its time (at least a second of it)."""
        if int(begin) < int(end):
            self._counts.give(place, int(begin), int(end))
