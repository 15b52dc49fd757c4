"""What is expected of a cluster's nodes, as the dashboard draws it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.api import Partition, Snapshot
from penstock.future.bits import NodeBits
from penstock.future.plan import QueueSchedule

__all__ = ["Expected", "SlotFinder"]


@dataclass(frozen=True, slots=True)
class Expected:
    """`name` (a job, or a task of an array) on `nodes` from `start` to `end`; None: for ever, or not known. `price` is
    that of a slot: what one of its nodes costs for an hour, in the site's billing units."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float | None
    price: float | None = None


SlotFinder = Callable[[Snapshot, QueueSchedule, NodeBits, Partition], tuple[Expected, ...]]
"""The slots of a partition that a plan leaves free, by start. `NodeBits` names the nodes of the plan."""
