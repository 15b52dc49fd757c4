"""The free slots of a plan as the dashboard draws them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.api import Partition, Snapshot
from penstock.future.bits import NodeBits
from penstock.future.expected import Expected
from penstock.future.plan import QueueSchedule
from penstock_planning.plan.live import node_price
from penstock_planning.plan.pricing import Pricing
from penstock_planning.plan.slots import default_horizon, free_slots

__all__ = ["shown_slots"]

_SHORTEST: Final = 60.0  # seconds of a slot that is worth showing
_HOUR: Final = 3600.0
_MOST: Final = 400


def shown_slots(
    pricing: Callable[[float], Pricing], snapshot: Snapshot, plan: QueueSchedule, bits: NodeBits, partition: Partition
) -> tuple[Expected, ...]:
    """A `SlotFinder` once it has `pricing`, which makes the rules of prices from what a node costs for a second."""
    nodes = [name for name in partition.nodes if name in snapshot.nodes]
    rules = pricing(node_price(partition, [snapshot.nodes[name] for name in nodes]))
    horizon = default_horizon(plan.queue.now, plan.last_finish)
    found = [slot for slot in free_slots(plan.profile, horizon, rules, bits.mask(nodes)) if slot.duration >= _SHORTEST]
    return tuple(
        Expected("", bits.named(slot.nodes), slot.start, None if slot.extensible else slot.end, slot.c * _HOUR)
        for slot in found[:_MOST]
    )
