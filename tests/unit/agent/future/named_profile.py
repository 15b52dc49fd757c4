"""The availability profile by the names of nodes and with its claims checked, for tests: a view of `BitProfile`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.future.bits import BitProfile, NodeBits

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
    `bits` and `numbering` are the same thing for planners that count in bits.
    """

    def __init__(self, nodes: Sequence[str], start: float = 0.0) -> None:
        self.numbering = NodeBits(nodes)
        self.bits = BitProfile(self.numbering.all, start)

    def claim(self, nodes: Iterable[str], begin: float, end: float = math.inf) -> None:
        """Take nodes from `begin` to `end`. ValueError, and no change, when one of them is not free all that time.

        What lies before the profile's start is ignored.
        """
        mask = self.numbering.mask(nodes)
        if self.bits.common(begin, end, mask) != mask:
            raise ValueError(f"not all free from {begin} to {end}")
        self.bits.block(mask, begin, end)

    def give_back(self, nodes: Iterable[str], begin: float, end: float = math.inf) -> None:
        """Make nodes free from `begin` to `end`, whatever they were."""
        self.bits.open(self.numbering.mask(nodes), begin, end)

    def free_during(self, begin: float, end: float, within: Iterable[str] | None = None) -> tuple[str, ...]:
        """The nodes (of `within`) that are free all the time from `begin` to `end`, in order of preference."""
        return self.numbering.named(self.bits.common(begin, end, self._wanted(within)))

    def free_at(self, time: float) -> tuple[str, ...]:
        """The nodes that are free at this instant."""
        return self.free_during(time, time)

    def earliest(
        self, count: int, duration: float, after: float = -math.inf, within: Iterable[str] | None = None
    ) -> Slot | None:
        """The first slot of `count` nodes (of `within`) for `duration` seconds that begins at `after` or later.

        None when there never is one. Takes time in proportion to the number of claims, squared at worst.
        """
        found = self.bits.earliest(count, duration, after, self._wanted(within))
        return None if found is None else Slot(found[0], found[0] + duration, self.numbering.named(found[1]))

    def segments(self) -> Iterator[Slot]:
        """The time line: maximal stretches with the same free nodes, in order, the last one endless."""
        ends = [*self.bits.times[1:], math.inf]
        for begin, end, free in zip(self.bits.times, ends, self.bits.free, strict=True):
            yield Slot(begin, end, self.numbering.named(free))

    def _wanted(self, within: Iterable[str] | None) -> int:
        return self.numbering.all if within is None else self.numbering.mask(within)
