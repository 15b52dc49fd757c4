"""One shared look at Slurm per pass: a frozen Snapshot, with what is stale or failed marked.

However many callers ask, Slurm is asked at most once per `min_interval`; when it does not answer, the old picture is
kept, its problems say so, and the next try waits longer and longer. Where the site has a view that all its users share,
that is asked first, but never for a look to act on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

from penstock.api import Job, License, Node, Partition, Reservation, Snapshot
from penstock.errors import NotNow, PenstockError
from penstock.host.clock import Clock, Rest
from penstock.slurm.base import Reader
from penstock.values.backoff import backoff

__all__ = ["OUTCOMES", "Observer", "Shared", "waking"]

OUTCOMES: Final = (
    "used",
    "absent",
    "forged",
    "slow",
    "broken",
    "old",
    "late",
    "elsewhere",
    "clock",
    "private",
    "busy",
    "slurm",
)
"""How it went: the look was used, or why not."""

_LONGEST_BACKOFF = 300.0
_REFUSED = 60.0
_SLOW_EVERY = 300.0  # partitions, reservations and licences, which people change; jobs and nodes change by themselves


class Shared(Protocol):
    """A look that others have taken."""

    @property
    def using(self) -> bool:
        """Whether the last one came from there."""
        ...

    @property
    def promise(self) -> float:
        """How old it may be, in seconds."""
        ...

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How often it was asked for, by which of `OUTCOMES`."""
        ...

    async def look(self, now: float) -> Snapshot | None:
        """It, with the instant at which it was begun; None: ask Slurm. `SlurmUnavailable`: that does not answer."""
        ...


async def waking(snapshot: Snapshot, reader: Reader) -> Snapshot:
    """It with the time in which its nodes wake up. Slurm is asked for that only where any is asleep."""
    if not any(node.asleep for node in snapshot.nodes.values()):
        return snapshot
    return replace(snapshot, wakes_in=(await reader.site()).wakes_in)


class Observer:
    """Takes and caches snapshots of one backend.

    `min_interval`: seconds between two looks. `stale_after`: a picture older than this is marked stale. `shared` has
    looks that others have taken. `check` says of the jobs of a new picture why it is none to act on, if so.
    """

    def __init__(self, backend: Reader, clock: Clock, *, min_interval: float, stale_after: float) -> None:
        self._backend = backend
        self._clock = clock
        self.min_interval = min_interval
        self.stale_after = stale_after
        self.shared: Shared | None = None
        self.check: Callable[[Iterable[Job], float], str | None] = lambda _jobs, _at: None
        self.looks = 0
        self.failures = 0
        self._last: Snapshot | None = None
        self._rest = Rest()
        self._wanted = False
        self._partitions: Mapping[str, Partition] = {}
        self._reservations: tuple[Reservation, ...] = ()
        self._licenses: tuple[License, ...] = ()
        self._wakes_in: float | None = None
        self._slow_at = float("-inf")
        self._lock = asyncio.Lock()

    @property
    def last(self) -> Snapshot | None:
        """The latest picture, however old."""
        return self._last

    def want(self) -> None:
        """Somebody waits for a newer picture: the next look should come as soon as it may."""
        self._wanted = True

    def next_look(self) -> float | None:
        """When the next look should come: after a failure when Slurm may be asked again, else if one is wanted."""
        if self._last is None:
            return None
        if not self._last.usable:
            return self._rest.end(self._clock.now())
        return self._last.taken_at + self._usual_age if self._wanted else None

    @property
    def _usual_age(self) -> float:
        """How old a picture may be that is only looked at."""
        if self.shared is not None and self.shared.using:
            return max(self.min_interval, self.shared.promise)
        return self.min_interval

    async def look(self, max_age: float | None = None) -> Snapshot:
        """A picture at most `max_age` seconds old (default: the interval between looks) if Slurm answers and may be
        asked; else the last one, with its problems."""
        wanted = self._usual_age if max_age is None else max_age
        async with self._lock:
            now = self._clock.now()
            age = float("inf") if self._last is None else now - self._last.taken_at
            # An age below zero means that the clock was set back: look again.
            if self._last is not None and self._last.usable and 0 <= age < wanted:
                return self._last
            if self._last is not None and self._rest.lasts(now):
                return self._marked(self._last, age)
            return await self._take(now, to_act_on=max_age is not None)

    async def _take(self, now: float, *, to_act_on: bool) -> Snapshot:
        try:
            if not to_act_on and (found := await self._by_others(now)) is not None:
                return found
            if not 0 <= now - self._slow_at < _SLOW_EVERY:
                self._partitions = MappingProxyType({p.name: p for p in await self._backend.partitions()})
                self._reservations = tuple(await self._backend.reservations())
                self._licenses = tuple(await self._backend.licenses())
                self._slow_at = now
            nodes: Mapping[str, Node] = MappingProxyType({n.name: n for n in await self._backend.nodes()})
            # Jobs last: a job started while we asked for nodes then counts as holding them.
            jobs = MappingProxyType({j.id: j for j in await self._backend.jobs()})
            seen = await self._waking(
                Snapshot(now, jobs, nodes, self._partitions, reservations=self._reservations, licenses=self._licenses)
            )
        except PenstockError as e:
            pause = e.again_in if isinstance(e, NotNow) else None
            if pause is None:  # what was not even asked is no new failure
                self.failures += 1
                pause = backoff(max(self.min_interval, 1.0), self.failures, _LONGEST_BACKOFF)
            self._rest = Rest(now, now + pause)
            problem = f"slurm: {e}"
            base = self._last or Snapshot(now, {}, {}, {})
            self._last = replace(base, problems=(problem,))
            return self._last
        self.looks += 1
        self.failures = 0
        self._wanted = False
        if any(part not in self._partitions for job in jobs.values() for part in job.partition.split(",")):
            self._slow_at = float("-inf")  # a partition made since: read them again with the next look
        self._rest = Rest()
        return self._checked(seen, now)

    async def _waking(self, seen: Snapshot) -> Snapshot:
        """It with the time in which its nodes wake up, which Slurm is asked for once."""
        if self._wakes_in is None:
            found = await waking(seen, self._backend)
            if found is not seen:
                self._wakes_in = found.wakes_in
            return found
        return replace(seen, wakes_in=self._wakes_in)

    def _checked(self, seen: Snapshot, now: float) -> Snapshot:
        """It is the last one from now on."""
        if seen.usable and (why := self.check(seen.jobs.values(), seen.taken_at)) is not None:
            seen = replace(seen, problems=(why,))
            self._rest = Rest(now, now + _REFUSED)
        self._last = seen
        return seen

    async def _by_others(self, now: float) -> Snapshot | None:
        """What others have seen; the last look where that is the newer one; None: Slurm is to be asked."""
        found = await self.shared.look(now) if self.shared is not None else None
        if found is None:
            return None
        found = await self._waking(found)
        self.looks += 1
        self.failures, self._wanted, self._rest = 0, False, Rest()
        if self._last is None or not self._last.usable or found.taken_at > self._last.taken_at:
            return self._checked(found, now)
        return self._last

    def _marked(self, snapshot: Snapshot, age: float) -> Snapshot:
        if age <= self.stale_after or snapshot.problems:
            return snapshot
        return replace(snapshot, problems=(f"the last look at Slurm is {age:.0f} s old, too old to act on",))
