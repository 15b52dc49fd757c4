"""What a plan is made in: what is free when, by name (`bits.BitProfile`) or by number (`counted.Counted`).

A *place* is an integer, and only the profile knows what it stands for: a set of nodes, or how many units.
"""

from __future__ import annotations

import math
from typing import Protocol

from penstock.future.planner import Ask

__all__ = ["AvailabilityProfile", "place"]


class AvailabilityProfile(Protocol):
    """What is free from now to eternity."""

    def earliest(
        self, count: int, duration: float, after: float, within: int, avoid: int = 0
    ) -> tuple[float, int] | None:
        """The first time from `after` on at which so many out of `within` are free for `duration` seconds, and the
        place; None: there never is such a time."""
        ...

    def block(self, place: int, begin: float, end: float = math.inf) -> None:
        """Take a place."""
        ...


def place(profile: AvailabilityProfile, ask: Ask, now: float) -> tuple[float, int] | None:
    """Give a request the earliest hole that is left, which is then taken: its start, and where. None: there is none.

    Done for every job in Slurm's order this is conservative backfilling (Mu'alem and Feitelson 2001): nobody moves
    those before it. Requests with a `need` are for `planner` alone.
    """
    found = profile.earliest(ask.nodes, ask.duration, max(now, ask.after), ask.within)
    if found is not None:
        profile.block(found[1], found[0], found[0] + ask.duration)
    return found
