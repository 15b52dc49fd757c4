"""Backfilling as a textbook would write it: the reference that the simulator's speed is measured against.

A plain discrete-event loop: jobs are objects, the queue and the running jobs are lists, and every event ends with one
pass over all of it. EASY remembers nothing between passes; conservative keeps its profile of free processors and, after
every end, takes each waiting job out and puts it back. Ties are those of `batch`: all ends, all submissions, one pass.
It shares nothing with the package.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

END, SUBMISSION = 0, 1  # in the order of events of the same second


@dataclass(slots=True, eq=False)
class Job:
    place: int
    submit: int
    run: int
    procs: int
    estimate: int
    start: int = -1


class Easy:
    def __init__(self, procs: int) -> None:
        self.free = procs
        self.queue: list[Job] = []
        self.running: list[Job] = []

    def submit(self, now: int, job: Job) -> None:
        self.queue.append(job)

    def end(self, now: int, job: Job) -> None:
        self.running.remove(job)
        self.free += job.procs

    def compress(self, now: int) -> None:
        """Jobs have ended; nothing is promised but to the first, and that is found anew in every pass."""

    def begin(self, job: Job, now: int) -> None:
        job.start = now
        self.free -= job.procs
        self.running.append(job)

    def schedule(self, now: int) -> list[Job]:
        """Start what may start, and return it."""
        started = []
        while self.queue and self.queue[0].procs <= self.free:
            job = self.queue.pop(0)
            self.begin(job, now)
            started.append(job)
        if len(self.queue) > 1 and self.free:
            started += self.backfill(now)
        return started

    def backfill(self, now: int) -> list[Job]:
        """Start jobs behind the first one that do not delay it."""
        shadow, extra = self.reservation()
        started = []
        for job in self.queue[1:]:
            if job.procs > self.free:
                continue
            in_time = now + job.estimate <= shadow
            if in_time or job.procs <= extra:
                if not in_time:
                    extra -= job.procs
                self.queue.remove(job)
                self.begin(job, now)
                started.append(job)
        return started

    def reservation(self) -> tuple[int, int]:
        """When the first job can start by the estimates, and how many processors it then leaves free."""
        head = self.queue[0]
        available = self.free
        by_end = sorted(self.running, key=lambda job: job.start + job.estimate)
        for at, job in enumerate(by_end):
            available += job.procs
            end = job.start + job.estimate
            last = at + 1 == len(by_end) or by_end[at + 1].start + by_end[at + 1].estimate > end
            if available >= head.procs and last:
                return end, available - head.procs
        raise AssertionError("the first job is wider than the machine")


class Conservative:
    def __init__(self, procs: int) -> None:
        self.queue: list[Job] = []
        self.times = [0]  # from times[i] on, free[i] processors are free
        self.free = [procs]

    def submit(self, now: int, job: Job) -> None:
        self.queue.append(job)
        self.reserve(now, job)

    def compress(self, now: int) -> None:
        """Jobs have ended: take every waiting one out, and put it back where there is a hole now."""
        for job in self.queue:
            self.change(job.start, job.start + job.estimate, job.procs)
            self.reserve(now, job)

    def end(self, now: int, job: Job) -> None:
        self.change(now, job.start + job.estimate, job.procs)  # the rest of its estimate, if it ends early

    def schedule(self, now: int) -> list[Job]:
        """Start what may start, and return it."""
        started = [job for job in self.queue if job.start == now]
        self.queue = [job for job in self.queue if job.start > now]
        return started

    def reserve(self, now: int, job: Job) -> None:
        """Give the job the earliest hole."""
        at = self.step(now)
        del self.times[:at], self.free[:at]
        job.start = self.times[next(begin for begin in range(len(self.times)) if self.fits(begin, job))]
        self.change(job.start, job.start + job.estimate, -job.procs)

    def fits(self, begin: int, job: Job) -> bool:
        end = self.times[begin] + job.estimate
        at = begin
        while at < len(self.times) and self.times[at] < end:
            if self.free[at] < job.procs:
                return False
            at += 1
        return True

    def change(self, begin: int, end: int, procs: int) -> None:
        """Add so many free processors from `begin` to `end`."""
        if begin < end:
            for at in range(self.step(begin), self.step(end)):
                self.free[at] += procs

    def step(self, time: int) -> int:
        """The step that begins at this time, made if there is none."""
        at = bisect.bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at


def replay(jobs: Sequence[tuple[int, int, int, int]], machine: Easy | Conservative) -> list[int]:
    """When each job of (submit, run, procs, estimate), in order of submission, starts."""
    every = [Job(place, *job) for place, job in enumerate(jobs)]
    events = [(job.submit, SUBMISSION, job.place) for job in every]
    heapq.heapify(events)
    while events:
        now = events[0][0]
        ended = False
        while events and events[0][:2] == (now, END):
            machine.end(now, every[heapq.heappop(events)[2]])
            ended = True
        if ended:
            machine.compress(now)
        while events and events[0][0] == now:
            machine.submit(now, every[heapq.heappop(events)[2]])
        for job in machine.schedule(now):
            heapq.heappush(events, (now + job.run, END, job.place))
    return [job.start for job in every]
