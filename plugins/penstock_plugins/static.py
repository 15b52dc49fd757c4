"""Brings every job to one size, whatever the queue does: the preferred one.

A job without a preference keeps the size that it has. One whose preferred size is out of reach goes to the nearest
reachable size below it. Growing waits for nodes that are idle and that nobody in the queue is given by Slurm's plan for
as long as the job may run; shrinking does not wait. So a job that was started on too many nodes, or on what was free,
ends up where its user wants it, and stays there.
"""

from __future__ import annotations

from penstock.api import Job, Offer, Reason, ResizeVerdict, Snapshot, plural
from penstock.future.queue import idle_for

__all__ = ["Static"]


class Static:
    """See the module's text."""

    name = "static"

    def decide(self, offer: Offer, job: Job, snapshot: Snapshot) -> ResizeVerdict:
        """The preferred size, as far as it can be had."""
        if offer.preferred is None:
            return _stay(offer, "static", "no size is preferred")
        sizes = sorted({*offer.reachable(), offer.size})
        target = max((s for s in sizes if s <= offer.preferred), default=sizes[0])
        if target == offer.size:
            return _stay(offer, "static", f"of the sizes in reach this is nearest to the preferred {offer.preferred}")
        if target < offer.size:
            return ResizeVerdict(target, (Reason("static-shrink", f"prefers {offer.preferred}"),))
        missing, idle = (target - offer.size) // offer.per_node, idle_for(job, snapshot)
        if missing > idle:
            return _stay(
                offer, "no-room", f"prefers {offer.preferred}; {plural(idle, 'node')} idle for as long as it runs"
            )
        return ResizeVerdict(
            target, (Reason("static-grow", f"prefers {offer.preferred}; {plural(idle, 'node')} idle"),)
        )


def _stay(offer: Offer, code: str, text: str) -> ResizeVerdict:
    return ResizeVerdict(offer.size, (Reason(code, text),))
