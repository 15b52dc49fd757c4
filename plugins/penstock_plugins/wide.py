"""The policy of the paper: requested action, preferred size, wide optimization (DMR paper, section 4).

In this order, with sizes in processes and only sizes the application can reach:

1. *Requested action* (4.1). A minimum above the current size asks for growth, a maximum below it for a shrink. The
   cluster has the last word: growth needs idle nodes that no pending job can use.
2. *Preferred size* (4.2). With nothing pending, grow up to the maximum. Else stay when the size is the preferred one,
   or move towards it.
   The paper's text names "the size is the preferred one" first. Then no job that has it could grow, but one does in its
   own measurement (section 7.5), when the queue has become empty: so that is asked first.
3. *Wide optimization* (4.3). Shrink when a pending job could start on the nodes that frees; grow when nodes are idle
   and no pending job can use them.

A pending job counts when only nodes keep it from starting (Slurm's reason is Resources or Priority), and not when it
cannot use the nodes that are idle although they are enough (Slurm says that it will start later). Nodes that Slurm has
planned for a job (state PLANNED), or that would have to be powered up, are idle as far as pending jobs are concerned,
but nothing grows onto them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.api import Job, Offer, Reason, ResizeVerdict, Snapshot, plural
from penstock.future.queue import later, waiting

__all__ = ["WideOptimization"]


class _Idle(NamedTuple):
    """Numbers of idle nodes: all, and those that are awake and not planned for a pending job."""

    all: int
    ready: int


class WideOptimization:
    """The three modes of the paper in one policy."""

    name = "wide"

    def decide(self, offer: Offer, job: Job, snapshot: Snapshot) -> ResizeVerdict:
        """The size that `job` should have now (see the module's text)."""
        names = snapshot.idle_nodes(job.partition)
        nodes = [snapshot.nodes[n] for n in names]
        idle = _Idle(len(names), sum("PLANNED" not in n.state.upper() and not n.asleep for n in nodes))
        queue = [p for p in waiting(snapshot, job.partition) if not later(p, snapshot)]
        if offer.size < offer.minimum:
            return self._grow(offer, idle, queue, "the application asks to grow", offer.maximum)
        if offer.size > offer.maximum:
            return self._shrink_to(offer, offer.maximum, "requested", "the application asks to shrink")
        if offer.preferred is not None:
            return self._towards_preferred(offer, idle, queue, offer.preferred)
        return self._wide(offer, idle, queue)

    def _towards_preferred(self, offer: Offer, idle: _Idle, queue: Sequence[Job], preferred: int) -> ResizeVerdict:
        if not queue:
            return self._grow(offer, idle, queue, "nothing is pending", offer.maximum)
        if offer.size == preferred:
            return _stay(offer, "preferred", f"has its preferred size of {preferred}")
        if offer.size < preferred:
            return self._grow(offer, idle, queue, f"prefers {preferred}", preferred)
        return self._shrink_to(offer, preferred, "preferred", f"prefers {preferred}, and jobs are pending")

    def _wide(self, offer: Offer, idle: _Idle, queue: Sequence[Job]) -> ResizeVerdict:
        for pending in queue:
            missing = pending.least_nodes - idle.all
            if missing <= 0:
                return _stay(
                    offer, "startable", f"job {pending.id} can start on {plural(idle.all, 'idle node')} by itself"
                )
            for size in sorted((s for s in offer.reachable() if s < offer.size), reverse=True):
                if (offer.size - size) // offer.per_node >= missing:
                    text = f"job {pending.id} waits for {plural(pending.least_nodes, 'node')}, and {idle.all} idle"
                    return ResizeVerdict(size, (Reason("shrink-for-pending", text),), beneficiary=pending.id)
        return self._grow(offer, idle, queue, "no pending job can use the idle nodes", offer.maximum)

    def _grow(self, offer: Offer, idle: _Idle, queue: Sequence[Job], why: str, at_most: int) -> ResizeVerdict:
        startable = next((p for p in queue if p.least_nodes <= idle.all), None)
        if startable is not None:
            return _stay(
                offer, "startable", f"job {startable.id} can start on {plural(idle.all, 'idle node')} by itself"
            )
        fitting = [
            s
            for s in offer.reachable()
            if offer.size < s <= at_most and (s - offer.size) // offer.per_node <= idle.ready
        ]
        if not fitting:
            return _stay(offer, "no-room", f"too few for a larger reachable size: {plural(idle.ready, 'idle node')}")
        return ResizeVerdict(max(fitting), (Reason("expand-idle", f"{plural(idle.ready, 'idle node')}; {why}"),))

    def _shrink_to(self, offer: Offer, target: int, code: str, why: str) -> ResizeVerdict:
        fitting = [s for s in offer.reachable() if s < offer.size and s <= target]
        if fitting:
            return ResizeVerdict(max(fitting), (Reason(code, why),))
        return _stay(offer, "unreachable", f"{why}, but no smaller size can be reached")


def _stay(offer: Offer, code: str, text: str) -> ResizeVerdict:
    return ResizeVerdict(offer.size, (Reason(code, text),))
