"""Guarded jobs in virtual time: what `penstock.workflow.guard` makes a script do, read from its `#PENSTOCK-GUARD` line.

Such a job may start before others have ended. Its work begins when they have completed; if one of them fails, it ends
with exit code 65; after `grace` seconds it is put back into the queue, or where it may not be, ends with 75.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.api import JobSpec, JobState
from penstock.slurm.mock.jobs import SimJob

if TYPE_CHECKING:
    from penstock.slurm.mock.engine import Engine

__all__ = ["Guards"]

_LINE = re.compile(r"^#PENSTOCK-GUARD jobs=([0-9,]+) grace=([0-9.]+)$", re.MULTILINE)
_PARENT_FAILED, _TOO_EARLY = 65, 75
_LOOK_AGAIN = 1.0


class Guards:
    """Who has nodes, but not begun its work."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def keeps(self, job: SimJob) -> bool:
        """Whether the job, which has just got its nodes, has to wait for others; then it is looked after here."""
        if not isinstance(job.spec, JobSpec) or "#PENSTOCK-GUARD" not in job.spec.script:
            return False
        found = _LINE.search(job.spec.script)
        if found is None:
            return False
        parents = [int(number) for number in found[1].split(",")]
        if all(self._has_completed(parent) for parent in parents):
            return False
        self._look(job, parents, float(found[2]), self._engine.now)
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
