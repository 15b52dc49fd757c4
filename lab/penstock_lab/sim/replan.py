"""Replan: at every event the whole queue is planned anew, in order of submission, each job at the earliest hole.

Unlike conservative backfilling it keeps no promises: a job may be planned later than it was. With exact estimates
nothing ever changes and both are the same.

What makes it fast: only an end before its estimate changes the plan, submissions are added behind it, and of a plan
only the jobs that start now are of interest. So planning stops as soon as no job behind can start now, and goes on
from there when one may.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.future.counts import CountProfile
from penstock_lab.sim.running import EstimatedEnds
from penstock_lab.sim.trace import Trace

__all__ = ["Replan"]


class Replan(EstimatedEnds):
    """Plan the queue anew whenever the old plan may be wrong."""

    def __init__(self, trace: Trace, procs: int) -> None:
        super().__init__(trace, procs)
        # The plan: a profile with the running jobs and the first `_planned` of the queue in it.
        self._profile = CountProfile(procs)
        self._planned = 0
        self._begins: list[int] = []  # of the planned jobs
        self._stale = False

    def end(self, now: int, job: int) -> None:
        """See `Policy`."""
        if not self._over(now, job):
            self._stale = True

    def start(self, now: int) -> Sequence[int]:
        """See `Policy`."""
        if self._stale:
            self._renew(now)
        profile = self._profile
        profile.advance(now)
        started = self._launch(now, [at for at, begin in enumerate(self._begins) if begin <= now])
        procs, estimate, queue = self._procs, self._estimate, self._queue
        new: list[int] = []  # places of the queue
        while self._planned < len(queue) and profile.free[0]:
            job = queue[self._planned]
            begin = profile.earliest(procs[job], estimate[job])
            profile.take(procs[job], begin, begin + estimate[job])
            self._begins.append(begin)
            if begin == now:
                new.append(self._planned)
            self._planned += 1
        return started + self._launch(now, new)

    def _launch(self, now: int, places: list[int]) -> list[int]:
        """Start the planned jobs at these places of the queue."""
        started = [self._queue[at] for at in places]
        for at in reversed(places):
            del self._queue[at], self._begins[at]
        self._planned -= len(started)
        for job in started:
            self._free -= self._procs[job]
            self._run(now, job)
        return started

    def _renew(self, now: int) -> None:
        """Forget the plan; what is left is the running jobs."""
        self._stale = False
        self._planned = 0
        self._begins.clear()
        profile = self._profile
        procs, bits = self._procs, self._bits
        mask = (1 << bits) - 1
        profile.times, profile.free = [now], [self._free]
        free = self._free
        for key in self._running:
            free += procs[key & mask]
            end = key >> bits
            if end == profile.times[-1]:
                profile.free[-1] = free
            else:
                profile.times.append(end)
                profile.free.append(free)
