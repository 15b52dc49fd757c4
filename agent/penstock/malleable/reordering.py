"""Puts jobs back in the queue, where a policy ranks them (`order` says whom): through the executor, a few in a pass."""

from __future__ import annotations

from typing import Final

from penstock.api import Decision, RanksQueue, Reason, Snapshot, Verb
from penstock.core.acts import KnownJob, Rank
from penstock.core.executor import Concern
from penstock.errors import PenstockError
from penstock.host.logs import get_logger
from penstock.malleable.order import put_back
from penstock.malleable.parts import MalleablePart, Tools

__all__ = ["QueueOrder"]

_log = get_logger(__name__)

_AT_ONCE: Final = 8
"""Requests in a pass."""


class QueueOrder(MalleablePart):
    """Puts jobs back as the policy's ranks say."""

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._done: set[int] = set()

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
        self._done = {number for number in self._done if number in shown.jobs}
        decisions = []
        wanted = [w for w in put_back(shown, ranks) if w.job.id not in self._done]
        for job, nice, behind in wanted[:_AT_ONCE]:
            subject = f"job {job.id}/order"
            if job.priority <= 1 or not self._executor.ready(subject):
                continue

            payload = {"job": job.id, "nice": nice, "behind": behind.id}
            try:
                await self._executor.act(Rank(KnownJob.of(job), nice), subject, payload, Concern.of("malleable", job))
            except PenstockError:
                continue  # the executor has written it down, and backs off
            self._done.add(job.id)
            reason = Reason("shortest-first", f"job {behind.id} of the same owner is shorter, and goes first")
            decisions.append(Decision(Verb.CHANGE, f"job {job.id}", (reason,), {"nice": nice}))
        return decisions
