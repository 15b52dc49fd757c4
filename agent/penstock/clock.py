"""The agent's clock, so that the same loop runs in real time and in a simulation's. Every backend is one."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Anything that knows what time it is, in seconds since the epoch."""

    def now(self) -> float:
        """The current time."""
        ...
