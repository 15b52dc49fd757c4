"""What a picture of the cluster lets expect: when who waits will start, and what stays free meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.api import Partition, Snapshot, plural
from penstock.errors import PenstockError
from penstock.future.bits import NodeBits
from penstock.provision.live import from_snapshot, node_price
from penstock.provision.pricing import PaperPricing, Pricing
from penstock.provision.slots import free_slots

__all__ = ["Expected", "PlannedStarts", "look_ahead"]

_SHORTEST: Final = 60.0  # seconds of a slot that is worth showing
_HOUR: Final = 3600.0
_MOST: Final = 400
_PARTITIONS: Final = 20


@dataclass(frozen=True, slots=True)
class Expected:
    """`name` (a job, or a task of an array) on `nodes` from `start` to `end`; None: for ever, or not known. `price` is
    that of a slot: what one of its nodes costs for an hour, in the site's billing units."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float | None
    price: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedStarts:
    """Jobs in the order in which they start, slots by partition (a slot's name is empty), and what was left out."""

    at: float
    jobs: tuple[Expected, ...] = ()
    slots: tuple[tuple[str, tuple[Expected, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def look_ahead(snapshot: Snapshot, pricing: Callable[[float], Pricing] = PaperPricing) -> PlannedStarts:
    """Plan the queue as `penstock slots` does, by the site's rules of prices. A picture that cannot be planned on gives
    the reason as a note."""
    partitions = sorted((p for p in snapshot.partitions.values() if p.up), key=lambda p: (not p.default, p.name))
    known = [p for p in partitions if any(n in snapshot.nodes for n in p.nodes)]
    if not known:
        return PlannedStarts(snapshot.taken_at)
    try:
        situation = from_snapshot(snapshot, known[0], pricing)
    except PenstockError as e:
        return PlannedStarts(snapshot.taken_at, notes=(str(e),))
    plan, bits = situation.plan(), NodeBits(situation.names)
    jobs = [
        Expected(job.id, bits.named(nodes), start, start + job.duration)
        for job, start, nodes in zip(plan.queue.waiting, plan.starts, plan.nodes, strict=True)
        if nodes and start < math.inf
    ]
    notes = list(situation.notes)
    if never := sum(start == math.inf for start in plan.starts):
        notes.append(f"{plural(never, 'pending job')} can never start on the cluster as it is")
    if len(jobs) > _MOST:
        notes.append(f"the first {_MOST} of {len(jobs)} planned jobs are shown")
    horizon = situation.horizon or plan.last_finish

    def slots_of(partition: Partition) -> tuple[Expected, ...]:
        nodes = [n for n in partition.nodes if n in snapshot.nodes]
        rules = pricing(node_price(partition, [snapshot.nodes[n] for n in nodes]))
        found = [s for s in free_slots(plan.profile, horizon, rules, bits.mask(nodes)) if s.duration >= _SHORTEST]
        return tuple(
            Expected("", bits.named(s.nodes), s.start, None if s.extensible else s.end, s.c * _HOUR)
            for s in found[:_MOST]
        )

    return PlannedStarts(
        snapshot.taken_at,
        tuple(sorted(jobs, key=lambda job: job.start)[:_MOST]),
        tuple((p.name, slots_of(p)) for p in known[:_PARTITIONS]),
        tuple(notes),
    )
