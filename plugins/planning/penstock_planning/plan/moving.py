"""The order in which slots move to where a new plan has them, when one may stand where another one is to go. Pure.

Slots move one at a time, and no two may have a node at once, not for a moment: Slurm refuses that. So a slot moves once
those are gone that stand where it goes. Where they wait for each other in a circle, one of them makes room first: it
moves to a place behind all, and from there to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

__all__ = ["Place", "in_order"]


class Place(NamedTuple):
    """Where a slot is: from when to when, on which nodes."""

    start: float
    end: float
    nodes: frozenset[str]

    def meets(self, other: Place) -> bool:
        """Whether they have a node at once."""
        return self.start < other.end and other.start < self.end and not self.nodes.isdisjoint(other.nodes)


def in_order(
    now: Mapping[str, Place], to: Mapping[str, Place], aside: Callable[[str], Place | None]
) -> list[tuple[str, Place]] | None:
    """Each move in turn, from `now` to `to` (the same keys); what begins first goes first, where it can.

    `aside` names a place for the slot that makes room, which meets none of all these and will be kept; None: there is
    no such place, and then there is no order.
    """
    in_the_way = {
        name: {other for other in now if other != name and place.meets(now[other])} for name, place in to.items()
    }
    left, out = sorted(to, key=lambda name: to[name].start), list[tuple[str, Place]]()
    while left:
        name = next((name for name in left if not in_the_way[name]), None)
        if name is not None:
            left.remove(name)
            out.append((name, to[name]))
        else:
            # Of those in the way of most, the one that has most time left, in case the others are not reached.
            name = max(left, key=lambda one: (sum(one in others for others in in_the_way.values()), to[one].start))
            place = aside(name)
            if place is None:
                return None
            out.append((name, place))
        for others in in_the_way.values():
            others.discard(name)
    return out
