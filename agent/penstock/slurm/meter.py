"""What is asked of Slurm, counted: how often each command, how it ended, how long it took, and what for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from penstock.values.tally import Tally

__all__ = ["LOOKS", "OUTCOMES", "Meter", "Purpose", "asking_for"]

OUTCOMES: Final = ("ok", "refused", "unanswered", "abandoned")
"""Slurm did it; said no; gave no answer; or we gave up or never started. Only `unanswered` says that Slurm is ill."""

LOOKS: Final = "looks"
"""What is asked for nobody's act: the looks at the queue, which serve everybody, accounting, estimates."""

_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Purpose(NamedTuple):
    """What a request is for: a feature (one of `values.allow.FEATURES`, or `LOOKS`), and whose jobs, by uid."""

    feature: str = LOOKS
    owner: int | None = None


_NOBODYS: Final = Purpose()
_purpose: ContextVar[Purpose] = ContextVar("purpose", default=_NOBODYS)


@contextmanager
def asking_for(feature: str, owner: int | None) -> Iterator[None]:
    """What is asked of Slurm within, by this task and those that it starts, is for this."""
    token = _purpose.set(Purpose(feature, owner))
    try:
        yield
    finally:
        _purpose.reset(token)


class Meter:
    """The counts of one backend. `requests` counts those that were begun, `purposes` what they were for, and `outcomes`
    those that have ended."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.purposes: Counter[Purpose] = Counter()
        self.seconds: dict[str, float] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.latency: dict[str, Tally] = {}

    def begun(self, command: str) -> None:
        """A request is made."""
        self.requests[command] += 1
        self.purposes[_purpose.get()] += 1

    def ended(self, command: str, outcome: str, seconds: float) -> None:
        """A request has ended, in one of `OUTCOMES`, after so many seconds."""
        self.outcomes[command, outcome] += 1
        self.seconds[command] = self.seconds.get(command, 0.0) + seconds
        if command not in self.latency:
            self.latency[command] = Tally(_BOUNDS)
        self.latency[command].add(seconds)
