"""Right before an act for a job: is it still the job that was decided about, and may its owner have what it is to get?

Between a decision and its act an administrator holds the job, changes its QOS or its owner's limits, or the user does.
So each growth and each raise of a limit begins with a look at the job, and at its owner's limits, that is younger than
a second. However many there are at once, they share both, and each counts with what those before it got.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.api import Job, Owner, OwnerLimits, Reason, Snapshot
from penstock.core.executor import FRESH
from penstock.core.observe import Observer
from penstock.core.ownlimits import Extension, Growth, RunningUse, after, held, obstacle, owner_of
from penstock.errors import PenstockError
from penstock.host.clock import Clock
from penstock.malleable.machine import MalleableJob
from penstock.malleable.registry import Registry
from penstock.malleable.settings import MalleableSettings
from penstock.slurm.base import Reader

__all__ = ["PASSING", "CurrentJob", "Rights", "companions_of", "node_count"]

_NOT_SEEN: Final = "not-seen"

PASSING: Final = frozenset({_NOT_SEEN, "limits-unknown"})
"""Codes of the reasons that say only that nothing can be said at present."""

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


@dataclass(slots=True)
class _Known:
    """What owners may have, as of an instant, and what their jobs count for."""

    at: float = float("-inf")
    limits: dict[Owner, OwnerLimits] = field(default_factory=dict)
    charges: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


class Rights:
    """Asked before each growth and each raise of a limit."""

    def __init__(
        self, backend: Reader, observer: Observer, registry: Registry, clock: Clock, settings: MalleableSettings
    ) -> None:
        self._backend = backend
        self._observer = observer
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._known = _Known()

    async def current(self, me: MalleableJob) -> CurrentJob | Reason:
        """The job as it is now, or why it cannot be acted for."""
        asked = self._clock.now()
        snapshot = await self._observer.look(max_age=FRESH)
        if not snapshot.usable or snapshot.taken_at < asked - FRESH:
            problems = "; ".join(snapshot.problems) or "Slurm was not asked"
            return Reason(_NOT_SEEN, f"the job cannot be looked at right now: {problems}")
        job = snapshot.jobs.get(me.job)
        if job is None or not job.running or not me.lives_in(job):
            state = "not in the queue" if job is None else job.state.value
            return Reason("changed", f"the job is now {state}")
        return CurrentJob(job, snapshot)

    async def to_grow(self, me: MalleableJob, decided: Job, nodes: int, *, asking: bool = False) -> Reason | None:
        """Why a job may not get so many more nodes, None where it may. `decided`: as it was decided about; `asking`:
        they are asked for now, and those who come next count with it."""
        seen = await self.current(me)
        if isinstance(seen, Reason):
            return seen
        for name, text in _SAME.items():
            if getattr(seen.job, name) != getattr(decided, name):
                return Reason("changed", f"the job's {text} has changed since this was decided")
        # What a job without a limit gets is asked for by the minute.
        left = 60.0 if seen.job.end is None else max(0.0, seen.job.end - self._clock.now())
        return await self._obstacle(me, seen, Growth(nodes, left), asking=asking)

    async def to_raise(self, me: MalleableJob, seen: CurrentJob, limit: float) -> Reason | None:
        """Why a running job's time limit may not become so long (s), None where it may."""
        return await self._obstacle(me, seen, Extension(limit))

    async def _obstacle(
        self, me: MalleableJob, seen: CurrentJob, wish: Growth | Extension, *, asking: bool = False
    ) -> Reason | None:
        site = self._settings.site
        if site is None:
            return Reason(_NOT_SEEN, "the agent does not know the site's settings yet")
        owner = owner_of(seen.job)
        try:
            await self._learn(me, owner, seen.snapshot, limited=bool(site.enforced))
        except PenstockError as e:
            return Reason(_NOT_SEEN, f"the limits of {owner.user} cannot be looked at right now: {e}")
        others = companions_of(me, seen.snapshot)
        has = held(seen.job, others, self._known.charges if site.enforced else None, self._clock.now())
        denied = obstacle(self._known.limits[owner], has, wish, site.enforced)
        if denied is None and asking and isinstance(wish, Growth):
            self._count(owner, has, wish)
        return denied

    def _count(self, owner: Owner, has: RunningUse, wish: Growth) -> None:
        later = after(list(self._known.limits.values()), owner, has, wish)
        self._known.limits = {one.owner: one for one in later}

    async def _learn(self, me: MalleableJob, owner: Owner, snapshot: Snapshot, *, limited: bool) -> None:
        """Read the limits of all whose malleable jobs run, unless they are known as of this second. Where the cluster
        holds nobody to limits of accounting, only partitions have some."""
        now, known = self._clock.now(), self._known
        fresh = 0 <= now - known.at < FRESH
        if fresh and owner in known.limits and (not limited or me.job in known.charges):
            return
        jobs = [job for n in self._registry.jobs if (job := snapshot.jobs.get(n)) is not None and job.running]
        owners = list(dict.fromkeys([owner, *map(owner_of, jobs)]))
        if limited:
            numbers = {job.id for job in jobs} | {me.job}
            numbers |= {c.job for other in self._registry.jobs.values() for c in other.companions}
            limits = await self._backend.limits(owners)
            charges = await self._backend.charges(numbers)
        else:
            places = {partition.name: partition for partition in await self._backend.partitions()}
            limits, charges = [OwnerLimits(one, places.get(one.partition)) for one in owners], {}
        self._known = _Known(now, {one.owner: one for one in limits}, charges)


def companions_of(me: MalleableJob, snapshot: Snapshot) -> list[Job]:
    """Its companions that hold nodes."""
    found = (snapshot.jobs.get(companion.job) for companion in me.companions)
    return [job for job in found if job is not None and not job.state.ended and not job.pending]


def node_count(me: MalleableJob, snapshot: Snapshot) -> int:
    """How many nodes a job has, with those of its companions."""
    job = snapshot.jobs.get(me.job)
    return sum(len(one.nodes) for one in (*([job] if job is not None else []), *companions_of(me, snapshot)))
