"""How many nodes resizes may move within an hour: a sliding window over what has moved and what is about to. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.api import Reason, plural

__all__ = ["CODE", "WINDOW", "Caps", "NodeMove", "ResizeRoom", "room"]

WINDOW: Final = 3600.0
CODE: Final = "hourly-cap"
"""The code of the reason."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The most nodes that are moved within any hour, by all resizes and by those of one user; None: no cap."""

    nodes: int | None = None
    of_user: int | None = None


@dataclass(frozen=True, slots=True)
class NodeMove:
    """So many nodes went into or out of a job of the user `uid` at the instant `at` (epoch s)."""

    at: float
    uid: int
    nodes: int


@dataclass(frozen=True, slots=True)
class ResizeRoom:
    """How many nodes (infinity: any number) a job may be resized by now, and what keeps it from more."""

    nodes: float
    reason: Reason | None = None


def room(caps: Caps, moves: Iterable[NodeMove], uid: int, now: float) -> ResizeRoom:
    """What is left of the hour for a job of the user `uid`. Moves in the future (the clock was set back) count."""
    recent = [move for move in moves if move.at > now - WINDOW]
    found = ResizeRoom(math.inf)
    for cap, of, key in (
        (caps.nodes, recent, "nodes_per_hour"),
        (caps.of_user, [move for move in recent if move.uid == uid], "nodes_per_hour_of_user"),
    ):
        if cap is None:
            continue
        moved = sum(move.nodes for move in of)
        left = max(0, cap - moved)
        if left < found.nodes:
            text = f"resizes moved {plural(moved, 'node')} within the last hour, and `limits.{key}` is {cap}"
            found = ResizeRoom(left, Reason(CODE, text))
    return found
