"""What a picture of the cluster lets expect: when who waits will start, and what stays free meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.api import Snapshot, plural
from penstock.errors import PenstockError
from penstock.future.bits import NodeBits
from penstock.future.expected import Expected, SlotFinder
from penstock.future.partition import queue_for
from penstock.future.plan import make_plan

__all__ = ["PlannedStarts", "look_ahead"]

_MOST: Final = 400
_PARTITIONS: Final = 20


@dataclass(frozen=True, slots=True)
class PlannedStarts:
    """Jobs in the order in which they start, slots by partition (a slot's name is empty), and what was left out."""

    at: float
    jobs: tuple[Expected, ...] = ()
    slots: tuple[tuple[str, tuple[Expected, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def look_ahead(snapshot: Snapshot, slots: SlotFinder | None = None) -> PlannedStarts:
    """Plan the queue; `slots` says what stays free. A picture that cannot be planned on gives the reason as a note."""
    partitions = sorted((p for p in snapshot.partitions.values() if p.up), key=lambda p: (not p.default, p.name))
    known = [p for p in partitions if any(n in snapshot.nodes for n in p.nodes)]
    if not known:
        return PlannedStarts(snapshot.taken_at)
    try:
        queue = queue_for(snapshot, known[0])
    except PenstockError as e:
        return PlannedStarts(snapshot.taken_at, notes=(str(e),))
    plan, bits = make_plan(queue.queue), NodeBits(queue.names)
    jobs = [
        Expected(job.id, bits.named(nodes), start, start + job.duration)
        for job, start, nodes in zip(plan.queue.waiting, plan.starts, plan.nodes, strict=True)
        if nodes and start < math.inf
    ]
    notes = list(queue.notes)
    if never := sum(start == math.inf for start in plan.starts):
        notes.append(f"{plural(never, 'pending job')} can never start on the cluster as it is")
    if len(jobs) > _MOST:
        notes.append(f"the first {_MOST} of {len(jobs)} planned jobs are shown")
    return PlannedStarts(
        snapshot.taken_at,
        tuple(sorted(jobs, key=lambda job: job.start)[:_MOST]),
        () if slots is None else tuple((p.name, slots(snapshot, plan, bits, p)) for p in known[:_PARTITIONS]),
        tuple(notes),
    )
