"""The agent's clock, so that the same loop runs in real time and in a simulation's."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Anything that knows what time it is, in seconds since the epoch."""

    def now(self) -> float:
        """The current time."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
