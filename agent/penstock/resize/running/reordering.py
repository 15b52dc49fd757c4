"""Puts jobs back in the queue, where a policy ranks them (`order` says whom): through the executor, a few in a pass."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from penstock.api import Decision, Job, RanksQueue, Reason, Snapshot, Verb
from penstock.core.acts import KnownJob, Rank
from penstock.core.executor import Concern
from penstock.errors import PenstockError
from penstock.host.logs import get_logger
from penstock.resize.running.order import put_back
from penstock.resize.running.tools import Tools, WithTools
from penstock.state.store import Store

__all__ = ["QueueOrder"]

_log = get_logger(__name__)

_AT_ONCE: Final = 8
"""Requests in a pass."""
_KEY: Final = "put back"


class QueueOrder(WithTools):
    """Puts jobs back as the policy's ranks say, each once; which ones is in the store."""

    def __init__(self, tools: Tools, store: Store) -> None:
        super().__init__(tools)
        self._store = store
        self._done: dict[int, float] = {}  # by job: when it was submitted
        with suppress(ValueError, KeyError, TypeError):  # a job more is put back twice
            known = store.learning.learned(_KEY)
            self._done = {int(job): float(submitted) for job, submitted in known["jobs"]} if known else {}

    async def keep(self, shown: Snapshot) -> list[Decision]:
        """Do so for a few jobs; the decisions taken."""
        policy = self._settings.policy
        if not isinstance(policy, RanksQueue) or self._executor.pause_control.off is not None:
            return []
        try:
            ranks = policy.ranks(shown)
        except Exception:
            _log.exception("the policy failed", policy=getattr(policy, "name", ""))
            return []
        decisions = []
        wanted = [w for w in put_back(shown, ranks) if self._done.get(w.job.id) != w.job.submit]
        for job, nice, behind in wanted[:_AT_ONCE]:
            subject = f"job {job.id}/order"
            if job.priority <= 1 or not self._executor.ready(subject):
                continue

            payload = {"job": job.id, "nice": nice, "behind": behind.id}
            try:
                await self._executor.act(Rank(KnownJob.of(job), nice), subject, payload, Concern.of("malleable", job))
            except PenstockError:
                continue  # the executor has written it down, and backs off
            self._was_put_back(job, shown)
            reason = Reason("shortest-first", f"job {behind.id} of the same owner is shorter, and goes first")
            decisions.append(Decision(Verb.CHANGE, f"job {job.id}", (reason,), {"nice": nice}))
        return decisions

    def _was_put_back(self, job: Job, shown: Snapshot) -> None:
        """Raises StoreError."""
        self._done = {n: at for n, at in self._done.items() if (j := shown.jobs.get(n)) is not None and j.submit == at}
        self._done[job.id] = job.submit
        self._store.learning.save_learned(_KEY, {"jobs": list(self._done.items())}, self._clock.now())
