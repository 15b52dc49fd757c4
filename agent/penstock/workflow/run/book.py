"""All runs of workflows that have not ended: on the disk first, then in memory.

What is known in memory alone would be acted on, and forgotten when the agent dies. Only that a run is to be cancelled
may be so known, while the disk is full.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from penstock.errors import LeaseLost, StoreError
from penstock.host.logs import get_logger
from penstock.state.schema import UNREADABLE
from penstock.state.store import Store
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.state import WorkflowRun

__all__ = ["Book"]

_log = get_logger(__name__)


class Book:
    """The runs of one state file by their numbers. For the metrics, since the start: `finished` counts runs by who
    submits their jobs and how they ended, `misses` starts that were too early and that the guard in the job's script
    took back, `lost` jobs that slurmctld has lost, `repeated` those whose release it had lost.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.finished: Counter[tuple[str, str]] = Counter()
        self.misses = self.lost = self.repeated = 0
        # Called with a run as it was (None: not known) and as it is, in the transaction that saves it.
        self.on_change: Callable[[WorkflowRun | None, WorkflowRun], None] = lambda _before, _after: None
        self.runs: dict[int, WorkflowRun] = {}
        # Those that were to be ended when the file could not be written, and why it could not.
        self.unwritten: dict[int, str] = {}
        for number, _uid, state in store.runs.latest(live_only=True):
            try:
                self.runs[number] = run_from_dict(state)
            except UNREADABLE:
                _log.exception("a stored workflow cannot be read; its jobs are left alone", workflow=number)

    def save(self, run: WorkflowRun) -> None:
        """Keep the run as it is now."""
        before = self.runs.get(run.id)
        if (before is run or before == run) and run.id not in self.unwritten:
            return
        self._store.runs.save(run.id, run_to_dict(run))
        self.unwritten.pop(run.id, None)
        if before is not None:
            self.misses += max(0, _misses(run) - _misses(before))
            self.repeated += _taken_back(before, run)
        self.runs[run.id] = run
        self.on_change(before, run)

    def end(self, run: WorkflowRun) -> None:
        """Keep a run that is to be cancelled: in memory alone where the file cannot be written. A restart forgets then
        that it was to end, and harms nobody by that."""
        try:
            self.save(run)
        except LeaseLost:
            raise
        except StoreError as e:
            self.runs[run.id] = run
            self.unwritten[run.id] = str(e)

    def finish(self, number: int, now: float, *, counted: bool = True) -> WorkflowRun:
        """The run has ended; not `counted`: its stages go on in another."""
        run = self.runs[number]
        self._store.runs.save(number, run_to_dict(run), finished=now)
        del self.runs[number]
        self.unwritten.pop(number, None)
        self.finished[run.submitter.value, run.phase.value] += counted
        return run

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is saved inside holds if all of it became durable; else all is as before."""
        before, unwritten, misses = dict(self.runs), dict(self.unwritten), self.misses
        try:
            with self._store.together():
                yield
        except BaseException:
            self.runs, self.unwritten, self.misses = before, unwritten, misses
            raise


def _taken_back(before: WorkflowRun, now: WorkflowRun) -> int:
    """How many jobs count as let go no more, which are the same and have not ended."""
    released = {stage.job: stage for stage in before.stages if stage.released is not None and stage.job is not None}
    return sum(s.job in released and s.released is None and not s.phase.final for s in now.stages)


def _misses(run: WorkflowRun) -> int:
    return sum(stage.misses for stage in run.stages)
