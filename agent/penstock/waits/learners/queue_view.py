"""What the queue shows of a job that is submitted now: its start in our own plan, and the numbers to correct it by.

Pure: a `QueueCounts` in, numbers out; it comes from a snapshot of Slurm (`queue_watch`) or from a log (`bench`).
Nodes are counted, not named. The plan is conservative backfilling by time limits: the queue in its order, each job in
the earliest hole, the new one last. It knows neither early ends nor priorities that change nor jobs still to come,
which is why a learner corrects it. The same plan by run times that are likely (`run_times`) is nearer to the truth, but
a scheduler goes by limits; the learner is shown both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.future.cluster import Unknown
from penstock.future.counted import Counted
from penstock.future.planner import Ask as Request
from penstock.future.profile import place

__all__ = ["FEATURES", "LIKELY", "NewJob", "Past", "QueueCounts", "QueuedJob", "View", "look"]

FEATURES: Final = (
    "nodes", "limit", "free", "waiting", "work_ahead", "nodes_ahead", "waiting_group", "work_group", "peers",
    "work_smaller", "oldest", "oldest_group", "oldest_peer", "running", "work_running", "planned_first", "planned",
    "time_of_day", "weekday", "own_waiting", "own_running", "recent_wait", "last_wait_class", "last_wait_user",
    "likely_limit", "likely_planned", "likely_first", "likely_work_ahead", "likely_work_running",
)  # fmt: skip
"""Names of the numbers, in their order. Work is in seconds of the whole machine, waits in log10 of seconds. The last
ones are those of `LIKELY` by run times that are likely, instead of limits."""

LIKELY: Final = ("limit", "planned", "planned_first", "work_ahead", "work_running")
"""What is taken in place of the last features where no run times are known."""

_DEPTH: Final = 150
"""Waiting jobs that the plan places, the first ones of the queue; Slurm's own backfill looks at 100 by default."""
_LIMITS: Final = tuple(FEATURES.index(name) for name in LIKELY)
_OVERDUE: Final = int(Unknown().overdue)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is submitted now: nodes, time limit (s), the group it queues in (partition, QOS), whose it is."""

    nodes: int
    limit: int
    group: str
    user: str


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job in the queue, which starts no earlier than `after`; that and `submit` in seconds on the queue's clock."""

    nodes: int
    limit: int
    group: str
    user: str
    submit: int
    after: int = 0


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """A machine of `nodes` at `now` (s): `running` as (end by the limit, nodes), ascending, `waiting` in its order.

    `steps` is what is free beside the running ones, as (since when, nodes); None: what they leave of the machine.
    """

    now: int
    nodes: int
    running: Sequence[tuple[int, int]]
    waiting: Iterable[QueuedJob]
    steps: Sequence[tuple[int, int]] | None = None

    def free(self) -> Sequence[tuple[int, int]]:
        """What is free when nobody waits, as `steps`; who should have ended by the limit ends soon."""
        if self.steps is not None:
            return self.steps
        free = max(self.nodes - sum(count for _, count in self.running), 0)
        steps = [(self.now, free)]
        for end, count in self.running:
            free += count
            steps.append((max(end, self.now + _OVERDUE), free))
        return steps


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered: log10 of the mean of the last waits, of the class's last one, of the user's last one; how
    many jobs of the user wait and run."""

    recent: float
    last_class: float
    last_user: float
    own_waiting: int
    own_running: int


@dataclass(frozen=True, slots=True)
class View:
    """`features` in the order of `FEATURES`; `planned` is the wait (s) by our plan, None if it can never start, and
    `likely` the same by run times that are likely."""

    features: tuple[float, ...]
    planned: float | None
    likely: float | None = None


def look(queue: QueueCounts, ask: NewJob, past: Past, likely: tuple[QueueCounts, NewJob] | None = None) -> View:
    """What `queue` shows of `ask`; `likely` are both with run times that are likely in place of limits, where those are
    known."""
    features, planned = _look(queue, ask, past)
    if likely is None:
        return View(features + tuple(features[at] for at in _LIMITS), planned, planned)
    again, nearer = _look(*likely, past)
    return View(features + tuple(again[at] for at in _LIMITS), planned, nearer)


def _look(queue: QueueCounts, ask: NewJob, past: Past) -> tuple[tuple[float, ...], float | None]:
    """All features but the last ones, and the planned wait."""
    now, nodes, limit = queue.now, ask.nodes, max(ask.limit, 1)
    profile = Counted(queue.free())
    work_running = sum(max(end - now, _OVERDUE) * count for end, count in queue.running)
    free, request = profile.now, Request(0, nodes, limit, -1)
    alone = profile.earliest(nodes, limit, now)
    first = 0 if alone is None else alone[0] - now
    waiting = work = ahead = same = work_same = peers = work_smaller = 0
    oldest = oldest_same = oldest_peer = now
    for job in queue.waiting:
        job_work = job.nodes * job.limit
        waiting += 1
        work += job_work
        ahead += job.nodes
        if job.submit < oldest:
            oldest = job.submit
        if job.group == ask.group:
            same += 1
            work_same += job_work
            if job.submit < oldest_same:
                oldest_same = job.submit
        if job.nodes <= nodes:
            work_smaller += job_work
            if job.limit <= limit:
                peers += 1
                if job.submit < oldest_peer:
                    oldest_peer = job.submit
        if waiting <= _DEPTH:
            place(profile, Request(0, job.nodes, max(job.limit, 1), -1, after=job.after), now)
    found = place(profile, request, now)
    planned = None if found is None else found[0] - now
    size = max(queue.nodes, 1)
    features = (
        nodes, limit, free, waiting, work / size, ahead, same, work_same / size, peers,
        work_smaller / size, now - oldest, now - oldest_same, now - oldest_peer, len(queue.running),
        work_running / size, first, planned or 0, now % 86400, now // 86400 % 7, past.own_waiting, past.own_running,
        past.recent, past.last_class, past.last_user,
    )  # fmt: skip
    return tuple(float(x) for x in features), None if planned is None else float(planned)
