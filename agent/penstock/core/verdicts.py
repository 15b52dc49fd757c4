"""Right before an act: may the owner of the job have what the act gives it? From looks younger than a second.

Between a decision and its act an administrator sets a limit or makes a reservation, or the user does. So limits, their
use, and reservations are read here anew; acts of the same second share what was read, and each counts with what those
before it got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.api import Job, Owner, OwnerLimits, Reason, Reservation, SiteConfig, Snapshot
from penstock.core.ownlimits import Extension, RunningUse, Wish, after, held, obstacle, owner_of
from penstock.core.reserved import leaving, reserved
from penstock.errors import PenstockError
from penstock.host.clock import Clock
from penstock.slurm.base import Reader

__all__ = ["FRESH", "PASSING", "Verdicts"]

FRESH: Final = 1.0
"""Seconds: a look that is older than this is none to act on."""
PASSING: Final = frozenset({"not-seen", "limits-unknown"})
"""Codes of the reasons that say only that nothing can be said at present: the act waits."""
_SITE_AGE: Final = 60.0  # s; whether limits are enforced changes with a new start of slurmctld


@dataclass(slots=True)
class _Known:
    """What owners may have, as of an instant, and what their jobs count for. `granted` has what was granted since, in
    its order: whose it was, what the job held, and what it got."""

    at: float = float("-inf")
    limits: dict[Owner, OwnerLimits] = field(default_factory=dict)
    charges: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    reservations: Sequence[Reservation] | None = None
    granted: list[tuple[Owner, RunningUse, Wish]] = field(default_factory=list)

    def count(self, owner: Owner, has: RunningUse, wish: Wish) -> None:
        """It is granted: those who come next count with it."""
        self.granted.append((owner, has, wish))
        self._add(owner, has, wish)

    def _add(self, owner: Owner, has: RunningUse, wish: Wish) -> None:
        self.limits = {one.owner: one for one in after(list(self.limits.values()), owner, has, wish)}

    def counting(self, granted: Sequence[tuple[Owner, RunningUse, Wish]]) -> _Known:
        """The same, to which Slurm has not yet added what was granted in this second."""
        for each in granted:
            self.count(*each)
        return self


class Verdicts:
    """Asked by the executor before each act that has a wish. `others` says the numbers of the jobs that may come next
    in the same second: what is needed of them is read together."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._known = _Known()
        self._turn = asyncio.Lock()  # each counts with what those before it got
        self._site: SiteConfig | None = None
        self._site_at = float("-inf")
        self.others: Callable[[], Iterable[int]] = lambda: ()

    async def site(self) -> SiteConfig:
        """The cluster's settings, not older than a minute. Raises PenstockError."""
        now = self._clock.now()
        if self._site is None or not 0 <= now - self._site_at < _SITE_AGE:
            self._site, self._site_at = await self._reader.site(), now
        return self._site

    async def against(
        self, job: Job, companions: Collection[Job], wish: Wish, seen: Snapshot, *, counts: bool = False
    ) -> Reason | None:
        """Why the owner of `job`, which holds what its `companions` hold as well, may not have the wish; None: it may.

        `seen` is the look that shows them. `counts`: it is granted now, and those who come next count with it.
        """
        if isinstance(wish, Extension) and job.time_limit is not None and wish.time_limit <= job.time_limit:
            return None  # it gains nothing
        async with self._turn:
            return await self._against(job, companions, wish, seen, counts=counts)

    async def _against(
        self, job: Job, companions: Collection[Job], wish: Wish, seen: Snapshot, *, counts: bool
    ) -> Reason | None:
        owners = [replace(owner_of(job), partition=name) for name in job.partition.split(",")]
        owner = owners[0]
        try:
            site = await self.site()
            await self._learn(owners, [job, *companions], seen, limited=bool(site.enforced))
            if isinstance(wish, Extension) and (why := await self._kept(job, companions, wish, seen)) is not None:
                return why
        except PenstockError as e:
            return Reason("not-seen", f"the limits of {owner.user} cannot be looked at right now: {e}")
        known = self._known
        has = held(job, companions, known.charges if site.enforced else None, self._clock.now())
        found = (obstacle(known.limits[one], has, wish, site.enforced) for one in owners)
        why = next((reason for reason in found if reason is not None), None)
        if why is None and counts:
            known.count(owner, has, wish)
        return why

    async def _kept(self, job: Job, companions: Collection[Job], wish: Extension, seen: Snapshot) -> Reason | None:
        """What keeps its nodes from it for so long: somebody's reservation, or that they are to be taken away."""
        if job.start is None:
            return Reason("not-seen", f"job {job.id} has not begun")
        if self._known.reservations is None:
            self._known.reservations = tuple(await self._reader.reservations())
        nodes = {node for one in (job, *companions) for node in one.nodes}
        now, until = self._clock.now(), job.start + wish.time_limit
        return leaving(seen.nodes, sorted(nodes)) or reserved(self._known.reservations, job, nodes, until, now)

    async def _learn(self, wanted: Sequence[Owner], jobs: Sequence[Job], seen: Snapshot, *, limited: bool) -> None:
        """Read the limits of all who may come next, unless they are known as of this second. Where the cluster holds
        nobody to limits of accounting, only partitions have some."""
        now, known = self._clock.now(), self._known
        numbers = {job.id for job in jobs}
        fresh = 0 <= now - known.at < FRESH
        if fresh and known.limits.keys() >= set(wanted) and (not limited or numbers <= known.charges.keys()):
            return
        if fresh:  # one more comes in the same second
            wanted, numbers = [*known.limits, *wanted], numbers | known.charges.keys()
        others = [job for n in self.others() if (job := seen.jobs.get(n)) is not None and not job.state.ended]
        owners = list(dict.fromkeys([*wanted, *map(owner_of, others)]))
        if limited:
            limits = await self._reader.limits(owners)
            charges = await self._reader.charges(numbers | {job.id for job in others})
        else:
            places = {partition.name: partition for partition in await self._reader.partitions()}
            limits, charges = [OwnerLimits(one, places.get(one.partition)) for one in owners], {}
        made = _Known(known.at if fresh else now, {one.owner: one for one in limits}, charges)
        self._known = made.counting(known.granted) if fresh else made
