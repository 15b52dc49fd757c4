"""Sizes that applications announce for a phase that is to come, and when the agent has to act on them. Pure.

The nodes are asked for so much ahead as they are expected to wait, and the resizer waits in the queue up to the
instant that was named and the usual patience more. What was announced and came to nothing by then is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api import Reason, ResizeVerdict
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.words import Deadlines, ResizePhase

__all__ = ["AnnouncementDue", "due", "expired", "missing", "nearest"]


@dataclass(frozen=True, slots=True)
class AnnouncementDue:
    """What an announcement asks for now; `patience` is how long the grant may take (s)."""

    verdict: ResizeVerdict
    patience: float


def nearest(me: MalleableJob) -> int:
    """The reachable size for the announced one: itself, or the nearest towards the present size."""
    assert me.announced is not None
    wanted, present = me.announced.size, me.offer.size
    reachable = me.offer.reachable()
    if wanted > present:
        return max((s for s in reachable if present < s <= wanted), default=present)
    return min((s for s in reachable if wanted <= s < present), default=present)


def missing(me: MalleableJob) -> int:
    """Nodes that the job lacks for the announced size; 0 for none."""
    return max(0, (nearest(me) - me.offer.size) // me.offer.per_node)


def expired(me: MalleableJob, limits: Deadlines, now: float) -> str | None:
    """Why the announcement is to be forgotten, None while it counts."""
    if me.announced is None or me.phase is not ResizePhase.IDLE:
        return None
    if nearest(me) == me.offer.size:
        return f"the job has the announced size of {me.announced.size} processes, or the nearest possible one"
    if now > me.announced.at + limits.grant:
        return f"the announced size of {me.announced.size} processes could not be reached in time"
    return None


def due(me: MalleableJob, lead: float, limits: Deadlines, now: float) -> AnnouncementDue | None:
    """What to do about the announcement now, if anything; `lead` is the wait to expect (s)."""
    said = me.announced
    if said is None:
        return None
    size, ahead = nearest(me), said.at - now
    if size == me.offer.size or ahead > (lead if size > me.offer.size else 0.0):
        return None
    text = f"the application announced {said.size} processes for {'now' if ahead <= 0 else f'in {ahead:.0f} s'}"
    if size > me.offer.size:
        text += f"; getting the nodes is expected to take {lead:.0f} s"
    return AnnouncementDue(ResizeVerdict(size, (Reason("announced", text),)), max(ahead, 0.0) + limits.grant)
