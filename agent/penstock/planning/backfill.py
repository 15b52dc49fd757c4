"""Backfill over an availability profile of named nodes: `planner.Backfill` for callers who make a single pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.planning.planner import Ask, Backfill
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
    """Plan one pass over `requests`, highest priority first. Claims in `profile`, which begins no later than `now` and
    forgets what lies before it, what it hands out.

    At most `reservations` waiting requests per queue are protected; see `planner` for what that means.
    """
    starts: dict[int, tuple[str, ...]] = {}
    reserved: dict[int, Slot] = {}
    planner, numbering = Backfill(reservations), profile.numbering
    profile.bits.forget(now)
    planner.renew(profile.bits, (), now)
    for request in requests:
        ask = Ask(request.id, request.nodes, request.duration, numbering.mask(request.within), request.queue)
        placed = planner.place(ask, now)
        if placed is not None and placed.start <= now:
            starts[request.id] = numbering.named(placed.nodes)
        elif placed is not None:
            reserved[request.id] = Slot(placed.start, placed.end, numbering.named(placed.nodes))
    return Plan(starts, reserved)
