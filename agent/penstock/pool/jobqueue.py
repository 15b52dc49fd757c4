"""The jobs of a pool that may not be placed yet, and why. Pure.

The machine gives it each task that is a job; it gives back those that nothing keeps any more. What has been given back
and is held before it starts comes in again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from typing import Final, Protocol

from penstock.pool.model import PoolTask, TaskPhase
from penstock.pool.terms import FIRST_JOB, AfterJob, JobTerms, WaitReason
from penstock.pool.waiting import OtherJob, dependency_text, wait_reason

__all__ = ["JobQueue", "PooledJob", "job_number"]

_LOST: Final = OtherJob(started=0.0, ended=0.0, completed=False)


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
    """`entries` are all tasks of the pool. `slurm`: what Slurm's own jobs have come to, which somebody looks up."""

    def __init__(self, entries: Mapping[int, PooledJob]) -> None:
        self._entries = entries
        self.kept: dict[int, WaitReason] = {}
        self.slurm: dict[tuple[int, int | None], OtherJob] = {}
        self._free: dict[int, set[int]] = defaultdict(set)  # by array: its tasks that may run or do
        self._names: dict[str, set[int]] = defaultdict(set)  # by job name: those that have not ended
        self._first: int | None = None

    def knows(self, entry: PooledJob) -> None:
        """It has ended, says a log."""
        if entry.task.job is not None:
            self._first = entry.task.job.first  # one pool counts from one number

    def take(self, entry: PooledJob) -> None:
        """It waits from now on."""
        terms = _terms(entry)
        self.knows(entry)
        self.kept[entry.id] = WaitReason.NONE
        self._names[terms.name].add(entry.id)
        self._free[self.base(entry)].discard(entry.id)

    def freed(self, now: float) -> list[int]:
        """Those that may be placed from now on, by their numbers."""
        found = []
        for number in list(self.kept):
            entry = self._entries[number]
            terms, base = _terms(entry), self.base(entry)
            reason = wait_reason(
                terms, held=entry.held, find=self._find_for(entry), running=len(self._free[base]), now=now
            )
            if reason in (WaitReason.NONE, WaitReason.ARRAY) and entry.eligible is None:
                entry.eligible = now
            if reason is not WaitReason.NONE:
                self.kept[number] = reason
                continue
            del self.kept[number]
            self._free[base].add(number)
            found.append(number)
        return found

    def hopeless(self) -> list[int]:
        """Those that can never run, and are to be cancelled for it."""
        return [
            number
            for number, reason in self.kept.items()
            if reason is WaitReason.NEVER and _terms(self._entries[number]).kill_invalid
        ]

    def begun(self, entry: PooledJob) -> None:
        """It runs, as a log says."""
        self.kept.pop(entry.id, None)
        self._free[self.base(entry)].add(entry.id)

    def over(self, entry: PooledJob) -> None:
        """It has ended for good."""
        terms = _terms(entry)
        self.kept.pop(entry.id, None)
        base = self.base(entry)
        self._free[base].discard(entry.id)
        if not self._free[base]:
            del self._free[base]
        self._names[terms.name].discard(entry.id)
        if not self._names[terms.name]:
            del self._names[terms.name]

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
        return dependency_text(_terms(entry), self._find_for(entry), now)

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
                earlier = [n for n in self._names[_terms(entry).name] if n < entry.id]
                return [_seen(self._entries[number]) for number in earlier]
            if after.job < FIRST_JOB:
                return [self.slurm.get((after.job, after.task), OtherJob())]
            task = _index(entry) if after.kind == "aftercorr" and after.task is None else after.task
            return [_seen(self._entries[one]) for one in self.of_job(after.job, task)] or [_LOST]

        return find


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
