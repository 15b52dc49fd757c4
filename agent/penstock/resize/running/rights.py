"""Right before an act for a job: is it still the job that was decided about, and may its owner have what it is to get?

Between a decision and its act an administrator holds the job, changes its QOS or its owner's limits, or the user does.
So each growth and each raise of a limit begins with a look at the job, and at its owner's limits, that is younger than
a second (`core.verdicts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.api import Job, Reason, Snapshot
from penstock.core.observe import Observer
from penstock.core.ownlimits import Extension, Growth
from penstock.core.verdicts import FRESH, Verdicts
from penstock.host.clock import Clock
from penstock.resize.running.machine import MalleableJob

__all__ = ["CurrentJob", "Rights", "companions_of", "growth_of", "node_count"]

_SAME: Final[Mapping[str, str]] = {
    "partition": "partition",
    "qos": "QOS",
    "account": "account",
    "time_limit": "time limit",
    "nodes": "nodes",
}


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The job as it is now, in a picture younger than a second."""

    job: Job
    snapshot: Snapshot


class Rights:
    """Asked before each growth and each raise of a limit is decided; the executor asks again, right before the act."""

    def __init__(self, observer: Observer, verdicts: Verdicts, clock: Clock) -> None:
        self._observer = observer
        self._verdicts = verdicts
        self._clock = clock

    async def current(self, me: MalleableJob) -> CurrentJob | Reason:
        """The job as it is now, or why it cannot be acted for."""
        asked = self._clock.now()
        snapshot = await self._observer.look(max_age=FRESH)
        if not snapshot.usable or snapshot.taken_at < asked - FRESH:
            problems = "; ".join(snapshot.problems) or "Slurm was not asked"
            return Reason("not-seen", f"the job cannot be looked at right now: {problems}")
        job = snapshot.jobs.get(me.job)
        if job is None or not job.running or not me.lives_in(job):
            state = "not in the queue" if job is None else job.state.value
            return Reason("changed", f"the job is now {state}")
        return CurrentJob(job, snapshot)

    async def to_grow(self, me: MalleableJob, decided: Job, nodes: int) -> Reason | None:
        """Why a job may not get so many more nodes, None where it may. `decided`: as it was decided about."""
        seen = await self.current(me)
        if isinstance(seen, Reason):
            return seen
        for name, text in _SAME.items():
            if getattr(seen.job, name) != getattr(decided, name):
                return Reason("changed", f"the job's {text} has changed since this was decided")
        return await self._against(me, seen, growth_of(seen.job, nodes, self._clock.now()))

    async def to_raise(self, me: MalleableJob, seen: CurrentJob, limit: float) -> Reason | None:
        """Why a running job's time limit may not become so long (s), None where it may."""
        return await self._against(me, seen, Extension(limit))

    async def _against(self, me: MalleableJob, seen: CurrentJob, wish: Growth | Extension) -> Reason | None:
        return await self._verdicts.against(seen.job, companions_of(me, seen.snapshot), wish, seen.snapshot)


def growth_of(job: Job, nodes: int, now: float) -> Growth:
    """The wish for so many nodes more until the job's limit; what a job without one gets is asked for by the minute."""
    return Growth(nodes, 60.0 if job.end is None else max(0.0, job.end - now))


def companions_of(me: MalleableJob, snapshot: Snapshot) -> list[Job]:
    """Its companions that hold nodes: those that it was shown, not other jobs that have their numbers by now."""
    found = [(snapshot.jobs.get(companion.job), companion) for companion in me.companions]
    return [
        job
        for job, companion in found
        if job is not None
        and not (job.state.ended or job.pending)
        and job.uid == me.uid
        and (not companion.nodes or set(job.nodes) <= set(companion.nodes))
    ]


def node_count(me: MalleableJob, snapshot: Snapshot) -> int:
    """How many nodes a job has, with those of its companions."""
    job = snapshot.jobs.get(me.job)
    return sum(len(one.nodes) for one in (*([job] if job is not None else []), *companions_of(me, snapshot)))
