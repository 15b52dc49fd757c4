"""Who lets time pass: the Protocol of a driver of engines, and the virtual clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from penstock.api import JobState, Step
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import Effect

__all__ = ["Driver", "VirtualClock"]


class Driver(Protocol):
    """Who lets the engine's time pass and acts on its effects: the virtual clock, or the driver of real processes."""

    def now(self) -> float:
        """The cluster's time."""
        ...

    def settle(self) -> None:
        """Bring the engine to this instant: what can happen now has happened afterwards."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let time pass, in the clock's own way."""
        ...

    async def granted(self, engine: Engine, job: int, patience: float) -> bool:
        """Whether the pending job has begun, waiting at most `patience` seconds for it."""
        ...

    def steps(self, job: int) -> Iterable[Step]:
        """Running steps besides those of Slurm itself."""
        ...


class VirtualClock:
    """A clock that moves only when told to. Several engines (clusters) may share it.

    `advance_to` and `advance` return the effects that came of it, for tests and logs; nobody has to act on them.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._engines: list[Engine] = []

    def attach(self, engine: Engine) -> None:
        """Let this clock drive the engine, too."""
        if engine not in self._engines:
            self._engines.append(engine)
            engine.advance(self._now)

    def now(self) -> float:
        """Seconds since the epoch of the simulation."""
        return self._now

    def next_event(self) -> float | None:
        """When something happens next by itself (a job ends, hits its limit, is forgotten…); None when nothing will."""
        return min((t for e in self._engines if (t := e.next_event()) is not None), default=None)

    def advance_to(self, time: float) -> list[Effect]:
        """Process everything up to and including `time`, in order; a time in the past means now."""
        effects: list[Effect] = []
        target = max(time, self._now)
        while (due := self.next_event()) is not None and due <= target:
            self._now = max(self._now, due)
            effects += self._drain(self._now)
        if target < math.inf:
            self._now = target
            effects += self._drain(target)
        return effects

    def advance(self, seconds: float) -> list[Effect]:
        """Let so many seconds pass."""
        return self.advance_to(self._now + seconds)

    def settle(self) -> None:
        """What can happen at this instant has happened afterwards."""
        self._drain(self._now)

    async def pause(self, seconds: float) -> None:
        """A blocking call takes virtual time: the clock moves on."""
        if seconds > 0:
            self.advance(seconds)

    async def granted(self, engine: Engine, job: int, patience: float) -> bool:
        """Only a start at this very instant counts: the caller holds up the one who moves the clock."""
        return engine.job(job).state is JobState.RUNNING

    def steps(self, job: int) -> Iterable[Step]:
        """None: there are no processes."""
        return ()

    def _drain(self, to: float) -> list[Effect]:
        effects: list[Effect] = []
        for engine in self._engines:
            engine.advance(to)
            effects += engine.take_effects()
        return effects
