"""What is asked of Slurm, counted: how often each command, how it ended, how long it took."""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock.values.tally import Tally

__all__ = ["OUTCOMES", "Meter"]

OUTCOMES: Final = ("ok", "refused", "unanswered", "abandoned")
"""Slurm did it; said no; gave no answer; or we gave up or never started. Only `unanswered` says that Slurm is ill."""

_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Meter:
    """The counts of one backend. `requests` counts those that were begun, `outcomes` those that have ended."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.latency: dict[str, Tally] = {}

    def ended(self, command: str, outcome: str, seconds: float) -> None:
        """A request has ended, in one of `OUTCOMES`, after so many seconds."""
        self.outcomes[command, outcome] += 1
        self.seconds[command] = self.seconds.get(command, 0.0) + seconds
        if command not in self.latency:
            self.latency[command] = Tally(_BOUNDS)
        self.latency[command].add(seconds)
