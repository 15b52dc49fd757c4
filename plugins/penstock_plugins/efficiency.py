"""Grows a job only while it is worth the nodes, and takes back growth that was not.

The measure is the application's own: the seconds of its steps, at every size it has had. The efficiency of a size is
the speed-up over the smallest measured size, for each node:

    efficiency(n) = seconds(smallest) * smallest / (seconds(n) * n)

which is 1 for perfect scaling and smallest / n where more nodes do not help at all.

- *Grow* by one reachable size where nodes are idle, nobody in the queue is given them by Slurm's plan for as long as
  the job may run, and the size it has is efficient (at least 0.5; a size that was not is tried again ever more rarely).
- *Shrink back* to the next smaller reachable size where the efficiency of the size it has is below that.
- A demand of the application itself (a minimum above its size, a maximum below) is met first (DMR paper, section 4.1).

An application that does not say what its steps take is left as it is. Nothing is shrunk for pending jobs: that is the
matter of `throughput` and `wide`.
"""

from __future__ import annotations

from penstock.api import Job, Offer, Reason, ResizeVerdict, Snapshot, plural
from penstock.future.queue import idle_for
from penstock.future.speeds import Memory

__all__ = ["Efficiency"]


class Efficiency:
    """See the module's text."""

    name = "efficiency"

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold
        self.memory = Memory()

    def decide(self, offer: Offer, job: Job, snapshot: Snapshot) -> ResizeVerdict:
        """The size that `job` should have now (see the module's text)."""
        smaller = max((s for s in offer.reachable() if s < offer.size), default=None)
        larger = min((s for s in offer.reachable() if s > offer.size), default=None)
        if offer.size > offer.maximum and smaller is not None:
            fitting = max((s for s in offer.reachable() if s <= offer.maximum), default=smaller)
            return ResizeVerdict(fitting, (Reason("requested", "the application asks to shrink"),))
        speeds, idle = self.memory.of(offer, snapshot), idle_for(job, snapshot)
        measured = speeds.measured
        if larger is not None and offer.size < offer.minimum and (larger - offer.size) // offer.per_node <= idle:
            return ResizeVerdict(larger, (Reason("requested", f"the application asks to grow, and {idle} are idle"),))
        if not offer.step_seconds:
            return _stay(offer, "unmeasured", "the application does not say what its steps take")
        here = self._efficiency(measured, offer.size)
        if here < self.threshold and smaller is not None and smaller >= min(measured):
            text = (
                f"with {offer.size} processes each does only {here:.0%} of the work that it does with {min(measured)}"
            )
            return ResizeVerdict(smaller, (Reason("did-not-pay", text),))
        if larger is None:
            return _stay(offer, "largest", "no larger size can be reached")
        again = speeds.tries(snapshot.taken_at)
        if larger in measured and self._efficiency(measured, larger) < self.threshold and not again:
            return _stay(offer, "would-not-pay", f"a size of {larger} was tried, and was not worth its nodes")
        if here < self.threshold:
            text = f"each process does only {here:.0%} of the work that it does with {min(measured)}"
            return _stay(offer, "would-not-pay", text)
        if (larger - offer.size) // offer.per_node > idle:
            return _stay(offer, "no-room", f"{plural(idle, 'node')} idle for as long as it runs, too few for {larger}")
        text = f"each process does {here:.0%} of the work that it does with {min(measured)}; idle nodes: {idle}"
        return ResizeVerdict(larger, (Reason("scales", text),))

    def _efficiency(self, measured: dict[int, float], size: int) -> float:
        smallest = min(measured)
        return measured[smallest] * smallest / (measured[size] * size)


def _stay(offer: Offer, code: str, text: str) -> ResizeVerdict:
    return ResizeVerdict(offer.size, (Reason(code, text),))
