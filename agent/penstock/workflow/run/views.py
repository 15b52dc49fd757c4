"""What a run is shown of Slurm: the rows and records of its own jobs alone, whoever has their numbers now."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from penstock.api import Job, Snapshot
from penstock.core.acts import bears_name
from penstock.core.observe import Observer
from penstock.core.verdicts import FRESH
from penstock.errors import PenstockError
from penstock.host.clock import Clock
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.values.standing import Standing, standing
from penstock.waits.learners.causes import Cause, hindrance
from penstock.workflow.run.accounting import Accounting
from penstock.workflow.run.identity import JobClaim, Recognition, claims, outlived, recognise, records_of
from penstock.workflow.run.instructions import SlurmView, as_one, tasks_of
from penstock.workflow.run.seen import UNSEEN_TRIES
from penstock.workflow.state import WorkflowRun

__all__ = ["Views"]

_log = get_logger(__name__)

_MOST_FORGOTTEN: Final = 10_000
"""Numbers by which a crash takes slurmctld back at most; farther is another count (MaxJobId, another cluster)."""
_MOST_NAMED: Final = 20_000
"""Jobs whose names are remembered as asked for."""


class Views:
    """Of all runs of one agent. `accounting` has been asked for the jobs that the queue does not show."""

    def __init__(self, backend: Reader, observer: Observer, clock: Clock, accounting: Accounting) -> None:
        self._backend, self._observer, self._clock, self._accounting = backend, observer, clock, accounting
        self._forgotten: set[tuple[int, str, float | None]] = set()  # slurmctld has yet to give their numbers out again
        self._named: dict[tuple[int, str, float], None] = {}  # those that have their names, by when they were submitted
        self._tasks: tuple[Snapshot | None, Mapping[int, Sequence[Job]]] = (None, {})

    async def of(self, run: WorkflowRun, snapshot: Snapshot, down: frozenset[str]) -> SlurmView:
        """A look as the run is shown it. Raises PenstockError where Slurm does not say what a job is called."""
        others, proved = await self._strangers(run, snapshot)
        rows, tasks = snapshot.jobs, self._tasks_in(snapshot)
        if others:
            rows = {n: job for n, job in rows.items() if n not in others and job.array_job not in others}
            tasks = {n: of for n, of in tasks.items() if n not in others}
        records, unknown = self._accounting.records, self._accounting.unknown
        watched = {claim.number: claim for claim in claims(run)}
        known = {n: records[n] for n in watched if n in records and n not in rows}
        lost = {n for n, record in known.items() if outlived(watched[n], record)}
        hindered: dict[int, Cause] = {}
        arrays = {} if run.owned else {job: tasks[job] for job in watched if job in tasks}
        jobs = {n: rows.get(n) for n in arrays}
        whole = {n: as_one([*([job] if job else []), *arrays[n]]) for n, job in jobs.items()}
        view = SlurmView(
            snapshot.taken_at,
            ChainMap(whole, cast("dict[int, Job]", rows)) if whole else rows,  # it is only read
            {n: record for n, record in known.items() if records_of(watched[n], record)},
            usable=snapshot.usable,
            hindered=hindered,
            reservations=snapshot.reservations,
            partitions=snapshot.partitions,
            down=down,
            tasks=tasks,
            lost=frozenset(
                n
                for n, claim in watched.items()
                if (n in proved or n in lost or (n, claim.name, claim.submit) in self._forgotten)
                and (n in run.discarded or claim.sent < snapshot.taken_at)  # else the look may be older than the job
            ),
            unknown=frozenset(job for job in run.discarded if unknown[job] >= UNSEEN_TRIES),
        )
        for job in watched:
            for row in view.rows(job):
                if (cause := hindrance(row, snapshot.nodes)) is not None:
                    hindered[row.id] = cause
        return view

    def rows(self, job: int, snapshot: Snapshot) -> tuple[Job, ...]:
        """All that a look shows under this number, whosever it is."""
        head = snapshot.jobs.get(job)
        return (*(() if head is None else (head,)), *self._tasks_in(snapshot).get(job, ()))

    def seen(self, jobs: Sequence[int], snapshot: Snapshot) -> tuple[Standing | None, ...]:
        """How these jobs stand by this look."""
        records = self._accounting.records
        return tuple(standing(job, self.rows(job, snapshot), records.get(job)) for job in jobs)

    async def lost_in_a_crash(self, jobs: Collection[tuple[int, str, float | None]]) -> bool:
        """Whether slurmctld has not given out the numbers of some of these jobs yet, which neither the queue nor
        accounting knows: it has lost them. Each by its number, name and submission time."""
        if not jobs:
            return False
        try:
            following = (await self._backend.site()).next_job
        except PenstockError as e:
            _log.info("Slurm does not say which number the next job gets", why=str(e))
            return False
        found = set() if following is None else {job for job in jobs if 0 <= job[0] - following < _MOST_FORGOTTEN}
        self._forgotten |= found
        return bool(found)

    def _tasks_in(self, snapshot: Snapshot) -> Mapping[int, Sequence[Job]]:
        if self._tasks[0] is not snapshot:
            self._tasks = snapshot, tasks_of(snapshot)
        return self._tasks[1]

    async def _strangers(self, run: WorkflowRun, snapshot: Snapshot) -> tuple[frozenset[int], frozenset[int]]:
        """The numbers of the run's jobs under which the look shows what is not theirs, and those of these that are
        proved to be other jobs'."""
        tasks = self._tasks_in(snapshot)
        hidden, proved = set(), set()
        for claim in claims(run):
            head = snapshot.jobs.get(claim.number)
            rows = [*([] if head is None else [head]), *tasks.get(claim.number, ())]
            told = recognise(claim, rows) if rows else Recognition.OURS
            if told is Recognition.ASK and await self._has_its_name(run, claim, rows):
                told = Recognition.OURS
            if told is Recognition.OURS:
                continue
            hidden.add(claim.number)
            # The name may have been asked for when Slurm had forgotten the job, or its owner may have changed it.
            if not claim.requeued(rows) and (told is Recognition.ANOTHER or await self._is_there_still(rows)):
                proved.add(claim.number)
        return frozenset(hidden), frozenset(proved)

    async def _has_its_name(self, run: WorkflowRun, claim: JobClaim, rows: Sequence[Job]) -> bool:
        """Whether what the look shows under the number is the job, by its name: asked once for each submission time."""
        known = (claim.number, claim.name, rows[0].submit)
        if known not in self._named:
            found = await self._backend.find(claim.name, run.uid if run.owned else None)
            if not bears_name(claim.number, rows, found) and not claim.answers(rows):
                return False
            self._named[known] = None
            while len(self._named) > _MOST_NAMED:
                del self._named[next(iter(self._named))]
        return True

    async def _is_there_still(self, rows: Sequence[Job]) -> bool:
        """Whether Slurm shows a job still, after it was asked for its name."""
        asked = self._clock.now()
        seen = await self._observer.look(FRESH)
        now = {(job.id, job.submit) for job in seen.jobs.values()}
        return seen.usable and seen.taken_at >= asked and any((row.id, row.submit) in now for row in rows)
