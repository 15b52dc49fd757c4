"""Replan: at every event the whole queue is planned anew, in order of submission, each job at the earliest hole.

Unlike conservative backfilling it keeps no promises: a job may be planned later than it was. With exact estimates
nothing ever changes and both are the same.

What makes it fast: only an end before its estimate changes the plan, submissions are added behind it, and of a plan
only the jobs that start now are of interest. So the queue is planned up to the last job that may start now, and no
further. A job behind what is planned may start now if it would fit from now until its estimate into what the plan
leaves so far. This is exact: planning on only takes processors, so one that does not fit now does not fit later either,
and where it is planned instead matters only to jobs behind it, none of which may start now. Many are ruled out by the
first places of the queue. An old plan that is wrong is not even made anew while no waiting job is as narrow as what is
free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from penstock.future.counts import CountProfile
from penstock_lab.sim.base import NEVER
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
        procs, queue, free = self._procs, self._queue, self._free
        started: list[int] = []
        if not self._stale:
            self._profile.advance(now)
            started = self._launch(now, [at for at, begin in enumerate(self._begins) if begin <= now])
            free = self._free
        narrow = [job for job in queue[self._planned :] if procs[job] <= free] if free else []
        if not narrow and not self._stale:
            return started
        if self._stale:
            if not free or not (narrow or any(procs[job] <= free for job in queue[: self._planned])):
                return started
            self._renew(now)
            narrow = [job for job in queue if procs[job] <= free]
        return started + self._plan(now, narrow)

    def _plan(self, now: int, narrow: list[int]) -> list[int]:
        """Plan until none of the unplanned jobs `narrow`, in order of submission, may start now; start who does."""
        profile, procs, estimate, queue = self._profile, self._procs, self._estimate, self._queue
        new: list[int] = []  # places of the queue
        place = self._planned
        least: dict[tuple[int, int], int] = {}  # of each width and length: no further job of it begins earlier
        until = NEVER  # what is planned from then on does not touch the last of the narrow jobs
        begin = now
        while True:
            if begin < until:
                while narrow and not self._fits(now, narrow[-1]):
                    narrow.pop()
                if not narrow:
                    break
                until = now + estimate[narrow[-1]]
            if place == len(queue) or narrow[-1] < queue[place]:
                break
            job = queue[place]
            kind = width, length = procs[job], estimate[job]
            first = bisect_left(profile.times, least[kind]) if kind in least else 0
            least[kind] = begin = profile.earliest(width, length, first)
            profile.take(width, begin, begin + length)
            self._begins.append(begin)
            if begin == now:
                new.append(place)
            place += 1
        self._planned = place
        return self._launch(now, new)

    def _fits(self, now: int, job: int) -> bool:
        """Whether the job would fit from now on into what the plan leaves."""
        profile = self._profile
        return min(profile.free[: bisect_left(profile.times, now + self._estimate[job])]) >= self._procs[job]

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
