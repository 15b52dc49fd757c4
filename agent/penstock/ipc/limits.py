"""How much of the agent one user may take: requests by rate, and memory by bytes that have come in.

Each user has its own measure, so that nobody can use up another's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from penstock.config import AgentSection
from penstock.errors import NotNow
from penstock.values.bucket import TokenBucket

__all__ = ["ByteBudget", "RateLimit", "Requesters"]

_FORGET_FROM = 1024


class RateLimit:
    """A token bucket for each key: `burst` requests at once, then `rate` a second."""

    def __init__(self, burst: float, rate: float) -> None:
        self.burst, self.rate = burst, rate
        self._buckets: dict[Hashable, TokenBucket] = {}
        self._forget_at = _FORGET_FROM

    def configure(self, agent: AgentSection, times: float) -> None:
        """So many times what the configuration allows a user's commands."""
        self.burst, self.rate = times * agent.request_burst, times * agent.requests_per_second

    def allows(self, key: Hashable, now: float) -> bool:
        """Whether there is one left for this key; it is taken then."""
        bucket = self._bucket(key, now)
        if bucket.tokens(now) < 1.0:
            return False
        bucket.take()
        return True

    def charge(self, key: Hashable, tokens: float, now: float) -> None:
        """Take more for a request that was dear; it may make the next ones wait."""
        bucket = self._bucket(key, now)
        bucket.tokens(now)
        bucket.take(tokens)

    def take(self, key: Hashable, now: float) -> None:
        """As `allows`. Raises `NotNow` where there is none left."""
        if not self.allows(key, now):
            again = self.delay(key, now)
            raise NotNow(
                f"too many requests: at most {self.burst:g} at once, and then {self.rate:g} a second, are answered; "
                f"ask again in {math.ceil(again)} s",
                again_in=again,
            )

    def delay(self, key: Hashable, now: float) -> float:
        """Seconds until there is one left for this key."""
        return self._bucket(key, now).delay(now)

    def _bucket(self, key: Hashable, now: float) -> TokenBucket:
        if key not in self._buckets:
            if len(self._buckets) >= self._forget_at:
                self._forget(now)
            self._buckets[key] = TokenBucket(self.burst, self.rate)
        return self._buckets[key]

    def _forget(self, now: float) -> None:
        """Who has been away so long that nothing is known of them."""
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.tokens(now) < self.burst}
        self._forget_at = max(_FORGET_FROM, 2 * len(self._buckets))


class Requesters:
    """Who was turned away. `count`: each of them once in `interval` s, so that one who goes on and on is one."""

    def __init__(self, interval: float = 900.0) -> None:
        self._interval = interval
        self._counted: dict[Hashable, float] = {}
        self._forget_at = _FORGET_FROM
        self.count = 0

    def note(self, who: Hashable, now: float) -> None:
        """This one was, just now."""
        if now - self._counted.get(who, -math.inf) < self._interval:
            return
        if len(self._counted) >= self._forget_at:
            self._counted = {key: at for key, at in self._counted.items() if now - at < self._interval}
            self._forget_at = max(_FORGET_FROM, 2 * len(self._counted))
        self._counted[who] = now
        self.count += 1


class ByteBudget:
    """Bytes that are held for each peer."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: Counter[str] = Counter()

    @contextmanager
    def holding(self, peer: str) -> Iterator[Holding]:
        """What is held inside is given back at its end."""
        mine = Holding(self, peer)
        try:
            yield mine
        finally:
            mine.add(-mine.size)
            if not self._held[peer]:
                del self._held[peer]

    def _add(self, peer: str, size: int) -> None:
        if size > 0 and self._held[peer] + size > self.most:
            raise ValueError(f"more than {self.most} bytes of this user's or host's requests are unfinished")
        self._held[peer] += size


class Holding:
    """What one reader holds of its peer's budget."""

    def __init__(self, budget: ByteBudget, peer: str) -> None:
        self._budget, self._peer = budget, peer
        self.size = 0

    def add(self, size: int) -> None:
        """Hold so much more, or less. Raises ValueError when that is too much."""
        self._budget._add(self._peer, size)
        self.size += size
