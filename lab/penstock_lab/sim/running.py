"""The running jobs in order of their estimated ends: what EASY and replan both keep."""

from __future__ import annotations

from bisect import bisect_left, insort

from penstock_lab.sim.base import NEVER
from penstock_lab.sim.trace import Trace

__all__ = ["EstimatedEnds"]


class EstimatedEnds:
    """Base of policies that plan by when the running jobs are estimated to end.

    A running job is one integer, estimated end << bits | job, so that a sorted list of them is a sorted list of ends
    and finding one job again is a bisection.
    """

    def __init__(self, trace: Trace, procs: int) -> None:
        self.due = NEVER
        self._procs = trace.procs.tolist()
        self._estimate = trace.estimate.tolist()
        self._bits = len(trace).bit_length()
        self._free = procs
        self._queue: list[int] = []  # in order of submission
        self._running: list[int] = []  # estimated end << bits | job, sorted
        self._ends: dict[int, int] = {}  # the same by job

    def submit(self, now: int, job: int) -> None:
        """See `Policy`."""
        self._queue.append(job)

    def _run(self, now: int, job: int) -> None:
        """The job runs from now on; its processors were taken already."""
        key = self._ends[job] = now + self._estimate[job] << self._bits | job
        insort(self._running, key)

    def _over(self, now: int, job: int) -> bool:
        """The job runs no longer and its processors are free; True if that is when it was estimated to end."""
        self._free += self._procs[job]
        key = self._ends.pop(job)
        del self._running[bisect_left(self._running, key)]
        return key >> self._bits == now
