"""What became of a cluster's jobs: how much of their limits they used, and when how many came. Pure.

`PastRecorder` takes it from look after look at Slurm, which lists a job for some minutes after its end; `used_in` takes
it from accounting, of those whom that shows. A `QueuePast` is what draws are made from (`draws`).
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from penstock.api import AccountingRecord, Job, JobState, Snapshot

__all__ = ["ENOUGH", "HOUR", "PastJob", "PastRecorder", "QueuePast", "latest_of_each", "used_in"]

HOUR: Final = 3600.0
ENOUGH: Final = 20
"""Ended jobs from which on their shares of the limits say more than the default (`draws`)."""
_VERSION: Final = 2
_KEPT: Final = 5_000
_LATEST: Final = 10
"""Jobs of a user that say how long the next one will run."""
_HOURS: Final = 21 * 24
_GAP: Final = 300.0
"""Seconds between two looks in which no job comes and goes unseen: Slurm's default of MinJobAge."""
_WATCHED: Final = 0.95 * HOUR
_UNTOLD: Final = frozenset({JobState.RESIZING, JobState.REQUEUED, JobState.PREEMPTED})


class PastJob(NamedTuple):
    """A job: when it was submitted (s), the nodes, the limit (s, infinite for none) and the partition that it asked
    for, how long it ran (s; None: it has not ended), and whose it is ("": not known)."""

    submit: float
    nodes: int
    limit: float
    partition: str
    run: float | None
    user: str = ""

    @property
    def used(self) -> float | None:
        """The share of its limit for which it ran, above 0 and at most 1; None where that is not known."""
        if self.run is None or not 0 < self.limit < math.inf:
            return None
        return min(max(self.run / self.limit, 1e-4), 1.0)


@dataclass(frozen=True)
class QueuePast:
    """`used` are the shares of their limits that ended jobs have run, `own` those of the user's own jobs, `by_user` the
    latest of each user. `jobs` came in the watched `hours` (since the epoch), in order of submission; without any it is
    not known who comes."""

    used: tuple[float, ...] = ()
    own: tuple[float, ...] = ()
    jobs: tuple[PastJob, ...] = ()
    hours: tuple[int, ...] = ()
    by_user: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def latest_of_each(jobs: Iterable[PastJob]) -> Mapping[str, tuple[float, ...]]:
    """The shares of their limits that the latest jobs of each user have run; `jobs` are in the order of their ends."""
    found: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LATEST))
    for job in jobs:
        if job.user and (share := job.used) is not None:
            found[job.user].append(share)
    return {user: tuple(shares) for user, shares in found.items()}


def used_in(records: Iterable[AccountingRecord], most: int = 2000) -> tuple[float, ...]:
    """The shares of their limits that the latest jobs of accounting have run."""
    found = []
    for r in sorted(records, key=lambda r: r.end or 0.0):
        if r.state.ended and r.state not in _UNTOLD and r.start and r.end and r.end > r.start:
            limit = math.inf if r.time_limit is None else r.time_limit
            if (used := PastJob(r.submit, r.num_nodes, limit, r.partition, r.end - r.start).used) is not None:
                found.append(used)
    return tuple(found[-most:])


class PastRecorder:
    """Remembers the latest jobs that ended, and through which hours the queue was watched."""

    def __init__(self) -> None:
        self._ended: OrderedDict[int, PastJob] = OrderedDict()
        self._watched: Counter[int] = Counter()
        self._at: float | None = None

    def see(self, snapshot: Snapshot) -> None:
        """Take in a usable snapshot."""
        now = snapshot.taken_at
        if self._at is not None and 0 < now - self._at <= _GAP:
            self._watch(self._at, now)
        self._at = now
        for job in snapshot.jobs.values():
            if job.id not in self._ended and (found := _ended(job)) is not None:
                self._ended[job.id] = found
        while len(self._ended) > _KEPT:
            self._ended.popitem(last=False)
        for hour in sorted(self._watched)[:-_HOURS]:
            del self._watched[hour]

    def _watch(self, begin: float, end: float) -> None:
        while begin < end:
            hour = int(begin // HOUR)
            until = min(end, (hour + 1) * HOUR)
            self._watched[hour] += until - begin  # type: ignore[assignment]
            begin = until

    def shares(self, most: int = ENOUGH) -> int:
        """Of how many ended jobs it is known which share of their limits they have run; `most` is many."""
        return sum(1 for _ in islice((job for job in self._ended.values() if job.used is not None), most))

    def past(self, snapshot: Snapshot, own: tuple[float, ...] = ()) -> QueuePast:
        """What is known by now, with the jobs of this look that have not ended; `own` is from accounting."""
        first = min((job.submit for job in self._ended.values()), default=0.0) if len(self._ended) == _KEPT else 0.0
        hours = {h for h, seconds in self._watched.items() if seconds >= _WATCHED and h * HOUR >= first}
        jobs = [*self._ended.values(), *_alive(snapshot, self._ended)]
        used = [share for job in self._ended.values() if (share := job.used) is not None]
        came = sorted((job for job in jobs if int(job.submit // HOUR) in hours), key=lambda job: job.submit)
        return QueuePast(
            tuple(used) if len(used) >= ENOUGH else (*own, *used), own, tuple(came), tuple(sorted(hours)),
            latest_of_each(self._ended.values()),
        )  # fmt: skip

    def to_state(self) -> dict[str, Any]:
        """JSON-able."""
        jobs = [
            [number, job.submit, job.nodes, None if job.limit == math.inf else job.limit, *job[3:]]
            for number, job in self._ended.items()
        ]
        return {"version": _VERSION, "at": self._at, "jobs": jobs, "hours": sorted(self._watched.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged or newer."""
        try:
            if state["version"] not in (1, _VERSION):  # version 1 knew no users
                raise ValueError(f"it has version {state['version']!r}, this release reads {_VERSION}")
            ended: OrderedDict[int, PastJob] = OrderedDict()
            for number, submit, nodes, limit, partition, run, *user in state["jobs"]:
                whole = math.inf if limit is None else float(limit)
                ended[int(number)] = PastJob(
                    float(submit), int(nodes), whole, str(partition), float(run), *map(str, user)
                )
            watched: Counter[int] = Counter({int(hour): seconds for hour, seconds in state["hours"]})
            at = None if state["at"] is None else float(state["at"])
        except (KeyError, TypeError, ValueError) as e:
            raise ValueError(f"the past of the queue: {e!r}") from e
        self._ended, self._watched, self._at = ended, watched, at


def _ended(job: Job) -> PastJob | None:
    """The job, if it has run and ended."""
    if not job.state.ended or job.state in _UNTOLD or not job.start or not job.end or job.end <= job.start:
        return None
    limit = math.inf if job.time_limit is None else job.time_limit
    return PastJob(job.submit, max(job.num_nodes, 1), limit, job.partition, job.end - job.start, job.user)


def _alive(snapshot: Snapshot, known: Mapping[int, PastJob]) -> Iterator[PastJob]:
    """The jobs of a look that have not ended, each task of an array for itself."""
    for job in snapshot.jobs.values():
        if not job.state.ended and job.id not in known and not job.held:
            limit = math.inf if job.time_limit is None else job.time_limit
            yield from [PastJob(job.submit, max(job.least_nodes, 1), limit, job.partition, None, job.user)] * max(
                job.tasks, 1
            )
