"""What has ended in a pool: in which order, what of it can be forgotten, and all that is known in as few lines of a log
as can be. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from typing import Final

from penstock_pool.entries import TaskEntries, TaskEntry, encode
from penstock_pool.jobqueue import JobQueue

__all__ = ["LOG", "TaskEndings"]

LOG: Final = 2
"""The version of a log that begins with a snapshot, told by its first line. That has no `op`, so that a scheduler which
knows nothing of snapshots refuses the log."""


class TaskEndings:
    """`order`: tasks in the order in which they have ended for good, again if they were run again; the first `gone` of
    all ends are not in it any more."""

    def __init__(self, entries: TaskEntries, queue: JobQueue) -> None:
        self.order: list[int] = []
        self.gone = 0
        self._entries = entries
        self._queue = queue
        self._outdated: Counter[int] = Counter()  # places in the order of tasks that were run again since

    @property
    def count(self) -> int:
        """Of all ends there have been."""
        return self.gone + len(self.order)

    def add(self, number: int) -> None:
        """It has ended for good."""
        self.order.append(number)

    def outdate(self, number: int) -> None:
        """It is run again, after it had ended for good."""
        self._outdated[number] += 1

    def recent(self, since: float) -> list[TaskEntry]:
        """Those that have ended since then, the latest first."""
        found: dict[int, TaskEntry] = {}
        for number in reversed(self.order):
            entry = self._entries.get(number)
            if entry is not None and entry.phase.final:
                if entry.ended < since:
                    break
                found[number] = entry
        return list(found.values())

    def forget(self, before: float, surplus: int, spared: Set[int]) -> list[tuple[TaskEntry, list[str]]]:
        """Know no more of tasks that have ended before an instant, and of so many in any case, the earliest first;
        those that are forgotten, each with the files (of jobs) that nobody needs any more.

        Kept are those that are `spared`, those that a job waits for, and arrays as a whole while one of it is kept.
        """
        old: dict[int, TaskEntry] = {}
        looked_at = 0
        for number in self.order:
            entry = self._entries.get(number)
            if self._outdated[number] or entry is None or not entry.phase.final:
                self._outdated[number] = max(self._outdated[number] - 1, 0)
            elif len(old) >= surplus and entry.ended >= before:
                break
            else:
                old[number] = entry
            looked_at += 1
        kept = old.keys() & (self._needed() | spared)
        arrays = {self._queue.base(entry): entry for n, entry in old.items() if n in self._entries.jobs}
        for entry in arrays.values():
            array = self._queue.array(entry)
            if array & kept or not array <= old.keys():
                kept |= array & old.keys()
        forgotten = [(entry, self._entries.forget(entry)) for number, entry in old.items() if number not in kept]
        # What is kept is told once more to who has not heard of it yet; nobody's place becomes another's.
        self.order[:looked_at] = [number for number in old if number in kept]
        self.gone += looked_at - len(kept)
        self._outdated = +self._outdated
        return forgotten

    def snapshot(self) -> Iterator[bytes]:
        """The lines of a log that says what is known now."""
        forgotten = {str(phase): count for phase, count in self._entries.forgotten.items()}
        yield encode({"log": LOG, "last": self._entries.last, "forgotten": forgotten})
        needed = self._needed()
        ended = dict.fromkeys(reversed(self.order))  # by their last ends
        for number in reversed(ended):
            entry = self._entries.get(number)
            if entry is not None and entry.phase.final:
                yield self._entries.line(number, settle=number not in needed)
        for entry in self._entries.open():
            yield self._entries.line(entry.id)

    def _needed(self) -> set[int]:
        """The jobs that others wait for."""
        return {
            number
            for entry in self._entries.open()
            if entry.task.job is not None
            for after in entry.task.job.after
            if after.job is not None
            for number in self._queue.of_job(after.job)
        }
