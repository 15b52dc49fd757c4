"""What the dashboard asks besides `status`: the picture of the cluster, the latest decisions, sizes over time.

Read only. Who may see what is as with `queue`, `explain` and `status`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.core.observe import Observer
from penstock.core.picture import jobs_of, picture_to_dict
from penstock.errors import UserError
from penstock.host.clock import Clock
from penstock.ipc.handlers import LocalOp
from penstock.ipc.operators import Operators
from penstock.malleable.controller import MalleableController
from penstock.malleable.machine import MalleableJob
from penstock.state.store import Store
from penstock.values.documents import show

__all__ = ["views"]

_DECISIONS: Final = 300
_LOOKED_THROUGH: Final = 2000
_JOBS: Final = 40  # that have ended
_RESIZES: Final = 1000  # the latest ones, of all jobs
_PERIOD: Final = 86400.0  # seconds that a job which has ended is still shown for


def views(
    store: Store,
    observer: Observer,
    malleable: MalleableController,
    clock: Clock,
    owner: Callable[[str], int | None],
    operators: Operators,
) -> dict[str, LocalOp]:
    """The operations by name. `owner` says whose the subject of a decision is."""

    async def cluster(uid: int, request: Mapping[str, Any]) -> object:
        """The last picture, or only that it is the one taken at `seen`. `whole`: with the jobs of all users.

        With `fresh`, of who sees all, Slurm is asked again if it may be, as often as the agent itself would.
        """
        sees_all = await operators.include(uid)
        fresh = request.get("fresh") is True and sees_all
        snapshot, site = (await observer.look() if fresh else observer.last), malleable.settings.site
        told: dict[str, Any] = {
            "now": clock.now(),
            "name": site.cluster if site is not None else "",
            "at": snapshot.taken_at if snapshot else None,
            "problems": list(snapshot.problems) if snapshot else ["the agent has not looked at Slurm yet"],
            "whole": sees_all,
        }
        if snapshot is not None and snapshot.taken_at != request.get("seen"):
            told["picture"] = picture_to_dict(snapshot) if sees_all else jobs_of(snapshot, uid)
        return told

    async def decisions(uid: int, request: Mapping[str, Any]) -> object:
        """The latest ones in order, with their numbers; with `after` only those since that one."""
        after = request.get("after", 0)
        if type(after) is not int or not 0 <= after < 2**63:
            raise UserError(f"after: must be the number of a decision, not {show(after)}")
        if await operators.include(uid):
            return store.latest_decisions(after, _DECISIONS)
        whose: dict[str, bool] = {}
        found: list[dict[str, Any]] = []
        for decision in reversed(store.latest_decisions(after, _LOOKED_THROUGH)):
            subject = str(decision["subject"]).partition("/")[0]
            if subject not in whose:
                whose[subject] = owner(subject) == uid
            if whose[subject] and len(found) < _DECISIONS:
                found.append(decision)
        return found[::-1]

    async def sizes(uid: int, _request: Mapping[str, Any]) -> object:
        """Malleable jobs: those that run, and the latest that have ended within a day, each with its resizes."""
        sees_all = await operators.include(uid)
        over = [
            (MalleableJob.from_dict(state), at)
            for state, at in store.ended_malleable(clock.now() - _PERIOD, _JOBS if sees_all else _LOOKED_THROUGH)
            if state["job"] not in malleable.jobs and (sees_all or state["uid"] == uid)
        ]
        live = [m for m in malleable.jobs.values() if sees_all or m.uid == uid]
        mine: list[tuple[MalleableJob, float | None]] = [*over[-_JOBS:], *((m, None) for m in live)]
        resizes: dict[int, list[dict[str, Any]]] = {}
        for resize in store.resizes(limit=_RESIZES):  # at once: the table may be long, and this is asked often
            resizes.setdefault(resize["job"], []).append(resize)
        return [_sizes(m, at, resizes.get(m.job, [])) for m, at in mine]

    return {"cluster": cluster, "decisions": decisions, "sizes": sizes}


def _sizes(me: MalleableJob, ended: float | None, resizes: list[dict[str, Any]]) -> dict[str, Any]:
    """One job; sizes are processes. A job number that Slurm gives again has resizes of the one before, left out."""
    since = me.started if me.started is not None else 0.0
    return {
        "job": me.job,
        "uid": me.uid,
        "started": me.started,
        "ended": ended,
        "size": me.offer.size,
        "minimum": me.offer.minimum,
        "maximum": me.offer.maximum,
        "per_node": me.offer.per_node,
        "phase": me.phase.value,
        "target": me.target or None,
        "companions": [c.job for c in me.companions],
        "note": me.note,
        "resizes": [
            {
                "kind": r["kind"],
                "old": r["old_size"],
                "new": r["new_size"],
                "outcome": r["outcome"],
                "at": r["marks"].get("done", r["finished"]),
            }
            for r in resizes
            if r["finished"] >= since
        ],
    }
