"""Watches the live queue: every job that is seen to queue and then to start teaches the `QueueLearner`.

Pure: snapshots in, expectations out. What a job saw when it queued is the newest picture from before it did; a job that
was there already when the watch began, one that another cause than its turn kept waiting, and all tasks of an array but
the first to start teach nothing. What was expected of a job when it was first seen is kept until it starts, beside the
start that Slurm (`squeue --start`) estimated first. Where jobs share nodes, a node is free when the last of them ends.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from penstock.api import Geometry, Job, JobState, Snapshot
from penstock.future.cluster import YEAR, Cluster, QueueEntry, Unknown
from penstock.future.counted import steps_of
from penstock.future.turns import believed
from penstock.waits.learners.base import BOUND
from penstock.waits.learners.bounds import LEAST
from penstock.waits.learners.causes import hindrance
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_view import NewJob, Past, QueueCounts, QueuedJob, View, look
from penstock.waits.learners.run_times import RunTimes
from penstock.waits.learners.states import array, expect, numbers, reading

__all__ = ["ALL", "QueueWatch"]

ALL: Final = ("queue", BOUND, "squeue")
"""Who is judged on all jobs: the learner with its bound, and Slurm's estimated start (`squeue --start`)."""

_VERSION: Final = 1
_RECENT: Final = 20
_REMEMBERED: Final = 2000
"""Classes and users whose last wait is remembered, the latest ones."""
_VIEWS: Final = 200
"""Jobs whose view is taken at one look; of more, evenly so many. A view takes a millisecond or two."""
_TASKS: Final = 100
"""Tasks of one array that are counted as waiting; the plan does not look further anyway."""
_JUDGED: Final = 2000
_APART: Final = 60.0
"""Seconds between two looks, within which a job that is gone from the queue may have ended."""
_FOR_EVER: Final = int(YEAR)
_RAN: Final = frozenset(
    {JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY}
)


@dataclass(slots=True)
class _Entry:
    """A job in the queue: since when, what it saw (None: nobody knows), and whether it waits for its turn alone.

    `expected` and `bound` (s) are what the learner said of it then, `squeue` the wait (s) by Slurm's first estimate.
    """

    since: float
    view: View | None
    hindered: bool = False
    expected: float | None = None
    bound: float | None = None
    squeue: float | None = None

    def look_at(self, job: Job, snapshot: Snapshot) -> None:
        self.hindered |= hindrance(job, snapshot.nodes) is not None
        if job.pending and self.squeue is None and job.start is not None and job.start > snapshot.taken_at:
            self.squeue = max(job.start - self.since, 0.0)  # expected before it may start: at once then


class _Picture:
    """A snapshot as the queues of its partitions, each worked out when it is asked for; by limits, and by the run times
    that are likely by what is known of `runs` then."""

    def __init__(self, snapshot: Snapshot, runs: RunTimes) -> None:
        self.snapshot = snapshot
        self.at = snapshot.taken_at
        self._runs = runs
        self.waiting = Counter(job.user for job in snapshot.jobs.values() if job.pending)
        self.running = Counter(job.user for job in snapshot.jobs.values() if job.state.holds_nodes)
        self._queues: dict[tuple[str, bool], QueueCounts] = {}

    def partition(self, names: str) -> str | None:
        """The first of these partitions that there is."""
        return next((name for name in names.split(",") if name in self.snapshot.partitions), None)

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster.of(believed(self.snapshot), Unknown(endless=YEAR))

    def queue(self, partition: str, *, likely: bool = False) -> QueueCounts:
        if (partition, likely) not in self._queues:
            self._queues[partition, likely] = self._work_out(partition, likely)
        return self._queues[partition, likely]

    @cached_property
    def _likely_ends(self) -> dict[int, float]:
        """When running jobs end, by their ids, if they run as long as is likely."""
        ends = {}
        for held in self._cluster.held:
            limit = _seconds(held.end - held.start)  # by Slurm's end: it may have been changed since the start
            runs = held.start + self._runs.of_running(held.job.user, limit, self.at - held.start)
            ends[held.job.id] = max(runs, self.at + Unknown().overdue)
        return ends

    def _work_out(self, partition: str, likely: bool) -> QueueCounts:
        cluster = self._cluster
        inside = cluster.nodes_of(partition)
        ends = self._likely_ends if likely else {h.job.id: h.end for h in cluster.held}
        left, running = inside, []
        for held in sorted(cluster.held, key=lambda h: ends[h.job.id], reverse=True):
            if mine := held.nodes & left:  # a node belongs to the last of those who share it
                left &= ~mine
                running.append((int(ends[held.job.id]), mine.bit_count()))
        usable = cluster.mask(name for name, node in self.snapshot.nodes.items() if node.usable) | cluster.busy
        return QueueCounts(
            int(self.at),
            (inside & usable).bit_count(),
            running[::-1],
            [_waiting(entry, self._runs if likely else None) for entry in cluster.queue(inside, tasks=_TASKS)],
            steps_of(cluster.free_by(ends) if likely else cluster.free(), inside),
        )


def _waiting(entry: QueueEntry, runs: RunTimes | None) -> QueuedJob:
    job = entry.job
    group, limit = _group(job.partition, job.qos), _seconds(entry.duration)
    if runs is not None:
        limit = runs.expect(job.user, limit)
    return QueuedJob(entry.nodes, limit, group, job.user, int(_since(job)), int(entry.after))


class QueueWatch:
    """What the live queue of one cluster expects of a job, learned from every job in it.

    `see` may run in another thread than `expect`, but nothing else at the same time.
    """

    def __init__(self, learner: QueueLearner) -> None:
        self.learner = learner
        self.examples = 0
        self.judged = Judged(ALL, _JUDGED)
        self._picture: _Picture | None = None
        self._waiting: dict[int, _Entry] = {}
        self._begun: set[int] = set()
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._classes: OrderedDict[str, float] = OrderedDict()
        self._users: OrderedDict[str, float] = OrderedDict()
        self._runs = RunTimes()
        self._running: dict[int, Job] = {}

    def see(self, snapshot: Snapshot) -> None:
        """Take in a usable snapshot that is newer than the last."""
        before, started, fresh = self._picture, [], []
        self._note_ends(snapshot)
        present = set()
        for job in snapshot.jobs.values():
            key = job.head
            present.add(key)
            if job.pending and job.eligible is not None and key not in self._begun:
                if key not in self._waiting:
                    self._waiting[key] = _Entry(_since(job), None)
                    fresh.append((job, self._waiting[key]))
                self._waiting[key].look_at(job, snapshot)
            elif (job.state.holds_nodes or job.state in _RAN) and key not in self._begun:
                self._begun.add(key)
                entry = self._waiting.pop(key, None)
                if entry is None and job.eligible is not None:  # it came and started between two looks
                    entry = _Entry(_since(job), None)
                    fresh.append((job, entry))
                if entry is not None and job.start is not None:
                    entry.look_at(job, snapshot)
                    started.append((job.start, job, entry))
        if before is not None:
            self._show(before, [(job, entry) for job, entry in fresh if entry.since >= before.at])
        for start, job, entry in sorted(started, key=lambda item: (item[0], item[1].id)):
            self._learn(job, entry, start - entry.since)
        self._waiting = {key: entry for key, entry in self._waiting.items() if key in present}
        self._begun &= present
        self._picture = _Picture(snapshot, self._runs)

    def _note_ends(self, snapshot: Snapshot) -> None:
        """How long those have run that no longer do. Of one that is gone from the queue it is known by the looks."""
        for number, old in self._running.items():
            job = snapshot.jobs.get(number)
            if job is None and self._picture is not None and old.start is not None:
                ran = snapshot.taken_at - old.start
                if snapshot.taken_at - self._picture.at <= max(_APART, ran / 10):
                    self._runs.add(old.user, ran)
            elif job is not None and job.state in _RAN and job.start is not None and job.end is not None:
                self._runs.add(job.user, max(job.end - job.start, 0.0))
        self._running = {j.id: j for j in snapshot.jobs.values() if j.state.holds_nodes and j.start is not None}

    def _show(self, before: _Picture, fresh: list[tuple[Job, _Entry]]) -> None:
        for job, entry in fresh[:: max(1, math.ceil(len(fresh) / _VIEWS))]:
            entry.view = self._view(before, job.partition, job.qos, job.num_nodes, job.time_limit, job.user)
            entry.expected = None if entry.view is None else self.learner.expect(entry.view)
            entry.bound = None if entry.expected is None else self.learner.bound(entry.expected)

    def _view(
        self, picture: _Picture, partition: str, qos: str, nodes: int, limit: float | None, user: str
    ) -> View | None:
        known = picture.partition(partition)
        if known is None:
            return None
        group, default = _group(partition, qos), math.log10(LEAST)
        past = Past(
            sum(self._recent) / len(self._recent) if self._recent else default,
            self._classes.get(f"{nodes.bit_length()} {group}", default),
            self._users.get(user, default),
            picture.waiting[user],
            picture.running[user],
        )
        ask = NewJob(nodes, _seconds(limit), group, user)
        likely = picture.queue(known, likely=True), replace(ask, limit=self._runs.expect(user, ask.limit))
        return look(picture.queue(known), ask, past, likely)

    def _learn(self, job: Job, entry: _Entry, wait: float) -> None:
        if entry.hindered or wait < 0:
            return
        log = math.log10(max(wait, LEAST))
        self._recent.append(log)
        _remember(self._classes, f"{job.num_nodes.bit_length()} {_group(job.partition, job.qos)}", log)
        _remember(self._users, job.user, log)
        if entry.view is not None:
            self.learner.add(entry.view, wait, entry.expected, entry.bound)
            self.judged.add(wait, {"queue": entry.expected, BOUND: entry.bound, "squeue": entry.squeue})
            self.examples += 1

    def expect(self, geometry: Geometry, user: str) -> float | None:
        """The wait (s) of a job that `user` submits now; None before the first look, and for what it cannot place."""
        return self.expect_and_plan(geometry, user)[0]

    def expect_and_plan(self, geometry: Geometry, user: str) -> tuple[float | None, float | None]:
        """The same, and its wait (s) by the time limits of all before it; None where it can never start."""
        if self._picture is None:
            return None, None
        partition = geometry.partition
        view = self._view(self._picture, partition, geometry.qos, geometry.nodes, geometry.time_limit, user)
        return (None, None) if view is None else (self.learner.expect(view), view.planned)

    def bound(self, expected: float) -> float | None:
        """Seconds that 95 of 100 jobs' waits do not exceed of which `expected` (s) is said; None while too few are
        known."""
        return self.learner.bound(expected)

    def to_state(self) -> dict[str, Any]:
        """JSON-able: the learner, and the last waits."""
        return {
            "version": _VERSION,
            "learner": self.learner.to_state(),
            "recent": [round(x, 4) for x in self._recent],
            "classes": [[name, round(x, 4)] for name, x in self._classes.items()],
            "users": [[name, round(x, 4)] for name, x in self._users.items()],
            "judged": self.judged.to_state(),
            "runs": self._runs.to_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged or newer."""
        with reading("queue watch"):
            expect(state, "version", _VERSION)
            recent = numbers(state["recent"], _RECENT)
            classes = OrderedDict((str(name), float(array(x))) for name, x in state["classes"])
            users = OrderedDict((str(name), float(array(x))) for name, x in state["users"])
            judged, runs = Judged(ALL, _JUDGED), RunTimes()
            judged.restore(state["judged"])
            runs.restore(state["runs"])
        self.learner.restore(state["learner"])
        self.judged, self._runs = judged, runs
        self._recent.extend(recent)
        self._classes, self._users = classes, users


def _group(partition: str, qos: str) -> str:
    return f"{partition}/{qos}"


def _since(job: Job) -> float:
    """When the job began to wait for its turn."""
    return job.submit if job.eligible is None else max(job.submit, job.eligible)


def _seconds(limit: float | None) -> int:
    return _FOR_EVER if limit is None else int(min(max(limit, 1.0), _FOR_EVER))


def _remember(memory: OrderedDict[str, float], name: str, value: float) -> None:
    memory[name] = value
    memory.move_to_end(name)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
