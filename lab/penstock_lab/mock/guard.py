"""Guarded jobs in virtual time: what `penstock.workflow.guard` makes a script do, read from its `#PENSTOCK-GUARD` line.

Such a job may start before others have ended. Its work begins when they have completed; if one of them fails, it ends
with exit code 65; after `grace` seconds it is put back into the queue, or where it may not be, ends with 75.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from penstock.api import JobSpec, JobState
from penstock.errors import Infeasible
from penstock_lab.mock.jobs import SimJob

__all__ = ["Guards", "parents_and_grace"]

_ANY = re.compile(r"^#PENSTOCK-GUARD\b.*$", re.MULTILINE)
_NUMBER = r"[0-9]{1,18}"
_SECONDS = rf"{_NUMBER}(?:\.[0-9]*)?(?:e\+[0-9]{{1,2}})?"  # as `{:g}` writes them
_LINE = re.compile(rf"#PENSTOCK-GUARD jobs=({_NUMBER}(?:,{_NUMBER})*) grace=({_SECONDS})")
_PARENT_FAILED, _TOO_EARLY = 65, 75
_LOOK_AGAIN = 1.0


def parents_and_grace(spec: JobSpec) -> tuple[list[int], float] | None:
    """What the script's guard waits for, and how many seconds at most; None without one.

    `Infeasible` when the line makes no sense.
    """
    line = _ANY.search(spec.script)
    if line is None:
        return None
    found = _LINE.fullmatch(line[0])
    if found is None:
        raise Infeasible(f"job {spec.name!r}: {line[0][:200]} makes no sense")
    return [int(number) for number in found[1].split(",")], float(found[2])


class _Jobs(Protocol):
    """A cluster whose jobs may have to wait while they hold nodes."""

    now: float
    records: dict[int, SimJob]

    def begin_work(self, job: SimJob) -> None: ...
    def requeue(self, job: SimJob) -> None: ...
    def end(self, job: SimJob, state: JobState, exit_code: int = 0) -> None: ...
    def call_at(self, time: float, action: Callable[[], None]) -> None: ...


class Guards:
    """Who has nodes, but not begun its work."""

    def __init__(self, engine: _Jobs) -> None:
        self._engine = engine

    def keeps(self, job: SimJob) -> bool:
        """Whether the job, which has just got its nodes, has to wait for others; then it is looked after here."""
        guard = parents_and_grace(job.spec) if isinstance(job.spec, JobSpec) else None
        if guard is None or all(self._has_completed(parent) for parent in guard[0]):
            return False
        self._look(job, *guard, self._engine.now)
        return True

    def _look(self, job: SimJob, parents: list[int], grace: float, since: float) -> None:
        engine = self._engine
        if job.state is not JobState.RUNNING or job.start != since:
            return
        if all(self._has_completed(parent) for parent in parents):
            engine.begin_work(job)
        elif any(self._has_failed(parent) for parent in parents):
            engine.call_at(engine.now, lambda: self._end(job, since, _PARENT_FAILED))
        elif engine.now >= since + grace:  # `now - since` may fall short of it for ever, by rounding
            engine.call_at(engine.now, lambda: self._end(job, since, _TOO_EARLY))
        else:
            again = min(engine.now + _LOOK_AGAIN, since + grace)
            engine.call_at(again, lambda: self._look(job, parents, grace, since))

    def _end(self, job: SimJob, since: float, code: int) -> None:
        if job.state is not JobState.RUNNING or job.start != since:
            return
        if code == _TOO_EARLY and isinstance(job.spec, JobSpec) and job.spec.requeue:
            self._engine.requeue(job)
        else:
            self._engine.end(job, JobState.FAILED, code)

    def _has_completed(self, parent: int) -> bool:
        known = self._engine.records.get(parent)
        return known is not None and known.state is JobState.COMPLETED

    def _has_failed(self, parent: int) -> bool:
        known = self._engine.records.get(parent)
        return known is None or (known.state.ended and known.state is not JobState.COMPLETED)
