"""The token bucket behind every limit of so many at once and then so many a second."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """Up to `capacity` tokens, refilled at `rate` per second. Its balance may be overdrawn: who takes, waits.

    It begins full. A clock that is set back gives nothing.
    """

    def __init__(self, capacity: float, rate: float) -> None:
        self.capacity, self.rate = capacity, rate
        self._tokens = capacity
        self._at = float("-inf")

    def tokens(self, now: float) -> float:
        """The balance now; below zero when tokens of the future were given out."""
        if now > self._at:
            self._tokens = min(self.capacity, self._tokens + (now - self._at) * self.rate)
            self._at = now
        return self._tokens

    def delay(self, now: float, kept: float = 0.0) -> float:
        """Seconds until a token is there besides the `kept` ones (at most all but one of the capacity)."""
        kept = min(kept, self.capacity - 1)
        return max(0.0, (1 + kept - self.tokens(now)) / self.rate)

    def take(self, tokens: float = 1.0) -> None:
        """Spend so many tokens."""
        self._tokens -= tokens

    def resume(self, tokens: float, ago: float, now: float) -> None:
        """Go on from a balance of so many seconds ago."""
        self._tokens = min(self.capacity, max(0.0, tokens) + max(0.0, ago) * self.rate)
        self._at = now
