"""Leaves every job as it is: for sites that want to see what would ask for resizes before any is done."""

from __future__ import annotations

from penstock.api import Job, Offer, Reason, ResizeVerdict, Snapshot

__all__ = ["Noop"]


class Noop:
    """See the module's text."""

    name = "noop"

    def decide(self, offer: Offer, job: Job, snapshot: Snapshot) -> ResizeVerdict:
        """The size that it has."""
        return ResizeVerdict(offer.size, (Reason("noop", "this policy never resizes"),))
