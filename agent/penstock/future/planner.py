"""Who starts now, and when will the others? Planners over an availability profile of pinned nodes.

    Backfill   one request after the other, highest priority first; the first `protect` of each queue that cannot start
               get a reservation, and who comes later may only start where that leaves the reservations alone.
               protect=1 is EASY (Lifka 1995); protect=inf reserves for everybody, and made anew at each event it is
               what `sim` calls replan; with overtake=False it is first come, first served
    Promises   conservative backfilling (Mu'alem and Feitelson 2001): reservations that are kept from event to event
               and only ever move to an earlier time

Both claim in their profile what they hand out. A request that can never run in it (its nodes are down) is left out
and blocks nobody.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from penstock.future.bits import BitProfile, lowest

__all__ = ["Ask", "Backfill", "Placement", "Planner", "Promises"]


class Ask(NamedTuple):
    """`nodes` whole nodes out of the set `within` for `duration` seconds (its time limit), not before `after`. `queue`
    is its partition, `need` the set of those that must be among them."""

    id: int
    nodes: int
    duration: float
    within: int
    queue: str = ""
    need: int = 0
    after: float = -math.inf

    def out_of(self, free: int) -> int | None:
        """Which of the free nodes it takes; None if they will not do."""
        if not self.need:
            return lowest(free, self.nodes) if free.bit_count() >= self.nodes else None
        if self.need & ~free or free.bit_count() < self.nodes:
            return None
        return self.need | lowest(free & ~self.need, max(self.nodes - self.need.bit_count(), 0))

    def earliest(self, profile: BitProfile, now: float, avoid: int = 0) -> tuple[float, int] | None:
        """When it could run first, and on which nodes; see `BitProfile.earliest`."""
        now = max(now, self.after)
        if not self.need:
            return profile.earliest(self.nodes, self.duration, now, self.within, avoid)
        for time in [now, *(t for t in profile.times if t > now)]:
            nodes = self.out_of(profile.common(time, time + self.duration, self.within))
            if nodes is not None:
                return time, nodes
        return None


class Placement(NamedTuple):
    """The set `nodes` from `start` up to but not including `end`."""

    id: int
    start: float
    end: float
    nodes: int


class Planner(Protocol):
    """`renew` begins a pass, `place` is called for each request of it, and for those that come up to the next pass."""

    profile: BitProfile

    def renew(self, profile: BitProfile, asks: Iterable[Ask], now: float) -> None:
        """Begin a pass at `now`. The profile knows nothing of those that wait, who are `asks` in order of priority."""
        ...

    def place(self, ask: Ask, now: float) -> Placement | None:
        """Where it goes, now or later, which is then taken; None when it neither starts now nor gets a reservation."""
        ...

    def most(self, queue: str) -> float:
        """`place` gives None to requests of this queue for more nodes: no need to ask."""
        ...

    def hopeless(self, queues: int) -> bool:
        """Whether `place` would give None to every further request out of so many queues."""
        ...


def _hold(profile: BitProfile, placed: Placement) -> None:
    """Claim it; a job of no length at all has its nodes for an instant."""
    end = placed.end if placed.end > placed.start else math.nextafter(placed.start, math.inf)
    profile.block(placed.nodes, placed.start, end)


class Backfill:
    """FCFS, EASY and replanning, by what is protected.

    `spare`: reservations prefer nodes that are busy now, which leaves more of the free ones to those that overtake:
    EASY then lets the same jobs start as one that counts processors.
    """

    def __init__(self, protect: float = 1, *, overtake: bool = True, spare: bool = False) -> None:
        self.profile = BitProfile(0)
        self._protect = protect
        self._overtake = overtake
        self._spare = spare
        self._reserved: dict[str, int] = {}
        self._full = 0  # queues all of whose reservations are given away
        self._free = 0  # how many nodes are free now

    def renew(self, profile: BitProfile, asks: Iterable[Ask], now: float) -> None:
        """See `Planner`; nothing is kept from the pass before."""
        self.profile = profile
        self._reserved = {}
        self._full = 0
        self._free = profile.free[0].bit_count()

    def place(self, ask: Ask, now: float) -> Placement | None:
        """See `Planner`."""
        profile, duration = self.profile, ask.duration
        used = self._reserved.get(ask.queue, 0)
        if used >= self._protect:
            # It gets no reservation: spare the search, which is the costly part, for one instant.
            if not self._overtake or self._free < ask.nodes or ask.after > now:
                return None
            nodes = ask.out_of(profile.common(now, now + duration, ask.within))
            if nodes is None:
                return None
            placed = Placement(ask.id, now, now + duration, nodes)
        else:
            avoid = profile.free[0] if self._spare else 0
            found = ask.earliest(profile, now, avoid)
            if found is None:
                return None
            placed = Placement(ask.id, found[0], found[0] + duration, found[1])
            if placed.start > now:
                self._reserved[ask.queue] = used + 1
                self._full += used + 1 == self._protect
        _hold(profile, placed)
        self._free = profile.free[0].bit_count()
        return placed

    def most(self, queue: str) -> float:
        """See `Planner`."""
        if self._reserved.get(queue, 0) < self._protect:
            return math.inf
        return self._free if self._overtake else 0

    def hopeless(self, queues: int) -> bool:
        """See `Planner`."""
        return self._full == queues and not (self._overtake and self._free)


class Promises:
    """Conservative backfilling with compression in order of priority, at every pass."""

    def __init__(self) -> None:
        self.profile = BitProfile(0)
        self._kept: dict[int, tuple[Ask, Placement]] = {}

    def renew(self, profile: BitProfile, asks: Iterable[Ask], now: float) -> None:
        """See `Planner`. A promise that cannot be kept (a node has died) is forgotten, and so is that of a request
        which has changed or is no longer there."""
        self.profile = profile
        kept: dict[int, tuple[Ask, Placement]] = {}
        for ask in asks:
            old = self._kept.get(ask.id)
            if old is None or old[0] != ask or old[1].start < now:
                continue
            placed = old[1]
            if profile.common(placed.start, placed.end, placed.nodes) == placed.nodes:
                _hold(profile, placed)
                kept[ask.id] = old
        self._kept = kept
        self._compress(now)

    def place(self, ask: Ask, now: float) -> Placement | None:
        """See `Planner`."""
        if ask.id in self._kept:
            placed = self._kept[ask.id][1]
        else:
            found = ask.earliest(self.profile, now)
            if found is None:
                return None
            placed = Placement(ask.id, found[0], found[0] + ask.duration, found[1])
            _hold(self.profile, placed)
        if placed.start > now:
            self._kept[ask.id] = ask, placed
        else:
            self._kept.pop(ask.id, None)
        return placed

    def most(self, queue: str) -> float:
        """See `Planner`."""
        return math.inf

    def hopeless(self, queues: int) -> bool:
        """See `Planner`."""
        return False

    def _compress(self, now: float) -> None:
        """Put every waiting request back at the earliest hole, which is where it was or earlier."""
        profile = self.profile
        counts, since = self._crests()
        for number, (ask, placed) in self._kept.items():
            # As long as no segment ahead of its start has room for it, there is no earlier hole.
            first = bisect_left(counts, ask.nodes)
            if first == len(counts) or since[first] >= placed.start:
                continue
            profile.open(placed.nodes, placed.start, placed.end)
            found = ask.earliest(profile, now)
            if found is not None and found[0] < placed.start:
                placed = Placement(number, found[0], found[0] + ask.duration, found[1])
                self._kept[number] = ask, placed
                _hold(profile, placed)
                counts, since = self._crests()
            else:
                _hold(profile, placed)

    def _crests(self) -> tuple[list[int], list[float]]:
        """The segments with more free nodes than any before: how many, and since when, both rising."""
        counts: list[int] = []
        since: list[float] = []
        top = 0
        for time, free in zip(self.profile.times, self.profile.free, strict=True):
            if (count := free.bit_count()) > top:
                top = count
                counts.append(count)
                since.append(time)
        return counts, since
