"""Right before an act for a job: is it still the job that was decided about, and may its owner have what it is to get?

Between a decision and its act an administrator holds the job, changes its QOS or its owner's limits, or the user does.
So each growth and each raise of a limit begins with a look that is younger than a second; however many there are at
once, they share it (`Observer.look`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.api import Job, Reason, Snapshot
from penstock.clock import Clock
from penstock.executor import FRESH
from penstock.malleable.machine import MalleableJob
from penstock.observe import Observer

__all__ = ["NOT_SEEN", "Rights", "Sight", "held"]

NOT_SEEN: Final = "not-seen"
"""The code of the reason where there is no such picture."""

_SAME: Final = (
    ("partition", "partition"),
    ("qos", "QOS"),
    ("account", "account"),
    ("time_limit", "time limit"),
    ("num_nodes", "number of nodes"),
    ("nodes", "nodes"),
)


@dataclass(frozen=True, slots=True)
class Sight:
    """The job as it is now, in a picture younger than a second."""

    job: Job
    snapshot: Snapshot


class Rights:
    """Asked before each growth and each raise of a limit."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock

    async def sight(self, me: MalleableJob) -> Sight | Reason:
        """The job as it is now, or why it cannot be acted for."""
        asked = self._clock.now()
        snapshot = await self._observer.look(max_age=FRESH)
        if not snapshot.usable or snapshot.taken_at < asked - FRESH:
            problems = "; ".join(snapshot.problems) or "Slurm was not asked"
            return Reason(NOT_SEEN, f"the job cannot be looked at right now: {problems}")
        job = snapshot.jobs.get(me.job)
        if job is None or not job.running or not me.lives_in(job):
            state = "not in the queue" if job is None else job.state.value
            return Reason("changed", f"the job is {state} by now")
        return Sight(job, snapshot)

    async def to_grow(self, me: MalleableJob, decided: Job, nodes: int) -> Reason | None:
        """Why a job may not get so many more nodes, None where it may. `decided`: as it was decided about."""
        seen = await self.sight(me)
        if isinstance(seen, Reason):
            return seen
        for field, name in _SAME:
            if getattr(seen.job, field) != getattr(decided, field):
                return Reason("changed", f"the job's {name} has changed since this was decided")
        return None

    async def to_raise(self, me: MalleableJob, job: Job, limit: float) -> Reason | None:
        """Why a running job's time limit may not become so long (s), None where it may."""
        snapshot = self._observer.last
        partition = snapshot.partitions.get(job.partition) if snapshot else None
        if partition is None:
            return Reason("no-partition", f"the limits of partition {job.partition} are not known")
        if partition.max_time is not None and limit > partition.max_time:
            longest = f"MaxTime={partition.max_time / 60:.0f} min of partition {partition.name}"
            return Reason("owner-limit", f"its limit would become {limit / 60:.0f} min, past {longest}")
        return None


def held(me: MalleableJob, snapshot: Snapshot) -> int:
    """How many nodes a job has, with those of its companions that run."""
    jobs = (snapshot.jobs.get(number) for number in (me.job, *(c.job for c in me.companions)))
    return sum(len(job.nodes) for job in jobs if job is not None and not job.state.ended and not job.pending)
