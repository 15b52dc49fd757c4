"""Figure 2 of Singh 2008: tasks are put on the free slots, singly or on several at once, and leave slots behind.

With exact estimates the table is all a conservative scheduler needs (chapter 3): what is left *is* what can be
advertised. The planners use it to put a workflow on the slots of a plan (section 4.5); there a task has an earliest
start. Slots of equal start keep the order in which they were given. Left-over pieces of one slot with the same begin
and end are joined, which the figure does not do: the search is shorter, and a task takes fewer pieces apart.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from penstock.future.bits import lowest
from penstock_planning.plan.slots import Slot

__all__ = ["Fit", "Piece", "SlotTable"]


class Piece(NamedTuple):
    """`procs` of slot number `slot`, the set `nodes`, that are free from `start` to `end` (infinite: extensible)."""

    start: float
    end: float
    procs: int
    slot: int
    nodes: int


class Fit(NamedTuple):
    """Where a task goes: its start, and the places in the table of the pieces it takes, in the order of taking. The
    pieces before the place `first` are too short for it, and for any as long as it that is ready later."""

    start: float
    pieces: tuple[int, ...]
    first: int


class SlotTable:
    """What is free of a list of slots. A slot that is extensible never ends here.

    Who knows that no task is shorter than `shortest` is spared the pieces that can hold none; who does not need the
    nodes that tasks get (`named` false) is spared their sets.
    """

    __slots__ = ("_shortest", "pieces", "starts", "used")

    def __init__(self, slots: Sequence[Slot], shortest: float = 0.0, named: bool = True) -> None:
        self._shortest = shortest
        rows = [
            Piece(slot.start, math.inf if slot.extensible else slot.end, slot.procs, i, slot.nodes if named else 0)
            for i, slot in enumerate(slots)
        ]
        self.pieces: list[Piece] = sorted(rows, key=lambda piece: piece.start)
        self.starts = [piece.start for piece in self.pieces]
        self.used: dict[int, float] = {}
        """Processors times time taken of each slot, by its number in the list."""

    def find(self, procs: int, duration: float, after: float = -math.inf, first: int = 0) -> Fit | None:
        """The first place for a task, by Figure 2's search: the first piece that is long enough, alone or with pieces
        that begin before it, from the place `first` on. None if there is none."""
        open_until: list[tuple[float, int]] = []  # what begins earlier and is long enough, the first to end on top
        beside = 0  # its processors: those that end too early are gone for all later starts, too
        long_enough = -1
        for i, (start, end, free, _, _) in enumerate(islice(self.pieces, first, None) if first else self.pieces, first):
            begin = start if start > after else after
            until = begin + duration
            if end < until:
                continue
            if long_enough < 0:
                long_enough = i
            if free >= procs:
                return Fit(begin, (i,), long_enough)
            while open_until and open_until[0][0] < until:
                beside -= heappop(open_until)[1]
            if beside + free >= procs:
                return Fit(begin, self._stack(i, until, procs - free), long_enough)
            heappush(open_until, (end, free))
            beside += free
        return None

    def _stack(self, last: int, until: float, short: int) -> tuple[int, ...]:
        """The piece `last` and those before it, from the nearest on, until `short` processors have been found."""
        chosen = [last]
        for j in range(last - 1, -1, -1):
            if self.pieces[j][1] >= until:
                chosen.append(j)
                short -= self.pieces[j][2]
                if short <= 0:
                    break
        return tuple(chosen)

    def take(self, fit: Fit, procs: int, duration: float) -> int:
        """Put the task there, and what is left of the pieces back into the table: at most three pieces of each. The
        nodes that it gets."""
        begin, end = fit.start, fit.start + duration
        old = [self.pieces[i] for i in fit.pieces]
        for i in sorted(fit.pieces, reverse=True) if len(old) > 1 else fit.pieces:
            del self.pieces[i]
            del self.starts[i]
        short, given = procs, 0
        for since, until, free, slot, nodes in old:
            count = min(short, free)
            short -= count
            taken = nodes if count == free else lowest(nodes, count)
            given |= taken
            self.used[slot] = self.used.get(slot, 0) + count * duration
            if since < begin:
                self._add(since, begin, free, slot, nodes)
            if free > count:
                self._add(begin, until, free - count, slot, nodes & ~taken)
            if until > end:
                self._add(end, until, count, slot, taken)
        return given

    def forget(self, now: float) -> None:
        """Drop what lies before `now`."""
        begun = bisect_right(self.starts, now)
        if not begun or (self.starts[0] == now == self.starts[begun - 1]):
            return
        old = self.pieces[:begun]
        del self.pieces[:begun]
        del self.starts[:begun]
        for _, end, procs, slot, nodes in reversed(old):
            if end > now:
                self._add(now, end, procs, slot, nodes)

    def put(self, procs: int, duration: float, after: float = -math.inf) -> float | None:
        """Place a task; its start, or None if it fits nowhere."""
        fit = self.find(procs, duration, after)
        if fit is None:
            return None
        self.take(fit, procs, duration)
        return fit.start

    def fit_many(self, count: int, fit: Fit, procs: int) -> int:
        """How many of `count` equal tasks go to the same place at once; at least 1."""
        if len(fit.pieces) > 1:
            return 1
        return max(1, min(count, self.pieces[fit.pieces[0]].procs // procs))

    def _add(self, start: float, end: float, procs: int, slot: int, nodes: int) -> None:
        """Put a piece behind those of equal start, or to the one among them that it is like."""
        if end - start < self._shortest:
            return
        pieces, starts = self.pieces, self.starts
        place = bisect_right(starts, start)
        at = place - 1
        while at >= 0 and starts[at] == start:
            other = pieces[at]
            if other[1] == end and other[3] == slot:
                pieces[at] = Piece(start, end, other[2] + procs, slot, other[4] | nodes)
                return
            at -= 1
        starts.insert(place, start)
        pieces.insert(place, Piece(start, end, procs, slot, nodes))
