"""Maintenance windows: when could a job begin so that it ends before one, or else begins after it?

Slurm starts no job whose time limit reaches into a maintenance reservation of its nodes; such a job only stands in the
queue, and what it waits says nothing about that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from penstock.api import Reservation
from penstock.future.bits import BitProfile, NodeBits

__all__ = ["earliest", "windows"]


def windows(reservations: Iterable[Reservation], nodes: Iterable[str], now: float) -> list[Reservation]:
    """The maintenance reservations that take any of these nodes and are not over, by their start."""
    wanted = set(nodes)
    found = (r for r in reservations if "MAINT" in r.flags and r.end > now and not wanted.isdisjoint(r.nodes))
    return sorted(found, key=lambda r: (r.start, r.name))


def earliest(
    reservations: Iterable[Reservation], nodes: Sequence[str], count: int, duration: float, now: float
) -> tuple[float, Reservation | None]:
    """The first time from `now` on at which `count` of the partition's `nodes` are free of maintenance for `duration`
    seconds, if no job were in the way, and the reservation that keeps the job from `now` (None: nothing does).

    Infinite when there never is one. A job wider than the partition is nobody's business here: `now`.
    """
    ahead = windows(reservations, nodes, now)
    if not ahead or count > len(nodes):
        return now, None
    numbering, known = NodeBits(nodes), set(nodes)
    profile = BitProfile(numbering.all, now)
    for reservation in ahead:
        taken = numbering.mask(name for name in reservation.nodes if name in known)
        profile.block(taken, reservation.start, reservation.end)
    found = profile.earliest(count, duration, now, numbering.all)
    begin = math.inf if found is None else found[0]
    if begin <= now:
        return now, None
    # Of several, the one that the job has to wait out: the last to end before it may begin.
    blocking = [r for r in ahead if r.end <= begin] or ahead
    return begin, max(blocking, key=lambda r: r.end)
