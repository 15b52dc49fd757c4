"""What users ask of the agent as a whole at its door: what there is and what was decided, with each feature's share."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from penstock import __version__
from penstock.api import Snapshot
from penstock.core.pace import Pace
from penstock.core.parts import Operation, Site, StatusShare
from penstock.core.picture import jobs_besides, jobs_of, picture_to_dict
from penstock.errors import UserError
from penstock.values.allow import NOT_ALLOWED
from penstock.values.documents import show

__all__ = ["AgentRequests"]

_DECISIONS: Final = 300
_LOOKED_THROUGH: Final = 2000
_NO_LOOK: Final = "the agent has not looked at Slurm yet"


class AgentRequests:
    """Each operation answers one request.

    `shares` add what the features have to `status`, in the order of the answer; `owner` says whose the subject of a
    decision is, `troubles` what keeps the agent from doing anything; `cluster` is the cluster's name.
    """

    def __init__(
        self,
        site: Site,
        owner: Callable[[str], int | None],
        shares: Sequence[Callable[[int, Pace], Awaitable[StatusShare]]],
        troubles: Callable[[], list[str]],
        cluster: str,
    ) -> None:
        self._store, self._observer, self._executor = site.store, site.observer, site.executor
        self._clock, self._callers = site.clock, site.callers
        self._owner = owner
        self._shares = shares
        self._troubles = troubles
        self._name = cluster

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {
            "ping": self.ping,
            "status": self.status,
            "explain": self.explain,
            "decisions": self.decisions,
            "queue": self.queue,
            "cluster": self.cluster,
        }

    async def ping(self, _uid: int, _request: Mapping[str, Any]) -> object:
        """Whether it is there."""
        return {"version": __version__, "pid": os.getpid(), "uid": os.geteuid()}

    async def status(self, uid: int, _request: Mapping[str, Any]) -> object:
        """What there is of the user's; of everybody's for operators."""
        asker, uid = uid, await self._callers.seen_as(uid)
        snapshot, pace = self._observer.last, Pace()
        shares = [await share(uid, pace) for share in self._shares]
        told: dict[str, Any] = {
            "now": self._clock.now(),
            "problems": self._problems(uid, snapshot, shares),
            "paused_until": self._executor.paused_until,
        }
        for share in shares:
            told |= share.now
        known = {job for share in shares for job in share.jobs}
        told["jobs"] = jobs_besides(snapshot, asker, known)
        for share in shares:
            told |= share.past
        return told

    def _problems(self, uid: int, snapshot: Snapshot | None, shares: Sequence[StatusShare]) -> list[str]:
        control = self._executor.pause_control
        return [
            *self._troubles(),
            *(snapshot.problems if snapshot else [_NO_LOOK]),
            *(["dry run: nothing is done to jobs of other users"] if control.dry_run else []),
            *(str(p) for p in control.pauses if uid in (0, os.geteuid(), p.uid) or p.uid is None),
            *filter(None, [control.unwritten]),
            *(
                f"{subject}: {text}"
                for share in (shares if control.rules is not None else ())
                for subject, code, text in share.left_alone
                if code == NOT_ALLOWED
            ),
        ]

    async def explain(self, uid: int, request: Mapping[str, Any]) -> object:
        """What was decided about a workflow or a job, and why: for its owner."""
        subject = str(request.get("subject", ""))
        if self._owner(subject) != uid:
            await self._callers.require_above(uid)
        return self._store.decisions.of(subject)

    async def decisions(self, uid: int, request: Mapping[str, Any]) -> object:
        """The latest ones in order, with their numbers; with `after` only those since that one."""
        after = request.get("after", 0)
        if type(after) is not int or not 0 <= after < 2**63:
            raise UserError(f"after: must be the number of a decision, not {show(after)}")
        if await self._callers.above(uid):
            return self._store.decisions.latest(after, _DECISIONS)
        whose: dict[str, bool] = {}
        found: list[dict[str, Any]] = []
        for decision in reversed(self._store.decisions.latest(after, _LOOKED_THROUGH)):
            subject = str(decision["subject"]).partition("/")[0]
            if subject not in whose:
                whose[subject] = self._owner(subject) == uid
            if whose[subject] and len(found) < _DECISIONS:
                found.append(decision)
        return found[::-1]

    async def queue(self, uid: int, _request: Mapping[str, Any]) -> object:
        """The last picture, without asking Slurm again. Not for everybody: a site may hide others' jobs."""
        await self._callers.require_above(uid)
        snapshot = self._observer.last
        return {
            "at": snapshot.taken_at if snapshot else None,
            "nodes": sorted(snapshot.nodes) if snapshot else [],
            "jobs": [asdict(j) for j in snapshot.jobs.values()] if snapshot else [],
        }

    async def cluster(self, uid: int, request: Mapping[str, Any]) -> object:
        """The last picture, or only that it is the one taken at `seen`. `whole`: with the jobs of all users.

        With `fresh`, of who sees all, Slurm is asked again if it may be, as often as the agent itself would.
        """
        sees_all = await self._callers.above(uid)
        fresh = request.get("fresh") is True and sees_all
        snapshot = await self._observer.look() if fresh else self._observer.last
        told: dict[str, Any] = {
            "now": self._clock.now(),
            "name": self._name,
            "at": snapshot.taken_at if snapshot else None,
            "problems": list(snapshot.problems) if snapshot else [_NO_LOOK],
            "whole": sees_all,
        }
        if snapshot is not None and snapshot.taken_at != request.get("seen"):
            told["picture"] = picture_to_dict(snapshot) if sees_all else jobs_of(snapshot, uid)
        return told
