"""Backfill over an availability profile: who starts now, and when the first ones that cannot will.

EASY (Lifka 1995) is `reservations=1`: the first job of each queue that cannot start gets a reservation from the time
limits of those that run, and a later job may only start if it leaves that reservation alone. With more reservations it
approaches conservative backfilling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.planning.profile import Profile, Slot

__all__ = ["Plan", "Request", "backfill"]


@dataclass(frozen=True, slots=True)
class Request:
    """`nodes` whole nodes out of `within` for `duration` seconds (its time limit). `queue` is its partition."""

    id: int
    nodes: int
    duration: float
    within: tuple[str, ...]
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """`starts`: nodes of those that start now, in this order. `reserved`: the slots of those that wait and count."""

    starts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    reserved: Mapping[int, Slot] = field(default_factory=dict)


def backfill(profile: Profile, requests: Iterable[Request], now: float, reservations: float = 1) -> Plan:
    """Plan one pass over `requests`, highest priority first. Claims in `profile` what it hands out.

    At most `reservations` waiting requests per queue are protected. A request that can never run in this profile
    (its nodes are down) is left out and blocks nobody.
    """
    starts: dict[int, tuple[str, ...]] = {}
    reserved: dict[int, Slot] = {}
    used: dict[str, int] = {}
    free_now = set(profile.free_at(now))
    for request in requests:
        protected = used.get(request.queue, 0) < reservations
        if not protected and len(free_now) < request.nodes:
            continue  # cannot start and gets no reservation: spare the search, which is the costly part
        if protected:
            slot = profile.earliest(request.nodes, request.duration, now, request.within)
            if slot is None:
                continue
        else:
            free = profile.free_during(now, now + request.duration, request.within)
            if len(free) < request.nodes:
                continue
            slot = Slot(now, now + request.duration, free[: request.nodes])
        profile.claim(slot.nodes, slot.start, slot.end if slot.end > slot.start else math.nextafter(now, math.inf))
        if slot.start <= now:
            starts[request.id] = slot.nodes
            free_now.difference_update(slot.nodes)
        else:
            reserved[request.id] = slot
            used[request.queue] = used.get(request.queue, 0) + 1
    return Plan(starts, reserved)
