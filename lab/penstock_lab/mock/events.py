"""What is going to happen, in order of time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from itertools import count

from penstock.api import JobState
from penstock_lab.mock.jobs import SimJob

__all__ = ["Events", "Kind"]


class Kind(IntEnum):
    """What falls due. At the same instant jobs end before anything else happens: the order here decides."""

    END = 0  # a job is done, or at its time limit
    WAKE = 1  # look again at a job that waits
    CALL = 2
    FORGET = 3  # the controller drops a job that has ended


class Events:
    """A heap of events. They are not taken back when a job changes, but recognised as outdated when they fall due."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Kind, int, int]] = []
        self._sequence = count()
        self._calls: dict[int, Callable[[], None]] = {}

    def at(self, time: float, kind: Kind, job: int) -> None:
        """Something happens to a job; at infinity nothing does."""
        if time < math.inf:
            heapq.heappush(self._heap, (time, kind, next(self._sequence), job))

    def call(self, time: float, action: Callable[[], None]) -> None:
        """`action` is called."""
        number = next(self._sequence)
        if time < math.inf:
            self._calls[number] = action
            heapq.heappush(self._heap, (time, Kind.CALL, number, number))

    def next(self, jobs: Mapping[int, SimJob]) -> float | None:
        """When the next event that still holds falls due."""
        while self._heap and not self._holds(*self._heap[0], jobs):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def waking(self, jobs: Mapping[int, SimJob]) -> bool:
        """Whether a job waits for a time to come."""
        return any(event[1] is Kind.WAKE and self._holds(*event, jobs) for event in self._heap)

    def due(self, to: float) -> float | None:
        """When the first event up to `to` falls due, be it outdated or not."""
        return self._heap[0][0] if self._heap and self._heap[0][0] <= to else None

    def pop(self, now: float, jobs: Mapping[int, SimJob]) -> tuple[Kind, int] | None:
        """The next event up to `now` that still holds, and its job, or the number of its call."""
        while self._heap and self._heap[0][0] <= now:
            event = heapq.heappop(self._heap)
            if self._holds(*event, jobs):
                return event[1], event[3]
        return None

    def action(self, number: int) -> Callable[[], None]:
        """What a call calls, once."""
        return self._calls.pop(number)

    @staticmethod
    def _holds(time: float, kind: Kind, _number: int, subject: int, jobs: Mapping[int, SimJob]) -> bool:
        if kind is Kind.CALL:
            return True
        job = jobs.get(subject)
        if job is None:
            return False
        match kind:
            case Kind.END:
                done = job.finish_at is not None and job.finish_at <= time
                return job.state.holds_nodes and (done or job.limit_at <= time)
            case Kind.WAKE:
                return job.state is JobState.PENDING
            case Kind.FORGET:
                return job.end is not None
