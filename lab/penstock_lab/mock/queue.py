"""The jobs that may start, in order of priority, kept in order as they come and go."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import islice

from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.priority import Priorities

__all__ = ["Queue"]

_Key = tuple[float, float, int]
_FEW = 64


class Queue:
    """Eligible jobs, highest priority first, then the older submission.

    Those whose age still counts and those whose age is full are two lists, because order only changes between them.
    """

    def __init__(self, priorities: Priorities) -> None:
        self._priorities = priorities
        self._jobs: dict[int, SimJob] = {}
        self._keys: dict[int, tuple[bool, _Key]] = {}  # whether its age is full, and where it stands in that list
        self._lists: dict[bool, list[_Key]] = {False: [], True: []}
        self._ageing: list[tuple[float, int]] = []  # heap of when whose age is full; may name jobs that have gone
        self.partitions: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: int) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[SimJob]:
        return iter(self._jobs.values())

    def add(self, job: SimJob, now: float) -> None:
        """The job may start from now on."""
        self._jobs[job.id] = job
        self.partitions[job.partition] += 1
        self._file(job, now)

    def remove(self, job: SimJob) -> None:
        """The job has started, or may not start any more."""
        del self._jobs[job.id]
        self.partitions[job.partition] -= 1
        if not self.partitions[job.partition]:
            del self.partitions[job.partition]
        aged, key = self._keys.pop(job.id)
        self._unlist(aged, key)

    def refile(self, now: float) -> bool:
        """Put those whose age has become full, or everybody when fair-share has changed, where they belong now."""
        if self._priorities.recalculated(now):
            for each in self._lists.values():
                each.clear()
            self._ageing.clear()
            for job in self._jobs.values():
                self._file(job, now)
            return True
        moved = False
        while self._ageing and self._ageing[0][0] <= now:
            _when, number = heappop(self._ageing)
            if number in self._keys and not self._keys[number][0]:
                job = self._jobs[number]
                if self._priorities.aged_at(job) <= now:
                    self._unlist(*self._keys[number])
                    self._file(job, now)
                    moved = True
        return moved

    def in_order(self, now: float, most: int) -> Iterator[SimJob]:
        """The first `most` of them, as they are now; those that have been given out may be removed meanwhile."""
        ageing, full = self._lists[False], self._lists[True]
        jobs = self._jobs
        if ageing and full:
            gained = self._priorities.gained(now)
            both = merge(((key[0] - gained, key[1], key[2]) for key in ageing), full)
            keys = list(islice(both, most))
        else:
            keys = (ageing or full)[:most]
        return (jobs[key[2]] for key in keys)

    def place(self, job: SimJob, now: float) -> _Key:
        """What the job is compared by; smaller is further ahead."""
        aged, key = self._keys[job.id]
        return key if aged else (key[0] - self._priorities.gained(now), key[1], key[2])

    @property
    def stable(self) -> bool:
        """Whether the order of those that wait cannot change with time alone (before the next `refile`)."""
        return not (self._lists[False] and self._lists[True])

    def _file(self, job: SimJob, now: float) -> None:
        full_at = self._priorities.aged_at(job)
        aged = full_at <= now
        key = (-self._priorities.constant(job, aged), job.submit, job.id)
        self._keys[job.id] = aged, key
        insort(self._lists[aged], key)
        if not aged:
            heappush(self._ageing, (full_at, job.id))
            if len(self._ageing) > _FEW + 2 * len(self._jobs):
                self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Most of the heap names jobs that have gone: it would keep them until their age were full."""
        self._ageing = list({entry for entry in self._ageing if entry[1] in self._keys})
        heapify(self._ageing)

    def _unlist(self, aged: bool, key: _Key) -> None:
        keys = self._lists[aged]
        del keys[bisect_left(keys, key)]
