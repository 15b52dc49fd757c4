"""The jobs of a pool that may not be placed yet, and why. Pure.

The machine gives it each task that is a job; it gives back those that nothing keeps any more. What has been given back
and is held before it starts comes in again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from heapq import heappop, heappush
from typing import Final, Protocol

from penstock_pool.model import PoolTask, TaskPhase
from penstock_pool.terms import FIRST_JOB, AfterJob, JobTerms, WaitReason
from penstock_pool.waiting import OtherJob, dependency_text, wait_reason

__all__ = ["JobQueue", "PooledJob", "job_number"]

_LOST: Final = OtherJob(started=0.0, ended=0.0, completed=False)
_SLURM: Final = "slurm"


class PooledJob(Protocol):
    """What it has to know of a task."""

    id: int
    task: PoolTask
    phase: TaskPhase
    held: bool
    started: float | None
    ended: float | None
    eligible: float | None


def job_number(number: int, terms: JobTerms) -> int:
    """The job's number of a task."""
    return terms.first + number


class JobQueue:
    """`entries` are all tasks of the pool. `slurm`: what Slurm's own jobs have come to, which `learn` is told.

    A job is looked at when something has happened that it may have waited for, and not at each pass: there may be tens
    of thousands of them.
    """

    def __init__(self, entries: Mapping[int, PooledJob]) -> None:
        self._entries = entries
        self.kept: dict[int, WaitReason] = {}
        self.slurm: dict[tuple[int, int | None], OtherJob] = {}
        self._free: dict[int, set[int]] = defaultdict(set)  # by array: its tasks that may run or do
        self._names: dict[str, set[int]] = defaultdict(set)  # by job name: those that have not ended
        self._first: int | None = None
        self._due: set[int] = set()  # to be looked at
        self._times: list[tuple[float, int]] = []  # a heap: when to look at which
        self._watching: dict[int | str, set[int]] = defaultdict(set)  # by task, or "=" and a name: who waits for it
        self._delayed: set[int] = set()  # those to be looked at each time
        self._limited: dict[int, dict[int, None]] = defaultdict(dict)  # by array: those that its limit alone keeps
        self._never: set[int] = set()

    def knows(self, entry: PooledJob) -> None:
        """It has ended, says a log."""
        if entry.task.job is not None:
            self._first = entry.task.job.first  # one pool counts from one number

    def take(self, entry: PooledJob) -> None:
        """It waits from now on."""
        self.knows(entry)
        self.kept[entry.id] = WaitReason.NONE
        self._names[_terms(entry).name].add(entry.id)
        self._give_back(entry)
        self._due.add(entry.id)
        self._watch(entry)
        self._wake(entry)

    def freed(self, now: float) -> list[int]:
        """Those that may be placed from now on, by their numbers."""
        while self._times and self._times[0][0] <= now:
            self._due.add(heappop(self._times)[1])
        found = [n for n in sorted(self._due | self._delayed) if n in self.kept and self._look(n, now)]
        self._due.clear()
        for base in [base for base, limited in self._limited.items() if limited]:
            found += self._of_limited(base, now)
        return found

    def hopeless(self) -> list[int]:
        """Those that can never run, and are to be cancelled for it."""
        self._never &= self.kept.keys()
        return [number for number in sorted(self._never) if _terms(self._entries[number]).kill_invalid]

    def learn(self, found: Mapping[tuple[int, int | None], OtherJob]) -> None:
        """What Slurm's own jobs have come to."""
        self.slurm.update(found)
        self._due |= self._watching.get(_SLURM, set())

    def begun(self, entry: PooledJob) -> None:
        """It runs."""
        self.kept.pop(entry.id, None)
        self._free[self.base(entry)].add(entry.id)
        self._watch_no_more(entry)
        self._wake(entry)

    def over(self, entry: PooledJob) -> None:
        """It has ended for good."""
        terms = _terms(entry)
        self.kept.pop(entry.id, None)
        self._give_back(entry)
        self._names[terms.name].discard(entry.id)
        if not self._names[terms.name]:
            del self._names[terms.name]
        self._watch_no_more(entry)
        self._wake(entry)

    def _of_limited(self, base: int, now: float) -> list[int]:
        """Those that the limit of an array lets run now."""
        found, limited = [], self._limited[base]
        while limited:
            number = next(iter(limited))
            if number not in self.kept:
                del limited[number]
            elif self._look(number, now):
                found.append(number)
            elif number in limited:
                break
        if not limited:
            del self._limited[base]
        return found

    def _look(self, number: int, now: float) -> bool:
        """Whether nothing keeps it any more."""
        entry = self._entries[number]
        terms, base = _terms(entry), self.base(entry)
        running = len(self._free.get(base, ()))
        reason = wait_reason(terms, held=entry.held, find=self._find_for(entry), running=running, now=now)
        if reason in (WaitReason.NONE, WaitReason.ARRAY) and entry.eligible is None:
            entry.eligible = now
        if reason is WaitReason.ARRAY:
            self._limited[base][number] = None
        elif base in self._limited:
            self._limited[base].pop(number, None)
        if reason is WaitReason.NEVER:
            self._never.add(number)
        else:
            self._never.discard(number)
        if reason is WaitReason.BEGIN:
            heappush(self._times, (terms.begin, number))
        if reason is not WaitReason.NONE:
            self.kept[number] = reason
            return False
        del self.kept[number]
        self._free[base].add(number)
        self._watch_no_more(entry)
        return True

    def _give_back(self, entry: PooledJob) -> None:
        base = self.base(entry)
        if (free := self._free.get(base)) is not None:
            free.discard(entry.id)
            if not free:
                del self._free[base]

    def _watch(self, entry: PooledJob) -> None:
        for after in _terms(entry).after:
            self._watching[_key(entry, after)].add(entry.id)
            if after.delay:
                self._delayed.add(entry.id)

    def _watch_no_more(self, entry: PooledJob) -> None:
        self._delayed.discard(entry.id)
        for after in _terms(entry).after:
            key = _key(entry, after)
            if (watching := self._watching.get(key)) is not None:
                watching.discard(entry.id)
                if not watching:
                    del self._watching[key]

    def _wake(self, entry: PooledJob) -> None:
        """Have those looked at again that wait for it."""
        if self._watching:
            for key in (entry.id, self.base(entry), "=" + _terms(entry).name):
                self._due |= self._watching.get(key, set())

    def awaited(self) -> frozenset[tuple[int, int | None]]:
        """The jobs of Slurm's, or tasks of their arrays, that somebody waits for here and that had not ended."""
        return frozenset(
            (after.job, after.task)
            for number in self.kept
            for after in _terms(self._entries[number]).after
            if after.job is not None and after.job < FIRST_JOB
            if (known := self.slurm.get((after.job, after.task))) is None or known.ended is None
        )

    def dependency(self, entry: PooledJob, now: float) -> str:
        """Its conditions that are not met, in Slurm's words."""
        return dependency_text(_terms(entry), self._find_for(entry), now, self._is_array)

    def _is_array(self, after: AfterJob) -> bool:
        return after.job is not None and any(_index(self._entries[one]) is not None for one in self.of_job(after.job))

    def base(self, entry: PooledJob) -> int:
        """The task whose number is that of the whole array; of a single job its own."""
        array = _terms(entry).array
        return entry.id - (array.position if array is not None else 0)

    def array(self, entry: PooledJob) -> Set[int]:
        """All tasks of its array that are known; of what is in none, nothing."""
        terms = entry.task.job
        if terms is None or terms.array is None:
            return frozenset()
        base = self.base(entry)
        return {number for number in range(base, base + terms.array.count) if number in self._entries}

    def of_job(self, job: int, task: int | None = None) -> list[int]:
        """The tasks that a job's number means here: of an array all of them, or the one with this index."""
        entry = None if self._first is None else self._entries.get(job - self._first)
        if entry is None or entry.task.job is None:
            return []
        array = entry.task.job.array
        if array is None or array.position:  # the number of one task alone
            return [entry.id] if task is None else []
        several = range(entry.id, entry.id + array.count)
        return [one for one in several if task is None or _index(self._entries[one]) == task]

    def _find_for(self, entry: PooledJob) -> Callable[[AfterJob], list[OtherJob]]:
        def find(after: AfterJob) -> list[OtherJob]:
            if after.job is None:
                first = min(self._names[_terms(entry).name], default=entry.id)  # one that has not ended is enough
                return [_seen(self._entries[first])] if first < entry.id else []
            if after.job < FIRST_JOB:
                return [self.slurm.get((after.job, after.task), OtherJob())]
            found: list[int] = []
            if after.kind == "aftercorr" and after.task is None:
                found = self.of_job(after.job, _index(entry))
            # One that corresponds to none waits for all of it.
            return [_seen(self._entries[one]) for one in found or self.of_job(after.job, after.task)] or [_LOST]

        return find


def _key(entry: PooledJob, after: AfterJob) -> int | str:
    """What happens to that has it looked at again."""
    if after.job is None:
        return "=" + _terms(entry).name
    return _SLURM if after.job < FIRST_JOB else after.job - _terms(entry).first


def _terms(entry: PooledJob) -> JobTerms:
    assert entry.task.job is not None
    return entry.task.job


def _index(entry: PooledJob) -> int | None:
    array = _terms(entry).array
    return None if array is None else array.index


def _seen(entry: PooledJob) -> OtherJob:
    ended = entry.ended if entry.phase.final else None
    started = entry.started if entry.phase is TaskPhase.RUNNING or entry.phase.final else None
    return OtherJob(started, ended, entry.phase is TaskPhase.COMPLETE)
