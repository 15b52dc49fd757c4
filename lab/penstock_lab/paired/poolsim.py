"""A pool of tasks over the jobs of a simulated Slurm: what members do, without processes. Pure.

A member is one node of a job. It joins some seconds after its job's start, takes a task on each core as long as one
waits that would end in time, and leaves when it has been idle for so long; its job ends with its last member.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.api import JobState
from penstock_lab.mock.engine import Engine
from penstock_pool.auto.choose import JOIN, RESERVE
from penstock_pool.demand import Demand, MemberLoad, TaskBatch, TaskRunTimes, coalesced
from penstock_pool.model import idle_share

__all__ = ["PoolWorkload", "SimPool", "SimTask", "tasks_of"]

_KIND: Final = ("task",)


@dataclass(frozen=True, slots=True)
class SimTask:
    """A task of one core: what it takes, and what its user says that it takes at most (s)."""

    seconds: float
    said: float


@dataclass(frozen=True, slots=True)
class PoolWorkload:
    """Phases of tasks. A phase comes `after` seconds from the beginning, or, where that is None, when the phase before
    has ended."""

    name: str
    phases: tuple[tuple[float | None, tuple[SimTask, ...]], ...]

    @property
    def work(self) -> float:
        """Core-seconds."""
        return sum(task.seconds for _, tasks in self.phases for task in tasks)


@dataclass(slots=True)
class _Member:
    job: int
    number: int
    ends: float
    cores: int
    running: int = 0
    idle_since: float = 0.0
    since: float = 0.0
    joined: float = 0.0
    idled: float = 0.0
    busy: float = 0.0  # seconds with a task
    leaving: bool = False


@dataclass
class SimPool:
    """`idle`: seconds without a task after which a member leaves; `gives_back`: see `PoolMember`."""

    engine: Engine
    workload: PoolWorkload
    cores: int
    idle: float
    gives_back: bool
    members: dict[tuple[int, int], _Member] = field(default_factory=dict)
    waiting: deque[SimTask] = field(default_factory=deque)
    held: float = 0.0  # node-seconds of its jobs
    busy: float = 0.0  # node-seconds in which a task ran there
    core_busy: float = 0.0
    over: float = 0.0  # node-seconds of members beyond `most`
    most: int = 0
    done: int = 0
    finished: float | None = None

    def __post_init__(self) -> None:
        self.begin = self.engine.now
        self._heap: list[tuple[float, int, float, tuple[int, int]]] = []
        self._order = 0
        self._run_times = TaskRunTimes()
        self._ends: dict[tuple[int, int], list[float]] = {}
        self.phase = 0
        self._seen_at = self.begin
        self._left = 0
        self._joining: dict[int, float] = {}
        self._jobs: set[int] = set()
        self._total = sum(len(tasks) for _, tasks in self.workload.phases)
        self._arrivals()

    # What happens.

    def next_event(self) -> float:
        """When something happens here by itself."""
        due = [self._heap[0][0]] if self._heap else []
        due += self._joining.values()
        due += [m.idle_since + self._patience(m) for m in self.members.values() if not m.running]
        due += [m.ends for m in self.members.values() if not m.running]
        if self.phase < len(self.workload.phases) and (after := self.workload.phases[self.phase][0]) is not None:
            due.append(self.begin + after)
        return min(due, default=math.inf)

    def watch(self, job: int) -> None:
        """This job of the simulated Slurm joins when it has started."""
        self._jobs.add(job)

    def step(self) -> None:
        """What happens at this instant."""
        now = self.engine.now
        self.over += max(len(self.members) - self.most, 0) * (now - self._seen_at)
        self._seen_at = now
        for number in list(self._jobs):
            job = self.engine.jobs.get(number)
            if job is None or job.state.ended:
                self._jobs.discard(number)
            elif job.state is JobState.RUNNING and number not in self._joining and not self._of(number):
                assert job.start is not None
                self._joining[number] = job.start + JOIN
        for number, at in list(self._joining.items()):
            if at <= now:
                del self._joining[number]
                self._join(number, now)
        while self._heap and self._heap[0][0] <= now:
            _, _, took, key = heapq.heappop(self._heap)
            self._run_times.saw(_KIND, took)
            self._ended(key, now)
        self._arrivals()
        self._start(now)
        for key, member in list(self.members.items()):
            if not member.running and (member.leaving or self._leaves(member, now)):
                self._leave(key, now)

    def drain(self, job: int) -> None:
        """Its members take no more tasks."""
        for member in self._of(job):
            member.leaving = True

    def _of(self, job: int) -> list[_Member]:
        return [m for (number, _), m in self.members.items() if number == job]

    def _join(self, number: int, now: float) -> None:
        job = self.engine.jobs.get(number)
        if job is None or job.state is not JobState.RUNNING:
            return
        for index in range(len(job.nodes)):
            key = (number, index)
            self.members[key] = _Member(number, index, job.limit_at - RESERVE, self.cores, idle_since=now, joined=now)
            self._ends[key] = []

    def _start(self, now: float) -> None:
        for key, member in self.members.items():
            while not member.leaving and member.running < member.cores and self.waiting:
                task = self._fitting(member, now)
                if task is None:
                    break
                if not member.running:
                    member.since = now
                    member.idled += now - member.idle_since
                member.running += 1
                self._order += 1
                heapq.heappush(self._heap, (now + task.seconds, self._order, task.seconds, key))
                self._ends[key].append(now + task.seconds)
                self.core_busy += task.seconds

    def _fitting(self, member: _Member, now: float) -> SimTask | None:
        """Tasks of a workload are alike in what is said of them: the first stands for all."""
        return self.waiting.popleft() if now + self.waiting[0].said <= member.ends else None

    def _ended(self, key: tuple[int, int], now: float) -> None:
        member = self.members[key]
        member.running -= 1
        self.done += 1
        self._left -= 1
        self._ends[key] = [end for end in self._ends[key] if end > now]
        if not member.running:
            member.idle_since = now
            member.busy += now - member.since
            self.busy += now - member.since
        if self.done == self._total:
            self.finished = now

    def _leaves(self, member: _Member, now: float) -> bool:
        if self.waiting and self.gives_back and now + self.waiting[0].said > member.ends:
            return True
        return now >= min(member.ends, member.idle_since + self._patience(member))

    def _patience(self, member: _Member) -> float:
        lasted = member.idle_since - member.joined
        return min(self.idle, idle_share(lasted, member.idled)) if self.gives_back else self.idle

    def _leave(self, key: tuple[int, int], now: float) -> None:
        del self.members[key]
        if not self._of(key[0]):
            job = self.engine.jobs[key[0]]
            assert job.start is not None
            self.held += len(job.nodes) * (now - job.start)
            self.engine.end(job, JobState.COMPLETED)
            self._jobs.discard(key[0])

    def end_all(self) -> None:
        """Everything has ended: what is left of its jobs goes."""
        for key in list(self.members):
            self._leave(key, self.engine.now)

    def _arrivals(self) -> None:
        now = self.engine.now
        while self.phase < len(self.workload.phases):
            after, tasks = self.workload.phases[self.phase]
            if self._left if after is None else now < self.begin + after:
                return
            self.waiting.extend(tasks)
            self._left += len(tasks)
            self.phase += 1

    # What is told.

    def demand(self) -> Demand:
        """As the scheduler of a pool tells it."""
        now = self.engine.now
        batches = []
        if self.waiting:
            said = self.waiting[0].said
            seconds = self._run_times.expected(_KIND, said)
            batches = [TaskBatch(1.0, 0, 0, seconds, len(self.waiting), said)]
        members = []
        for key, member in self.members.items():
            lefts = [max(end - now, 0.0) for end in self._ends[key]]
            members.append(
                MemberLoad(
                    str(member.job),
                    str(key),
                    float(member.cores),
                    None,
                    0,
                    max(member.ends - now, 0.0),
                    sum(lefts),
                    max(lefts, default=0.0),
                    member.leaving,
                )
            )
        return Demand(now, coalesced(batches), (), tuple(members))


def tasks_of(seconds: Iterable[float], said: float) -> tuple[SimTask, ...]:
    """Tasks of which the same is said."""
    return tuple(SimTask(min(each, said), said) for each in seconds)
