"""Asks accounting what became of jobs that are not in the queue: for all users at once, a bounded number in a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.api import AccountingRecord
from penstock.errors import PenstockError
from penstock.host.clock import Clock, Rest
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.values.fair import deal

__all__ = ["Accounting"]

_log = get_logger(__name__)
_PAUSE = 0.5  # s between two questions, longer and longer while there is no answer


class Accounting:
    """`records` are the answers, until they are forgotten, and `unknown` says how often it had none for a job; `most`
    jobs are asked for at once."""

    def __init__(self, backend: Reader, clock: Clock, most: int) -> None:
        self._backend = backend
        self._clock = clock
        self.most = most
        self.records: dict[int, AccountingRecord] = {}
        self.unknown: Counter[int] = Counter()
        self._wanted: dict[int, dict[int, float]] = {}  # by user and job: since when it waits for an answer
        self._rest = Rest()

    def want(self, uid: int, jobs: Mapping[int, float]) -> None:
        """These jobs of a user are to be asked for; with each when it was asked for last."""
        self._wanted.setdefault(uid, {}).update(jobs)

    def due(self, now: float) -> float | None:
        """When the rest of what is wanted may be asked for; None when nothing is left."""
        return self._rest.end(now) if self._wanted else None

    async def ask(self) -> tuple[int, ...]:
        """One question at most; the jobs that were asked for, whose answers are in `records` where there are any.

        The users take turns, who has waited longest comes first; so do the jobs of each.
        """
        now = self._clock.now()
        if not self._wanted or self._rest.lasts(now):
            return ()
        piles = {uid: sorted(jobs, key=jobs.__getitem__) for uid, jobs in self._wanted.items()}
        oldest = sorted(piles, key=lambda uid: self._wanted[uid][piles[uid][0]])
        jobs = tuple(deal({uid: piles[uid] for uid in oldest}, self.most))
        try:
            found = await self._backend.history(ids=jobs)
        except PenstockError as e:
            self._rest = self._rest.longer(now, _PAUSE)
            _log.info("accounting was not asked", jobs=len(jobs), why=str(e))
            return ()
        self._rest = Rest(now, now + _PAUSE)
        for record in found:
            self.records[record.id] = record
        self.unknown.update(job for job in jobs if job not in self.records)
        self._leave(frozenset(jobs))
        return jobs

    def forget(self, jobs: Iterable[int]) -> None:
        """These matter no more."""
        gone = frozenset(jobs)
        for job in gone:
            self.records.pop(job, None)
            self.unknown.pop(job, None)
        self._leave(gone)

    def _leave(self, gone: frozenset[int]) -> None:
        wanted = {uid: {j: at for j, at in jobs.items() if j not in gone} for uid, jobs in self._wanted.items()}
        self._wanted = {uid: jobs for uid, jobs in wanted.items() if jobs}
