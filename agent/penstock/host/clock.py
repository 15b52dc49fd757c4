"""The agent's clock, so that the same loop runs in real time and in a simulation's. Every backend is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["Clock", "Rest"]

_LONGEST: Final = 60.0
_DOUBLINGS: Final = 20


class Clock(Protocol):
    """Anything that knows what time it is, in seconds since the epoch."""

    def now(self) -> float:
        """The current time."""
        ...


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done from `since` on until `until`.

    It is over as well where the clock shows a time before it began: the clock was set back, and cannot tell any more
    how long ago that was. `steps` counts the rests that each followed another, see `longer`.
    """

    since: float = 0.0
    until: float = 0.0
    steps: int = 0

    def lasts(self, now: float) -> bool:
        """Whether there is still nothing to be done."""
        return self.since <= now < self.until

    def end(self, now: float) -> float:
        """When something may be done again."""
        return self.until if self.lasts(now) else now

    def longer(self, now: float, first: float) -> Rest:
        """The rest from now on that follows this one: `first` seconds, then each twice as long, at most a minute."""
        return Rest(now, now + min(_LONGEST, first * 2.0 ** min(self.steps, _DOUBLINGS)), self.steps + 1)
