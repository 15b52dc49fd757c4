"""A log walked in order of time: what the queue looked like at each submission, as the log itself tells it.

Jobs wait from their submission to their start, whatever the machine's scheduler was, and run from then on; requested
times are their limits. A job that never ran stood in the queue until its record says that it went. Nothing here looks
ahead: a view holds what had happened by then, and a start is told when the walk has reached it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

from penstock.api import Geometry
from penstock.errors import UserError
from penstock.waits.learners.bounds import LEAST
from penstock.waits.learners.queue_view import NewJob, Past, QueueCounts, QueuedJob, View, look
from penstock.waits.learners.run_times import RunTimes
from penstock_lab.sim.swf import SwfReader, header_procs

__all__ = ["Started", "Submission", "Submitted", "read", "walk"]

_RECENT: Final = 20
_WAIT, _USER, _QUEUE = 2, 11, 14  # fields of a line, counted from 0, that a replay does not use


@dataclass(frozen=True, slots=True)
class Submission:
    """A job of the log, times in seconds. `run` is 0 if it never ran; then it was cancelled after `wait`."""

    submit: int
    wait: int
    run: int
    nodes: int
    limit: int
    group: str
    user: str

    @property
    def geometry(self) -> Geometry:
        """Its geometry, with the log's queue as QOS."""
        return Geometry("", self.group, self.nodes, self.limit)


@dataclass(frozen=True, slots=True)
class Submitted:
    """Job number `job` is submitted and sees `view`."""

    job: int
    view: View


@dataclass(frozen=True, slots=True)
class Started:
    """Job number `job` starts: its wait is known from now on."""

    job: int


def read(path: Path) -> tuple[list[Submission], int]:
    """The jobs of a log that has waits, in order of submission, and the machine's size (MaxProcs of its header).

    Left out are records without processors, requested time or wait, and those wider than the machine. UserError for
    files that cannot be used.
    """
    reader = SwfReader(path, skip_bad=True)
    jobs: list[Submission] = []
    size = 0
    for record in reader:
        size = size or _max_procs(path, reader.header)
        fields = record.raw.split()
        wait, nodes = float(fields[_WAIT]), record.allocated if record.allocated > 0 else record.requested
        if not 0 < nodes <= size or max(nodes, record.requested) > size:
            continue
        if record.limit <= 0 or record.submit < 0 or not 0 <= wait < math.inf:
            continue
        group, user = fields[_QUEUE].decode(), fields[_USER].decode()
        jobs.append(Submission(record.submit, int(wait), max(record.run, 0), nodes, record.limit, group, user))
    if not jobs:
        raise UserError(f"{path}: no job with a wait, processors and a requested time")
    jobs.sort(key=lambda job: job.submit)
    return jobs, size


def _max_procs(path: Path, header: list[str]) -> int:
    procs = header_procs(header)
    if procs is None:
        raise UserError(f"{path}: its header has no `; MaxProcs: N`, so the size of the machine is not known")
    return procs


class _State:
    """The queue and the machine at one time of the walk."""

    def __init__(self, jobs: list[Submission], size: int) -> None:
        self.jobs, self.size = jobs, size
        self.waiting: dict[int, QueuedJob] = {}
        self.running: list[tuple[int, int]] = []
        self.started: dict[int, int] = {}
        self.runs = RunTimes()
        self.own_waiting: Counter[str] = Counter()
        self.own_running: Counter[str] = Counter()
        self.recent: deque[float] = deque(maxlen=_RECENT)
        self.by_class: dict[tuple[int, str], float] = {}
        self.by_user: dict[str, float] = {}

    def submit(self, number: int) -> View:
        job = self.jobs[number]
        default = math.log10(LEAST)
        past = Past(
            sum(self.recent) / len(self.recent) if self.recent else default,
            self.by_class.get((job.nodes.bit_length(), job.group), default),
            self.by_user.get(job.user, default),
            self.own_waiting[job.user],
            self.own_running[job.user],
        )
        queue = QueueCounts(job.submit, self.size, self.running, self.waiting.values())
        ask = NewJob(job.nodes, job.limit, job.group, job.user)
        likely = self._likely(job.submit), replace(ask, limit=self.runs.expect(job.user, job.limit))
        view = look(queue, ask, past, likely)
        self.waiting[number] = QueuedJob(job.nodes, job.limit, job.group, job.user, job.submit)
        self.own_waiting[job.user] += 1
        return view

    def _likely(self, now: int) -> QueueCounts:
        """The queue if jobs run as long as is likely by what has been seen of their users."""
        running = []
        for number, start in self.started.items():
            job = self.jobs[number]
            running.append((start + self.runs.of_running(job.user, job.limit, now - start), job.nodes))
        waiting = [replace(job, limit=self.runs.expect(job.user, job.limit)) for job in self.waiting.values()]
        return QueueCounts(now, self.size, sorted(running), waiting)

    def leave(self, number: int) -> None:
        del self.waiting[number]
        self.own_waiting[self.jobs[number].user] -= 1

    def start(self, number: int, now: int) -> None:
        job = self.jobs[number]
        insort(self.running, (now + job.limit, job.nodes))
        self.started[number] = now
        self.own_running[job.user] += 1
        wait = math.log10(max(job.wait, LEAST))
        self.recent.append(wait)
        self.by_class[job.nodes.bit_length(), job.group] = self.by_user[job.user] = wait

    def end(self, number: int) -> None:
        job = self.jobs[number]
        del self.running[bisect_left(self.running, (job.submit + job.wait + job.limit, job.nodes))]
        self.own_running[job.user] -= 1
        del self.started[number]
        self.runs.add(job.user, job.run)


def walk(jobs: list[Submission], size: int) -> Iterator[Submitted | Started]:
    """What happens, in order of time; in the same second ends and starts come before submissions."""
    state = _State(jobs, size)
    ends, leaves = 0, 1
    events: list[tuple[int, int, int]] = []
    for number, job in enumerate(jobs):
        while events and events[0][0] <= job.submit:
            now, kind, other = heappop(events)
            if kind == ends:
                state.end(other)
                continue
            state.leave(other)
            if jobs[other].run > 0:
                state.start(other, now)
                heappush(events, (now + jobs[other].run, ends, other))
                yield Started(other)
        yield Submitted(number, state.submit(number))
        heappush(events, (job.submit + job.wait, leaves, number))
