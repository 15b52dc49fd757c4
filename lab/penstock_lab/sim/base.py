"""What the event loop and a policy say to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

__all__ = ["NEVER", "Policy"]

NEVER: Final = 1 << 62
"""A time (seconds) after everything."""


class Policy(Protocol):
    """Decides which waiting jobs start. Jobs are their positions in the trace; times are whole seconds.

    Made from a trace and a number of processors, of which all are free. The loop tells the policy what happened at
    `now`, then asks it once: `end` and `submit` may be called several times before `start`, and `start` several times
    in the same second. It never asks between events, so a policy whose promises can fall due when nothing ends and
    nothing is submitted keeps the first of them in `due`.

    A job ends at its estimated end at the latest. One that ends exactly then is announced before any other event of
    that second, in both tie orders.
    """

    due: int
    """`start` has to be called at this time even if nothing happens (NEVER: no such time)."""

    def submit(self, now: int, job: int) -> None:
        """The job now waits."""

    def end(self, now: int, job: int) -> None:
        """The job has left its processors."""

    def start(self, now: int) -> Sequence[int]:
        """The jobs that start now, each of them once; they run from here on."""
