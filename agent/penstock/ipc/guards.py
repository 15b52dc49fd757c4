"""How guards in job scripts are answered: from the last look, and the more there are, the more rarely they ask."""

from __future__ import annotations

from typing import Final

from dmr import wire
from penstock.api import Snapshot

__all__ = ["GuardDesk"]

_PER_SECOND: Final = 20.0
_SOONEST: Final = 30.0
_LATEST: Final = 240.0
_REMEMBERED: Final = 600.0  # seconds: longer than the latest, so that a guard that still asks is counted


class GuardDesk:
    """`asked` counts questions. Who has asked within the last minutes is known, by user and job."""

    def __init__(self) -> None:
        self.asked = 0
        self._seen: dict[tuple[int, int], float] = {}

    def answer(self, uid: int, request: wire.Ended, snapshot: Snapshot | None, now: float) -> wire.Endings:
        """The states of those of the jobs that are this user's and in the look. Of an array nothing is said: its tasks
        stand in different ways."""
        self.asked += 1
        self._seen.pop((uid, request.job), None)
        self._seen[uid, request.job] = now
        while self._seen:  # in the order in which they asked last
            first = next(iter(self._seen))
            if 0 <= now - self._seen[first] < _REMEMBERED:
                break
            del self._seen[first]
        jobs = () if snapshot is None else (snapshot.jobs.get(number) for number in request.jobs)
        states = {str(job.id): job.state.value for job in jobs if job and job.uid == uid and job.array_job is None}
        return wire.Endings(states=states, again_in=self.again_in)

    @property
    def again_in(self) -> float:
        """Seconds after which each of those who ask is to ask again."""
        return min(max(len(self._seen) / _PER_SECOND, _SOONEST), _LATEST)
