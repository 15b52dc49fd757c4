"""What became of a bag's arrays, read from a look at their clusters: what waits, runs, has ended, and how long it ran.

Slurm begins the tasks of an array in ascending order and keeps one row for those that wait; so of the tasks that were
neither withdrawn nor seen to begin, the last ones are those that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.api import AccountingRecord, Job, JobState
from penstock_planning.broker.bags import Array, BagRun
from penstock_planning.select.correction import Corrections

__all__ = ["Progress", "given_way", "read_array", "read_records", "rows_of", "summary", "waiting_in"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Tasks of a bag by what became of them."""

    waiting: int
    running: int
    done: int
    failed: int
    unplaced: int


def rows_of(array: Array, jobs: Iterable[Job]) -> list[Job]:
    """The rows of the array."""
    return [] if array.job is None else [j for j in jobs if array.job in (j.array_job, j.id)]


def waiting_in(array: Array, jobs: Collection[Job]) -> list[int] | None:
    """Which tasks of the array wait, ascending; None where the rows do not agree with what is known."""
    rows = rows_of(array, jobs)
    count = sum(row.tasks for row in rows if row.pending)
    begun = {row.array_task for row in rows if not row.pending and row.array_task is not None}
    left = [i for i in array.alive if i not in begun and str(i) not in array.states]
    waiting = left[len(left) - count :]
    named = [row.array_task for row in rows if row.pending and row.array_task is not None]
    return waiting if len(waiting) == count and set(named) <= set(waiting) else None


def read_array(array: Array, jobs: Collection[Job], task: str, learned: Corrections) -> bool:
    """Take in what the rows say of ended tasks; False when Slurm has forgotten the array, or part of it."""
    rows = rows_of(array, jobs)
    for row in rows:
        index = row.array_task
        if index is None or not row.state.ended or index in array.withdrawn:
            continue
        array.states[str(index)] = row.state.value
        _learn(array, row.id, row.state, row.start, row.end, task, learned)
    seen = {row.array_task for row in rows} | {int(i) for i in array.states}
    waiting = waiting_in(array, jobs)
    return waiting is not None and set(array.alive) <= seen | set(waiting)


def read_records(
    array: Array, jobs: Collection[Job], records: Iterable[AccountingRecord], task: str, learned: Corrections
) -> None:
    """The same of the tasks that Slurm has forgotten, from accounting, which does not name them: they began in their
    order. Of what `jobs` has rows, those will tell."""
    rows = rows_of(array, jobs)
    known = {row.id for row in rows if not row.pending} | set(array.learned)
    ended = sorted((r for r in records if r.state.ended and r.start is not None), key=lambda r: (r.start, r.id))
    seen = {row.array_task for row in rows} | set(waiting_in(array, jobs) or ())
    forgotten = [i for i in array.alive if str(i) not in array.states and i not in seen]
    for index, record in zip(forgotten, (r for r in ended if r.id not in known), strict=False):
        _learn(array, record.id, record.state, record.start, record.end, task, learned)
        array.states[str(index)] = record.state.value


def _learn(
    array: Array,
    job: int,
    state: JobState,
    start: float | None,
    end: float | None,
    task: str,
    learned: Corrections,
) -> None:
    if job in array.learned:
        return
    array.learned.append(job)
    if state is JobState.COMPLETED and start is not None and end is not None:
        learned.observe(task, array.lane, array.predicted, max(end - start - array.fetch, 1.0))


def given_way(array: Array) -> list[int]:
    """The tasks of jobs that were preempted, which are out of the array now: they have to be done again, somewhere."""
    lost = [i for i in array.alive if array.states.get(str(i)) == JobState.PREEMPTED.value]
    array.withdrawn = sorted([*array.withdrawn, *lost])
    return [task for i in lost for task in array.pieces[i]]


def summary(run: BagRun, views: Mapping[str, Collection[Job]]) -> Progress:
    """How far the bag is; of clusters that are not looked at nothing is known but what was before."""
    waiting = running = done = failed = 0
    for array in run.arrays:
        queue = set(waiting_in(array, views.get(array.cluster, ())) or ())
        for index in array.alive:
            size, state = len(array.pieces[index]), array.states.get(str(index))
            if state is None:
                waiting += size * (index in queue)
                running += size * (index not in queue)
            elif state == JobState.COMPLETED.value:
                done += size
            else:
                failed += size
    return Progress(waiting, running, done, failed, len(run.unplaced))
