"""Requests that come behind all others, and whose turn it is among them.

What front programs have looked up is as much as users like, and one user's may be hundreds of requests. So the agent's
own requests come first, and each user has a measure. Within it a request takes what leaves half of the bucket. Beyond
it, it takes what nobody would miss: a token that a full bucket could not hold. Users take turns, so whoever asks seldom
is behind at most one request of each other user.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from penstock.errors import SlurmUnavailable
from penstock.values.bucket import TokenBucket

__all__ = ["AskerTurns", "asking", "behind_all"]

_NO_TIME: Final = 1e-6
_LEFT: Final = 1 / 2
"""What requests within a user's measure leave of the bucket."""
_MEASURE: Final = 1 / 8
"""Of the bucket and of its rate, for each user."""
_askers: ContextVar[Collection[int] | None] = ContextVar("askers", default=None)


@contextmanager
def behind_all(askers: Collection[int]) -> Iterator[None]:
    """What is asked of Slurm within, by this task and those that it starts, comes behind all else, for these users
    (uid), who may become more meanwhile."""
    token = _askers.set(askers)
    try:
        yield
    finally:
        _askers.reset(token)


def asking() -> Collection[int] | None:
    """For whom this task asks; None: for the agent itself, or somebody's act."""
    return _askers.get()


@dataclass(slots=True, eq=False)
class _Waiting:
    askers: Collection[int]
    since: float
    until: float
    turn: asyncio.Future[None]


class AskerTurns:
    """The line before a bucket. `clock` and `sleep` are the budget's.

    `waited`: seconds that all requests have waited in it, `waited_of` those of each user.
    """

    def __init__(
        self, bucket: TokenBucket, clock: Callable[[], float], sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._bucket, self._clock, self._sleep = bucket, clock, sleep
        self._line: list[_Waiting] = []
        self._measures: dict[int, TokenBucket] = {}
        self._served: dict[int, int] = {}  # by user: how many turns there had been at their last one
        self._turns = 0
        self._serving: asyncio.Task[None] | None = None
        self.waited = 0.0
        self.waited_of: defaultdict[int, float] = defaultdict(float)

    async def take(self, askers: Collection[int], patience: float) -> None:
        """A token, in turn. Raises SlurmUnavailable when it would come after more than `patience` seconds."""
        now = self._clock()
        me = _Waiting(askers, now, now + patience, asyncio.get_running_loop().create_future())
        self._line.append(me)
        try:
            if self._serve(now) > 0 and (self._serving is None or self._serving.done()):
                self._serving = asyncio.ensure_future(self._go_on())
            await me.turn
        finally:
            if me in self._line:
                self._line.remove(me)

    async def _go_on(self) -> None:
        while (delay := self._serve(self._clock())) > 0:
            await self._sleep(min(delay, 1 / self._bucket.rate))

    def _serve(self, now: float) -> float:
        """Give out what there is now; seconds until there is more for those that wait, 0 where nobody does."""
        while self._line:
            first = min(self._line, key=lambda one: (not self._measured(one, now), self._last_turn(one)))
            measured = self._measured(first, now)
            delay = self._bucket.delay(now, self._bucket.capacity * _LEFT if measured else self._bucket.capacity)
            if delay > _NO_TIME:
                self._refuse(now, delay)
                return delay
            self._line.remove(first)
            self._bucket.take()
            self._turns += 1
            self.waited += now - first.since
            for uid in first.askers:
                self._served[uid] = self._turns
                self.waited_of[uid] += now - first.since
                if measured:
                    self._measure(uid).take()
            if not first.turn.done():
                first.turn.set_result(None)
        return 0.0

    def _refuse(self, now: float, delay: float) -> None:
        for late in [one for one in self._line if one.until < now + delay]:
            self._line.remove(late)
            if not late.turn.done():
                text = f"too many requests to Slurm; the next is possible in {delay:.0f} s"
                late.turn.set_exception(SlurmUnavailable(text, again_in=delay))

    def _measure(self, uid: int) -> TokenBucket:
        if uid not in self._measures:
            self._measures[uid] = TokenBucket(max(1.0, self._bucket.capacity * _MEASURE), self._bucket.rate * _MEASURE)
        return self._measures[uid]

    def _measured(self, one: _Waiting, now: float) -> bool:
        """Whether it is within the measure of one of those who want it."""
        return any(self._measure(uid).tokens(now) >= 1 for uid in one.askers)

    def _last_turn(self, one: _Waiting) -> int:
        return min((self._served.get(uid, 0) for uid in one.askers), default=0)
