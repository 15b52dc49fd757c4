"""The simulated Slurm controller's mechanics: a discrete-event simulation without clock and without I/O.

Events go in (`add`, `end`, `advance`, `resize`, …), effects come out (`take_effects`), and the driver acts on them.
Who may ask for what is not decided here but in `controller`. Time only moves in `advance`; everything else happens at
`now`. After a change the scheduler runs at the end of the next `advance`, so `advance(now)` settles it.

Scheduling is FIFO by priority with EASY backfill over pinned, whole nodes (select/linear), planned with time limits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import count
from zlib import crc32

from penstock.api import JobSpec, JobState
from penstock.errors import NotFound
from penstock.planning.backfill import Request, backfill
from penstock.planning.profile import Profile
from penstock.slurm.mock.durations import Duration, from_script
from penstock.slurm.mock.model import (
    ClusterConfig,
    Effect,
    Ended,
    PartitionConfig,
    Requeued,
    Resized,
    SimJob,
    Started,
)

__all__ = ["Engine", "made_up_uid"]


class _Kind(IntEnum):
    """What falls due. At the same instant a job that is done has not hit its limit: the order here decides."""

    FINISH = 0
    LIMIT = 1
    WAKE = 2
    CALL = 3
    FORGET = 4


def made_up_uid(user: str) -> int:
    """A stable uid for a user who exists in the simulation only."""
    return 0 if user == "root" else 20000 + crc32(user.encode()) % 30000


class Engine:
    """One simulated cluster.

    `duration` tells how long a batch job will take when it starts, and None leaves its end to the driver (`end`).
    An allocation without a script runs until it is ended or reaches its limit.
    """

    def __init__(
        self,
        config: ClusterConfig | None = None,
        now: float = 0.0,
        *,
        duration: Duration | None = from_script,
        uid_of: Callable[[str], int] = made_up_uid,
    ) -> None:
        self.config = config or ClusterConfig()
        self.now = now
        self.uid_of = uid_of
        self.partitions: dict[str, PartitionConfig] = {p.name: p for p in self.config.partitions}
        self._names = self.config.node_names
        self._within = {p.name: self.config.nodes_of(p) for p in self.config.partitions}
        self.jobs: dict[int, SimJob] = {}  # the controller's memory
        self.records: dict[int, SimJob] = {}  # accounting: never forgets
        self._duration = duration
        self._ids = count(1)
        self._sequence = count()
        self._events: list[tuple[float, _Kind, int, int]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._effects: list[Effect] = []
        self._queue: dict[int, SimJob] = {}  # pending and eligible, now or at a known time
        self._waiting: dict[int, SimJob] = {}  # pending, held or with an open dependency
        self._running: dict[int, SimJob] = {}
        self.owner: dict[str, int] = {}
        self.out_of_order: dict[str, str] = {}  # node -> DOWN or DRAIN
        self._dirty = False

    # -- looking ---------------------------------------------------------------------------------------------------

    def job(self, job: int) -> SimJob:
        """The job in the controller's memory; NotFound when it is not there."""
        try:
            return self.jobs[job]
        except KeyError:
            raise NotFound(f"Invalid job id specified: {job}") from None

    def priority(self, job: SimJob) -> int:
        """The job's priority now; 0 while it is held."""
        if job.held:
            return 0
        if job.fixed_priority is not None:
            return job.fixed_priority
        since = job.submit if self.config.accrue_always else job.eligible
        until = job.start if job.start is not None else self.now
        age = 0.0 if since is None else min(max(until - since, 0.0) / self.config.max_age, 1.0)
        return 1 + int(self.config.weight_age * age) + self.config.qos.get(job.qos, 0)

    def next_event(self) -> float | None:
        """When something happens next by itself; None when nothing will."""
        if self._dirty:
            return self.now
        while self._events and not self._valid(*self._events[0]):
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    def take_effects(self) -> list[Effect]:
        """What has happened since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- time ------------------------------------------------------------------------------------------------------

    def advance(self, to: float) -> None:
        """Let time pass up to `to` (a time that has passed counts as now), and schedule whatever can start."""
        self._schedule()
        while self._events and self._events[0][0] <= to:
            self.now = max(self.now, self._events[0][0])
            while self._events and self._events[0][0] <= self.now:
                event = heapq.heappop(self._events)
                if self._valid(*event):
                    self._happen(event[1], event[3])
            self._schedule()
        self.now = max(self.now, to)

    def call_at(self, time: float, action: Callable[[], None]) -> None:
        """Call `action` when it is `time` (now, if that has passed), after the jobs that end then have ended.

        It may change the cluster; the scheduler runs once for all that happens at the same instant.
        """
        number = next(self._sequence)
        self._calls[number] = action
        self._at(max(time, self.now), _Kind.CALL, number)

    def _at(self, time: float, kind: _Kind, job: int) -> None:
        if time < math.inf:
            heapq.heappush(self._events, (time, kind, next(self._sequence), job))

    def _valid(self, time: float, kind: _Kind, _sequence: int, number: int) -> bool:
        """Events are not taken back when a job changes; they are recognised as outdated instead."""
        if kind is _Kind.CALL:
            return True
        job = self.jobs.get(number)
        if job is None:
            return False
        match kind:
            case _Kind.FINISH:
                return job.state.holds_nodes and job.finish_at is not None and job.finish_at <= time
            case _Kind.LIMIT:
                return job.state.holds_nodes and job.limit_at <= time
            case _Kind.WAKE:
                return job.state is JobState.PENDING
            case _Kind.FORGET:
                return job.end is not None

    def _happen(self, kind: _Kind, number: int) -> None:
        if kind is _Kind.CALL:
            self._calls.pop(number)()
            return
        job = self.jobs[number]
        match kind:
            case _Kind.FINISH:
                self.end(job, JobState.FAILED if job.finish_code else JobState.COMPLETED, job.finish_code)
            case _Kind.LIMIT:
                self.end(job, JobState.TIMEOUT)
            case _Kind.WAKE:
                self._dirty = True
            case _Kind.FORGET:
                del self.jobs[number]

    # -- changes ---------------------------------------------------------------------------------------------------

    def new_id(self) -> int:
        """The id for the next job."""
        return next(self._ids)

    def add(self, job: SimJob) -> None:
        """A job enters the queue."""
        self.jobs[job.id] = self.records[job.id] = job
        self._waiting[job.id] = job
        self.touch(job)

    def touch(self, job: SimJob) -> None:
        """The job's hold, dependency, begin time or limit was changed from outside: look at it afresh."""
        self._dirty = True
        if job.state.holds_nodes:
            self._at(max(job.limit_at, self.now), _Kind.LIMIT, job.id)
        elif job.id in self._queue:
            delayed = max(job.begin or 0.0, job.eligible or 0.0) > self.now
            if job.held or job.dependency or delayed:
                self._stop_queueing(job)

    def retime(self, job: SimJob, at: float, exit_code: int = 0) -> None:
        """A running job will now end by itself at `at` (a malleable job whose speed has changed)."""
        job.finish_at, job.finish_code = max(at, self.now), exit_code
        self._at(job.finish_at, _Kind.FINISH, job.id)

    def end(self, job: SimJob, state: JobState, exit_code: int = 0) -> None:
        """The job is over, running or pending; no effect when it has ended before."""
        if job.state.ended:
            return
        held_nodes = job.nodes if job.state.holds_nodes else ()
        self._free(held_nodes)
        for place in (self._queue, self._waiting, self._running):
            place.pop(job.id, None)
        if held_nodes:
            job.num_nodes = len(held_nodes)
        job.state, job.exit_code, job.end, job.planned = state, exit_code, self.now, None
        job.reason = {JobState.TIMEOUT: "TimeLimit", JobState.FAILED: "NonZeroExitCode"}.get(state, "None")
        self._at(self.now + self.config.min_job_age, _Kind.FORGET, job.id)
        self._strand_resizers(job)
        self._effects.append(Ended(job.id, state, held_nodes))
        self._dirty = True

    def resize(self, job: SimJob, nodes: tuple[str, ...]) -> None:
        """Give a running job exactly these nodes; those it gains must be free."""
        gained = tuple(n for n in nodes if n not in job.nodes)
        lost = tuple(n for n in job.nodes if n not in nodes)
        assert not any(n in self.owner for n in gained)
        if job.work is not None and job.work.speedup is not None:
            job.left -= (self.now - job.left_at) * job.work.speed(len(job.nodes))
            job.left_at = self.now
            self.retime(job, self.now + job.left / job.work.speed(len(nodes)), job.work.exit_code)
        self._free(lost)
        self.owner.update(dict.fromkeys(gained, job.id))
        job.nodes, job.num_nodes = nodes, len(nodes)
        self._effects.append(Resized(job.id, nodes, gained, lost))
        self._dirty = True

    def fail_node(self, name: str) -> None:
        """The node dies: its job ends as NODE_FAIL, or waits again if it may be requeued."""
        self._set_node(name, "DOWN")
        job = self.jobs[self.owner[name]] if name in self.owner else None
        if job is None:
            return
        if isinstance(job.spec, JobSpec) and job.spec.requeue:
            self._requeue(job)
        else:
            self.end(job, JobState.NODE_FAIL)

    def drain_node(self, name: str) -> None:
        """The node takes no more jobs; the one it has may finish."""
        self._set_node(name, "DRAIN")

    def resume_node(self, name: str) -> None:
        """The node is back in service."""
        self._set_node(name, None)

    def _set_node(self, name: str, trouble: str | None) -> None:
        if name not in self._names:
            raise NotFound(f"Invalid node name specified: {name}")
        self.out_of_order.pop(name, None)
        if trouble is not None:
            self.out_of_order[name] = trouble
        self._dirty = True

    def _requeue(self, job: SimJob) -> None:
        self._free(job.nodes)
        self._effects.append(Requeued(job.id, job.nodes))
        del self._running[job.id]
        job.state, job.nodes, job.start, job.finish_at = JobState.PENDING, (), None, None
        job.num_nodes = job.spec.nodes
        job.restarts += 1
        job.eligible = None
        self._waiting[job.id] = job
        self._strand_resizers(job)
        self._dirty = True

    def _stop_queueing(self, job: SimJob) -> None:
        self._waiting[job.id] = self._queue.pop(job.id)
        job.eligible = job.planned = None

    def _strand_resizers(self, job: SimJob) -> None:
        """Nothing is left to expand for those who wait to expand `job`, though their clause was fulfilled before."""
        for other in [j for j in self._queue.values() if j.expands == job.id]:
            self._stop_queueing(other)

    def _free(self, nodes: Iterable[str]) -> None:
        for name in nodes:
            del self.owner[name]

    # -- scheduling ------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Run the scheduler until nothing changes."""
        while self._dirty:
            self._dirty = False
            self._admit()
            if self._queue:
                self._pass()

    def _admit(self) -> None:
        """Move jobs that have become eligible into the queue, and say of the others why they are not."""
        for job in list(self._waiting.values()):
            wake = job.dependency.refresh(self.jobs.get, self.now)
            if wake is not None:
                self._at(wake, _Kind.WAKE, job.id)
            parent = None if job.expands is None else self.jobs.get(job.expands)
            if job.dependency.never or (job.expands is not None and (parent is None or not parent.state.holds_nodes)):
                job.reason = "DependencyNeverSatisfied"
            elif job.held:
                job.reason = "JobHeldAdmin" if job.held == "admin" else "JobHeldUser"
            elif job.dependency:
                job.reason = "Dependency"
            else:
                job.eligible, job.reason = max(self.now, job.begin or 0.0), "None"
                self._queue[job.id] = self._waiting.pop(job.id)
                if job.eligible > self.now:
                    self._at(job.eligible, _Kind.WAKE, job.id)

    def _limit(self, job: SimJob) -> float:
        """The limit the job would start with: a resizer's is what is left of the job that it expands."""
        if job.expands is None:
            return job.time_limit
        return max(self.jobs[job.expands].limit_at - self.now, 0.0)

    def _pass(self) -> None:
        profile = Profile(self._names, self.now)
        profile.claim(self.out_of_order, self.now)
        for running in self._running.values():
            # A job whose limit was lowered to this very instant still has its nodes until its event is processed.
            until = max(running.limit_at, math.nextafter(self.now, math.inf))
            profile.claim([n for n in running.nodes if n not in self.out_of_order], self.now, until)
        ready: list[Request] = []
        for job in sorted(self._queue.values(), key=lambda j: (-self.priority(j), j.submit, j.id)):
            job.planned = None
            partition = self.partitions[job.partition]
            limit = self._limit(job)
            if (job.eligible or 0.0) > self.now:
                job.reason = "BeginTime"
            elif limit > (partition.max_time or math.inf):
                job.reason = "PartitionTimeLimit"
            elif job.num_nodes > (partition.max_nodes or math.inf):
                job.reason = "PartitionNodeLimit"
            else:
                job.reason = "Priority"
                ready.append(Request(job.id, job.num_nodes, limit, self._within[job.partition], job.partition))
        plan = backfill(profile, ready, self.now)
        for number, slot in plan.reserved.items():
            self._queue[number].planned, self._queue[number].reason = slot.start, "Resources"
        for number, nodes in plan.starts.items():
            self._start(self._queue[number], nodes)
        if plan.starts and self._waiting:
            self._dirty = True  # a start can fulfil the dependency of another job

    def _start(self, job: SimJob, nodes: tuple[str, ...]) -> None:
        job.time_limit = self._limit(job)
        del self._queue[job.id]
        self._running[job.id] = job
        self.owner.update(dict.fromkeys(nodes, job.id))
        job.state, job.nodes, job.start, job.planned, job.reason = JobState.RUNNING, nodes, self.now, None, "None"
        self._at(job.limit_at, _Kind.LIMIT, job.id)
        work = job.work
        if work is None and self._duration is not None and isinstance(job.spec, JobSpec):
            work = job.work = self._duration(job.spec)
        if work is not None:
            job.left, job.left_at = work.seconds, self.now
            self.retime(job, self.now + work.seconds / work.speed(len(nodes)), work.exit_code)
        self._effects.append(Started(job.id, nodes))
