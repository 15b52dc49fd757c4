"""Bands of starts, and whether they held: a job that was just submitted is expected now and then, and judged once it
has started. What bands miss on this cluster is in the state file, so that commands widen theirs by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from penstock.api import Decision, Job, Snapshot
from penstock.core.pace import at_once
from penstock.errors import StoreError
from penstock.future.bands import Band, Misses, band_of, likely_starts
from penstock.future.cluster import WAITS_FOR_NODES, Cluster
from penstock.future.past import QueuePast
from penstock.future.present import Present
from penstock.future.turns import believed
from penstock.host.clock import Clock, Rest
from penstock.host.logs import get_logger
from penstock.state.store import Store

__all__ = ["StartWatch", "misses_in"]

_log = get_logger(__name__)

_EVERY: Final = 60.0
"""Seconds between two jobs that are expected: it takes some computing."""
_NEW: Final = 120.0
"""Seconds for which a job counts as just submitted."""
_OPEN: Final = 500
_WORK: Final = 1_000_000
"""What one may take: some two seconds, in a thread of its own. In deeper queues none is expected."""
_SAVE_AFTER: Final = 3600.0


class StartWatch:
    """A controller of the loop that decides nothing. `past` is what is known at a look, which `knows` is to be asked
    before, for it takes less; `say` is told what of the state cannot be used, and why."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        past: Callable[[Snapshot], QueuePast],
        knows: Callable[[], bool] = lambda: True,
        say: Callable[[str, str], None] = lambda key, why: None,
    ) -> None:
        self._store, self._clock, self._past, self._knows, self._say = store, clock, past, knows, say
        self._key = ""
        self._misses = Misses()
        self._open: dict[int, Band] = {}
        self._rest = Rest()
        self._saved_at = clock.now()
        self._task: asyncio.Task[None] | None = None

    def start(self, cluster: str) -> None:
        """Take up what was learned of this cluster."""
        self._key = _key(cluster)
        try:
            if (state := self._store.learning.learned(self._key)) is not None:
                self._misses.restore(state)
        except ValueError as error:
            self._store.learning.set_aside(self._key, self._clock.now())
            self._say(self._key, str(error))

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Judge those that have started, and expect one that has come. Decides nothing."""
        known = len(self._misses)
        for number, band in list(self._open.items()):
            job = snapshot.jobs.get(number)
            if job is not None and job.pending:
                continue
            del self._open[number]
            if job is not None and job.start is not None and not job.state.ended:
                self._misses.judge(band, job.start)
        now = self._clock.now()
        if len(self._misses) != known and not 0 <= now - self._saved_at < _SAVE_AFTER:
            self._save()
        if self._rest.lasts(now) or len(self._open) >= _OPEN or (self._task is not None and not self._task.done()):
            return []
        job = _newest(snapshot, self._open)
        if job is not None:
            self._rest = Rest(now, now + _EVERY)
            if not self._knows():
                return []
            self._task = asyncio.ensure_future(self._expect(snapshot, self._past(snapshot), job))
        return []

    def next_wake(self, now: float) -> float | None:
        """None: it takes what pictures there are."""
        return None

    async def _expect(self, snapshot: Snapshot, past: QueuePast, job: Job) -> None:
        try:
            band = await asyncio.to_thread(_band, snapshot, past, job)
        except Exception:
            # Without it there are still those that were judged before.
            _log.exception("the start of a job could not be expected", job=job.id)
            return
        if band is not None:
            self._open[job.id] = band

    async def close(self) -> None:
        """Finish what is under way and save what can be saved."""
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task
        if self._key and len(self._misses):
            with suppress(StoreError):
                self._save()

    def _save(self) -> None:
        self._saved_at = self._clock.now()
        self._store.learning.save_learned(self._key, self._misses.to_state(), self._saved_at)


def misses_in(store: Store, cluster: str) -> Misses:
    """What a state file knows of a cluster. What cannot be read counts as not there."""
    misses = Misses()
    with suppress(ValueError):
        if (state := store.learning.learned(_key(cluster))) is not None:
            misses.restore(state)
    return misses


def _key(cluster: str) -> str:
    return f"start-misses {cluster}"


def _newest(snapshot: Snapshot, known: dict[int, Band]) -> Job | None:
    """The job that was submitted last, if that is a moment ago, it lacks nothing but nodes, and is one task."""
    new = (
        job
        for job in snapshot.pending()
        if 0 <= snapshot.taken_at - job.submit <= _NEW
        and job.id not in known
        and job.tasks <= 1
        and job.time_limit is not None
        and job.reason in WAITS_FOR_NODES
        and job.partition in snapshot.partitions
    )
    return max(new, key=lambda job: job.submit, default=None)


def _band(snapshot: Snapshot, past: QueuePast, job: Job) -> Band | None:
    """When it starts as if it were submitted at this look; None where the queue is too deep."""
    others = replace(snapshot, jobs={number: one for number, one in snapshot.jobs.items() if number != job.id})
    present = Present.of(Cluster.of(believed(others)), job.partition)
    assert job.time_limit is not None
    starts = at_once(likely_starts(present, past, max(job.least_nodes, 1), job.time_limit, job.id, _WORK))
    return band_of(starts, snapshot.taken_at) if starts else None
