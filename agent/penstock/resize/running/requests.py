"""What users ask of malleable jobs at the agent's door."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.core.parts import Operation, Site, StatusShare
from penstock.resize.running.controller import MalleableController
from penstock.resize.running.machine import MalleableJob

__all__ = ["MalleableRequests"]

_LOOKED_THROUGH: Final = 2000
_JOBS: Final = 40  # that have ended
_RESIZES: Final = 1000  # the latest ones, of all jobs
_PERIOD: Final = 86400.0  # seconds that a job which has ended is still shown for


class MalleableRequests:
    """Each operation answers one request."""

    def __init__(self, malleable: MalleableController, site: Site) -> None:
        self._malleable, self._store, self._observer = malleable, site.store, site.observer
        self._clock, self._callers = site.clock, site.callers

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"sizes": self.sizes}

    async def sizes(self, uid: int, _request: Mapping[str, Any]) -> object:
        """Malleable jobs: those that run, and the latest that have ended within a day, each with its resizes."""
        sees_all = await self._callers.above(uid)
        jobs = self._malleable.jobs
        over = [
            (MalleableJob.from_dict(state), at)
            for state, at in self._store.malleable.ended(
                self._clock.now() - _PERIOD, _JOBS if sees_all else _LOOKED_THROUGH
            )
            if state["job"] not in jobs and (sees_all or state["uid"] == uid)
        ]
        live = [m for m in jobs.values() if sees_all or m.uid == uid]
        mine: list[tuple[MalleableJob, float | None]] = [*over[-_JOBS:], *((m, None) for m in live)]
        resizes: dict[int, list[dict[str, Any]]] = {}
        # At once: the table may be long, and this is asked often.
        for resize in self._store.resizes.latest(limit=_RESIZES):
            resizes.setdefault(resize["job"], []).append(resize)
        return [_sizes(m, at, resizes.get(m.job, [])) for m, at in mine]

    def status(self, uid: int) -> StatusShare:
        """The user's malleable jobs and their resizes; root's are everybody's."""
        told = [me.to_dict() for me in self._malleable.jobs.values() if uid in (0, me.uid)]
        jobs = {job["job"] for job in told}
        jobs |= {companion["job"] for job in told for companion in job.get("companions", ())}
        jobs |= {job["resizer"] for job in told if job.get("resizer")}
        past = {"resizes": [r for r in self._store.resizes.latest() if uid in (0, os.geteuid(), r["uid"])]}
        return StatusShare({"malleable": told}, past, jobs, self._left_alone(uid))

    def _left_alone(self, uid: int) -> Iterator[tuple[str, str, str]]:
        seen = self._observer.last.jobs if self._observer.last else {}
        for number, me in self._malleable.jobs.items():
            if number in seen and uid in (0, me.uid) and (why := self._malleable.held(seen[number])) is not None:
                yield f"job {number}", why.code, why.text


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
