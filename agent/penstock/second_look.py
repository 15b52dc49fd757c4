"""A look at a job right before it is changed: it must still be as it was when the change was decided on.

A decision is made on a picture that may be as old as the interval between looks. What happened since (somebody held the
job, changed its dependency, it began) must not be overrun by it. All acts within a second share one look.
"""

from __future__ import annotations

import structlog

from penstock.api import Snapshot
from penstock.errors import NotNow
from penstock.executor import FRESH
from penstock.observe import Observer

__all__ = ["SecondLook"]

_log = structlog.get_logger(__name__)


class SecondLook:
    """Confirms decisions by looks of this observer's."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def confirms(self, job: int, decided: Snapshot) -> bool:
        """Whether a picture younger than a second shows the job as `decided` did; if not, decide anew on what is there.

        Raises NotNow where Slurm shows nothing.
        """
        fresh = await self._observer.look(max_age=FRESH)
        if not fresh.usable:
            raise NotNow(f"job {job} is left alone, it cannot be looked at: {'; '.join(fresh.problems)}")
        if fresh.taken_at == decided.taken_at or _standing(fresh, job) == _standing(decided, job):
            return True
        _log.info("a job has changed since this was decided: it is decided anew", job=job)
        return False


def _standing(picture: Snapshot, job: int) -> frozenset[tuple[object, ...]]:
    """What a change of the job goes by; of an array whose tasks have all begun, of all of these."""
    waiting = picture.jobs.get(job)
    rows = [waiting] if waiting is not None else [row for row in picture.jobs.values() if row.array_job == job]
    return frozenset(
        (row.id, row.uid, row.state, row.held, row.held and row.reason, row.put_off, row.dependency, row.restarts)
        for row in rows
    )
