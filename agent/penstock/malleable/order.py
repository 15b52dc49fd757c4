"""The order of an owner's own jobs in the queue, where an administrator has chosen a policy that ranks them.

A job that stands before another one of the same owner with a lower rank is put back behind the last of those, by a
nice value: what the owner could do, too, and no more. Nobody is put ahead of the place that Slurm gives, so nobody
else waits longer for it. The margin is there so that a job needs to be put back once only, although shorter ones come
after; a job that is put back is not put back again. Whoever is killed in between leaves jobs in another order, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import structlog

from penstock.api import Decision, Job, RanksQueue, Reason, Snapshot, Verb
from penstock.core.executor import Concern
from penstock.errors import PenstockError
from penstock.malleable.parts import MalleablePart, Tools
from penstock.slurm.base import Changer

__all__ = ["PutBack", "QueueOrder", "put_back"]

_log = structlog.get_logger(__name__)

_MARGIN: Final = 1000
"""Points of priority. Under priority/basic each job that is submitted later has one less."""
_AT_ONCE: Final = 8
"""Requests in a pass."""


class PutBack(NamedTuple):
    """A job, the nice value that puts it behind `behind`, and that one."""

    job: Job
    nice: int
    behind: Job


def put_back(snapshot: Snapshot, ranks: Mapping[int, int]) -> list[PutBack]:
    """Who is to be put back behind whom, first in line first."""
    pending = (job for number in ranks if (job := snapshot.jobs.get(number)) and job.pending and not job.held)
    line = sorted(pending, key=lambda job: (-job.priority, job.id))
    found = []
    for place, job in enumerate(line):
        shorter = [
            other
            for other in line[place + 1 :]
            if (other.uid, other.partition) == (job.uid, job.partition) and ranks[other.id] < ranks[job.id]
        ]
        if shorter:
            found.append(PutBack(job, job.priority - shorter[-1].priority + _MARGIN, shorter[-1]))
    return found


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

            async def request(slurm: Changer, number: int = job.id, nice: int = nice) -> None:
                await slurm.update(number, nice=nice)

            payload = {"job": job.id, "nice": nice, "behind": behind.id}
            try:
                await self._executor.act("reorder", subject, payload, request, Concern.of("malleable", job))
            except PenstockError:
                continue  # the executor has written it down, and backs off
            self._done.add(job.id)
            reason = Reason("shortest-first", f"job {behind.id} of the same owner is shorter, and goes first")
            decisions.append(Decision(Verb.CHANGE, f"job {job.id}", (reason,), {"nice": nice}))
        return decisions
