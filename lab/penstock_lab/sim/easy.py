"""EASY backfilling (Lifka 1995): jobs may overtake, but never delay the first one in the queue.

Start heads while they fit. Reserve for the head that does not: the *shadow* is the earliest time at which it fits by
the estimated ends of the running jobs, the *extra* processors are those it leaves free at that time. Then scan the
rest in order and start a job that fits now and that either ends by the shadow or fits into the extra ones.

What makes it fast: after a pass nothing waiting can start until a processor is freed, as the conditions only get
harder with time. So a submission is a question about the new job alone, and shadow and extra stay what they are until
the head changes or a job ends before its estimate; a job that ends on its estimate was counted upon.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock_lab.sim.running import EstimatedEnds
from penstock_lab.sim.trace import Trace

__all__ = ["Easy"]


class Easy(EstimatedEnds):
    """EASY backfilling with a queue in order of submission."""

    def __init__(self, trace: Trace, procs: int) -> None:
        super().__init__(trace, procs)
        self._seen = 0  # jobs of the queue that the last pass looked at in vain
        self._shadow = 0  # 0: not known
        self._extra = 0

    def end(self, now: int, job: int) -> None:
        """See `Policy`."""
        self._seen = 0
        if not self._over(now, job):
            self._shadow = 0

    def start(self, now: int) -> Sequence[int]:
        """See `Policy`."""
        queue, procs, free = self._queue, self._procs, self._free
        started: list[int] = []
        at = self._seen
        if not at:
            while at < len(queue) and procs[queue[at]] <= free:
                free -= procs[queue[at]]
                at += 1
            if at:
                started = queue[:at]
                del queue[:at]
                self._shadow = 0
                self._free = free
                for job in started:
                    self._run(now, job)
            at = 1
        estimate = self._estimate
        for job in queue[at:] if free else ():
            width = procs[job]
            if width <= free:
                if not self._shadow:
                    self._reserve()
                if now + estimate[job] > self._shadow:
                    if width > self._extra:
                        continue
                    self._extra -= width
                free -= width
                self._free = free
                queue.remove(job)
                self._run(now, job)
                started.append(job)
                if not free:
                    break
        self._seen = len(queue)
        return started

    def _reserve(self) -> None:
        """Find the head's shadow and extra processors."""
        procs, bits = self._procs, self._bits
        mask = (1 << bits) - 1
        spare = self._free - procs[self._queue[0]]
        reached = 0
        for key in self._running:
            if spare >= 0 and key >> bits != reached:
                break
            spare += procs[key & mask]
            reached = key >> bits
        self._shadow, self._extra = reached, spare
