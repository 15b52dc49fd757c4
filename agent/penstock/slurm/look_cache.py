"""Looks that are kept for a while and shared by all who ask: one is taken when somebody asks, and one at a time of each
kind. A look that is too old for what has happened since is never used, and one that failed is no look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock.slurm.turns import behind_all

__all__ = ["LookCache", "TakenLook"]

_AT_MOST: Final = 1.0
"""Seconds between two looks of a kind, whatever was touched meanwhile."""
_REMEMBERED: Final = 120.0

T = TypeVar("T")
Take = Callable[[], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class TakenLook(Generic[T]):
    """A look, begun at `begun` (the cache's clock)."""

    begun: float
    content: T


@dataclass(slots=True)
class _Kind(Generic[T]):
    last: TakenLook[T] | None = None
    begun: float = float("-inf")  # of the last one that was begun, whatever became of it
    running: asyncio.Task[TakenLook[T]] | None = None
    used: float = 0.0
    askers: set[int] = field(default_factory=set)  # who wait for the one that is under way


@dataclass(slots=True)
class LookCache(Generic[T]):
    """`age`: seconds that a look is used. `clock` and `sleep` are for tests. `taken` and `served` count looks and
    answers from them."""

    age: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    taken: int = 0
    served: int = 0
    _kinds: dict[Hashable, _Kind[T]] = field(default_factory=dict)
    _touched: dict[int, tuple[float, int]] = field(default_factory=dict)  # job: when, by whose doing (uid)

    def touch(self, jobs: Collection[int], uid: int) -> None:
        """Jobs were submitted, changed or cancelled by or for user `uid` just now: what was seen of them before is no
        answer. 0: of whichever job."""
        now = self.clock()
        self._touched.update(dict.fromkeys(jobs, (now, uid)))
        for job in [job for job, (at, _) in self._touched.items() if at < now - _REMEMBERED]:
            del self._touched[job]

    def since(self, jobs: Collection[int] | None, uid: int | None) -> float:
        """When a look has to have begun to show these jobs (None: all) of user `uid` (None: of all) as they are."""
        touched = self._touched
        if jobs is not None:
            times = [touched[job][0] for job in (*jobs, 0) if job in touched]
        else:
            times = [at for job, (at, whose) in touched.items() if uid is None or whose == uid or job == 0]
        return max(times, default=float("-inf"))

    async def get(self, kind: Hashable, take: Take[T], since: float = float("-inf"), uid: int = 0) -> TakenLook[T]:
        """A look of this kind, begun at `since` or later and not too old, for user `uid`. `take` takes one; its errors
        pass."""
        needed = max(self.clock() - self.age, since)
        entry = self._kinds.setdefault(kind, _Kind())
        entry.used = self.clock()
        while entry.last is None or entry.last.begun < needed:
            entry.askers.add(uid)
            if entry.running is None:
                # Waited for with this one: whoever comes meanwhile finds it under way.
                entry.running = asyncio.ensure_future(self._take(entry, take))
                entry.running.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(entry.running)
        self._forget()
        self.served += 1
        return entry.last

    async def _take(self, entry: _Kind[T], take: Take[T]) -> TakenLook[T]:
        try:
            if (pause := entry.begun + _AT_MOST - self.clock()) > 0:
                await self.sleep(pause)
            entry.begun = begun = self.clock()
            self.taken += 1
            with behind_all(entry.askers):
                entry.last = TakenLook(begun, await take())
            return entry.last
        finally:
            entry.running = None
            entry.askers.clear()

    def _forget(self) -> None:
        """Kinds that nobody asks for any more take up memory."""
        now = self.clock()
        for kind in [k for k, e in self._kinds.items() if e.running is None and e.used < now - 4 * self.age - 60]:
            del self._kinds[kind]
