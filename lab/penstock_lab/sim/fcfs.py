"""First come, first served: jobs start in order of submission, and one that does not fit blocks all behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock_lab.sim.base import NEVER
from penstock_lab.sim.trace import Trace

__all__ = ["Fcfs"]


class Fcfs:
    """Estimates play no part, and neither does the order of events in the same second."""

    def __init__(self, trace: Trace, procs: int) -> None:
        self.due = NEVER
        self._procs = trace.procs
        self._free = procs
        self._queue: deque[int] = deque()

    def submit(self, now: int, job: int) -> None:
        """See `Policy`."""
        self._queue.append(job)

    def end(self, now: int, job: int) -> None:
        """See `Policy`."""
        self._free += self._procs[job]

    def start(self, now: int) -> Sequence[int]:
        """See `Policy`."""
        queue, procs = self._queue, self._procs
        started = []
        while queue and procs[queue[0]] <= self._free:
            job = queue.popleft()
            self._free -= procs[job]
            started.append(job)
        return started
