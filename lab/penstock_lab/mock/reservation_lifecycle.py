"""What happens to reservations, and to their jobs, as time passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from penstock.api import JobState
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.reservations import Held, Reservations

__all__ = ["ReservationLifecycle"]


class _Reserved(Protocol):
    """A cluster with reservations."""

    now: float
    jobs: dict[int, SimJob]
    reservations: Reservations

    def replan(self) -> None: ...
    def touch(self, job: SimJob) -> None: ...
    def end(self, job: SimJob, state: JobState, exit_code: int = 0) -> None: ...
    def call_at(self, time: float, action: Callable[[], None]) -> None: ...


class ReservationLifecycle:
    """Begins, watches and ends the reservations of a cluster."""

    def __init__(self, engine: _Reserved) -> None:
        self._engine = engine

    def keep(self, held: Held) -> None:
        """A reservation was made."""
        self._engine.replan()
        self._engine.call_at(held.start, self._engine.replan)
        self._engine.call_at(held.end, lambda: self._expire(held))
        self._watch(held)

    def left(self, job: SimJob) -> None:
        """A job has ended; if it was the last that wanted its reservation, that is idle from now on."""
        held = self._engine.reservations.get(job.reservation) if job.reservation else None
        if held is not None and held.purge < math.inf and not self.wanted(held):
            held.idle_since = max(self._engine.now, held.start)
            self._watch(held)

    def end(self, held: Held) -> None:
        """A reservation ends; jobs that still wait for it are held, unless it says otherwise."""
        engine = self._engine
        engine.reservations.remove(held)
        engine.replan()
        for job in [j for j in engine.jobs.values() if j.reservation == held.spec.name and j.state is JobState.PENDING]:
            if held.holds_jobs and not job.held:
                job.held = "admin"
            engine.touch(job)

    def wanted(self, held: Held) -> bool:
        """Whether a job runs in it or waits for it."""
        return any(j.reservation == held.spec.name and not j.state.ended for j in self._engine.jobs.values())

    def _expire(self, held: Held) -> None:
        """Its time is over (ResvOverRun=0): jobs that may run in it only are ended."""
        engine = self._engine
        if engine.reservations.get(held.spec.name) is not held:
            return
        if not held.flex:
            for job in list(engine.jobs.values()):
                if job.reservation == held.spec.name and job.state.holds_nodes:
                    engine.end(job, JobState.TIMEOUT)
        self.end(held)

    def _watch(self, held: Held) -> None:
        """PURGE_COMP: see when it may have been idle for so long. Who makes it idle again later asks anew."""
        self._engine.call_at(held.idle_since + held.purge, lambda: self._purge(held))

    def _purge(self, held: Held) -> None:
        """End the reservation if no job has used or wanted it for as long as it may be idle."""
        engine = self._engine
        if engine.reservations.get(held.spec.name) is not held or self.wanted(held):
            return
        if engine.now >= held.idle_since + held.purge:
            self.end(held)
