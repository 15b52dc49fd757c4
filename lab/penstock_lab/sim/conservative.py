"""Conservative backfilling (Mu'alem and Feitelson 2001): every job gets a reservation, and none is ever delayed.

A job is given the earliest hole of the profile at its submission. When a job ends, the tail of its estimate is freed
and the queue is compressed: every waiting job, in order of submission, is taken out and put back at the earliest hole,
which is where it was or earlier. This happens at every end, also at one that was estimated exactly: a job that moved
in the last compression may have left a hole to one ahead of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush

from penstock.future.counts import CountProfile
from penstock_lab.sim.base import NEVER
from penstock_lab.sim.trace import Trace

__all__ = ["Conservative"]


class Conservative:
    """Conservative backfilling with compression in order of submission."""

    def __init__(self, trace: Trace, procs: int) -> None:
        self.due = NEVER
        self._procs = trace.procs.tolist()
        self._estimate = trace.estimate.tolist()
        self._bits = len(trace).bit_length()
        self._profile = CountProfile(procs)
        self._begin: dict[int, int] = {}  # when a job, waiting or running, begins
        self._waiting: dict[int, int] = {}  # the waiting jobs in order of submission
        self._promises: list[int] = []  # heap of begin << bits | job; those that were moved since are stale
        self._ended = False  # a job ended since the last compression
        self._settled = True  # no waiting job could move at the last compression, and no tail was freed since

    def submit(self, now: int, job: int) -> None:
        """See `Policy`."""
        profile = self._profile
        profile.advance(now)
        if self._ended and not self._settled:
            self._compress()
        begin = profile.earliest(self._procs[job], self._estimate[job])
        profile.take(self._procs[job], begin, begin + self._estimate[job])
        self._promise(job, begin)

    def end(self, now: int, job: int) -> None:
        """See `Policy`."""
        end = self._begin.pop(job) + self._estimate[job]
        self._ended = True
        self._profile.advance(now)
        if end > now:
            self._profile.give(self._procs[job], now, end)
            self._settled = False

    def start(self, now: int) -> Sequence[int]:
        """See `Policy`."""
        if self._ended and not self._settled:
            self._compress()
        promises, bits = self._promises, self._bits
        mask = (1 << bits) - 1
        limit = now + 1 << bits
        started = []
        while promises and promises[0] < limit:
            key = heappop(promises)
            job = key & mask
            if self._waiting.get(job) == key >> bits:
                del self._waiting[job]
                started.append(job)
        self.due = promises[0] >> bits if promises else NEVER
        return started

    def _promise(self, job: int, begin: int) -> None:
        self._waiting[job] = self._begin[job] = begin
        heappush(self._promises, begin << self._bits | job)

    def _compress(self) -> None:
        """Put every waiting job back at the earliest hole.

        A job is touched only if it moves. Who does not is mostly seen without a search. If the step right ahead of a
        job's begin has no room for it, an earlier window must lie ahead of that begin as a whole. There is none when
        the time from now to the begin is no longer than the job. Nor when a job as wide and not longer was just
        searched for in vain up to a later begin: `known` has for each width the length and the time up to which no
        window so long lies; a move frees processors only from some time on, and up to there what is known stays true.
        From a begin behind that time on only windows that end behind it are left to be searched.
        """
        self._ended = False
        self._settled = True
        profile = self._profile
        procs, estimate, times, free = self._procs, self._estimate, profile.times, profile.free
        now = times[0]
        known: dict[int, tuple[int, int]] = {}
        for job, begin in self._waiting.items():
            width, length = procs[job], estimate[job]
            after = 0
            if free[bisect_left(times, begin) - 1] < width:
                if now + length >= begin:
                    continue
                if width in known:
                    shortest, until = known[width]
                    if length >= shortest:
                        if begin <= until:
                            continue
                        after = until - length + 1
            earlier = profile.earlier(width, length, begin, after)
            if earlier < begin:
                profile.move(width, begin, earlier, length)
                self._promise(job, earlier)
                self._settled = False
                end = earlier + length
                freed = max(end, begin)
                known = {key: (shortest, min(until, freed)) for key, (shortest, until) in known.items()}
            else:
                known[width] = length, begin
