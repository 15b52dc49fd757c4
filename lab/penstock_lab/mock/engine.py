"""The simulated Slurm controller's mechanics: a discrete-event simulation without clock and without I/O.

Events go in (`add`, `end`, `advance`, `resize`, …), effects come out (`take_effects`), and the driver acts on them.
Who may ask for what is not decided here but in `controller`, who starts when in `scheduler`. Time only moves in
`advance`; everything else happens at `now`. After a change the scheduler runs at the end of the next `advance`, so
`advance(now)` settles it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import count
from zlib import crc32

from penstock.api import JobSpec, JobState
from penstock.errors import NotFound
from penstock.future.bits import BitProfile
from penstock.future.planner import Ask
from penstock_lab.mock.blocked import BlockedJobs
from penstock_lab.mock.dependency import Dependency
from penstock_lab.mock.durations import Duration, from_script
from penstock_lab.mock.events import Events, Kind
from penstock_lab.mock.failures import schedule_failures
from penstock_lab.mock.guard import Guards, parents_and_grace
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.licenses import Licenses
from penstock_lab.mock.limits import Enforcement
from penstock_lab.mock.machine import Machine
from penstock_lab.mock.model import ClusterConfig, Effect, Ended, PartitionConfig, Requeued, Resized, Signalled, Started
from penstock_lab.mock.priority import Priorities
from penstock_lab.mock.queue import Queue
from penstock_lab.mock.reservation_lifecycle import ReservationLifecycle
from penstock_lab.mock.reservations import Held, Reservations
from penstock_lab.mock.scheduler import Passes
from penstock_lab.mock.speedup import Work

__all__ = ["Engine", "made_up_uid"]


def made_up_uid(user: str) -> int:
    """A stable uid for a user who exists in the simulation only."""
    return 0 if user == "root" else 20000 + crc32(user.encode()) % 30000


class Engine:
    """One simulated cluster.

    `duration` tells what a batch job has to do when it starts, and None leaves its end to the driver (`end`), unless
    the job itself knows. An allocation without a script runs until it is ended or reaches its limit.
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
        self.jobs: dict[int, SimJob] = {}  # the controller's memory
        self.records: dict[int, SimJob] = {}  # accounting: never forgets
        self.records_of: dict[str, list[SimJob]] = {}  # the same by user
        self.machine = Machine(self.config, now)
        self.licenses = Licenses(self.config.licenses)
        self.reservations = Reservations()
        self.reservation_lifecycle = ReservationLifecycle(self)
        self.events = Events()
        self._guards = Guards(self)
        self._priorities = Priorities(self.config, now)
        self._duration = duration
        self._ids = count(1)
        self._effects: list[Effect] = []
        self._queue = Queue(self._priorities)  # pending and eligible now
        self._blocked = BlockedJobs(self)  # pending, and not to be planned for
        self._running: dict[int, SimJob] = {}
        self.enforcement = Enforcement(self.config, self.partitions, self._running)
        self._passes = Passes(
            self.config,
            self.machine,
            self._queue,
            self.licenses,
            self.reservations,
            self.enforcement,
            self._start,
            self.limit,
        )
        self._fresh: dict[int, SimJob] = {}  # in the queue since the last pass
        self._freed = False  # something may now start that could not at the last pass
        self._at_once = False  # what has changed is not to wait for the scheduler's cycle
        self._look_at = math.inf  # when that is, if something waits for it
        self._next_promise = math.inf
        if self.config.failures is not None:
            schedule_failures(self, self.config.failures)

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Mapping[str, int]:
        """Which job has a node."""
        return self.machine.owner

    @property
    def out_of_order(self) -> Mapping[str, str]:
        """Nodes that take no jobs: DOWN or DRAIN."""
        return self.machine.out_of_order

    @property
    def active(self) -> bool:
        """Whether a job runs, or waits for nothing but its turn or its time: whether the queue can still change."""
        return bool(self._running or self._queue or self._changed) or self.events.waking(self.jobs)

    @property
    def running(self) -> Collection[SimJob]:
        """The jobs that hold nodes."""
        return self._running.values()

    def job(self, job: int) -> SimJob:
        """The job in the controller's memory; NotFound when it is not there."""
        try:
            return self.jobs[job]
        except KeyError:
            raise NotFound(f"Invalid job id specified: {job}") from None

    def array(self, job: int) -> list[SimJob]:
        """All records of an array by its id, those first that stand for themselves; of another job itself.

        NotFound when the controller knows nothing of it.
        """
        self.job(job)
        return self.accounted(job)

    def accounted(self, job: int) -> list[SimJob]:
        """The same of accounting, which forgets nothing; none when there never was such a job."""
        found = self.records.get(job)
        if found is None or found.array is None or found.array.job != job:
            return [] if found is None else [found]
        return [*(self.records[m] for m in found.array.members), found]

    def work_of(self, spec: JobSpec, known: Work | None) -> Work | None:
        """What the job has to do, as is `known` or as its script says, if that is what this cluster goes by.

        `Infeasible` when directives for simulations make no sense; a cluster of real processes has none.
        """
        if self._duration is None:
            return known
        parents_and_grace(spec)
        return from_script(spec) if known is None and self._duration is from_script else known

    def shares(self) -> Mapping[str, float]:
        """Fair-share factors of the accounts that were used."""
        return self._priorities.shares()

    def priority(self, job: SimJob) -> int:
        """The job's priority now; 0 while it is held."""
        return int(self._priorities.of(job, self.now))

    def next_event(self) -> float | None:
        """When something happens next by itself; None when nothing will."""
        waits = self.config.cycle and not self._at_once and self._look_at < math.inf
        return self.now if self._changed and not waits else self.events.next(self.jobs)

    def take_effects(self) -> list[Effect]:
        """What has happened since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def limit(self, job: SimJob) -> float:
        """The limit the job would start with: a resizer's is what is left of the job that it expands."""
        if job.expands is None:
            return job.time_limit
        return max(self.jobs[job.expands].limit_at - self.now, 0.0)

    def ask(self, job: SimJob) -> Ask:
        """Which nodes the job asks for, and for how long."""
        return self._passes.ask(job)

    def available(self, held: Held | None = None) -> BitProfile:
        """Which nodes are free when of those that run, in general or for the jobs of a reservation; a copy."""
        return self._passes.profile(self.now) if held is None else self._passes.inside(held, self.now)

    def seconds_ahead(self, job: SimJob) -> float:
        """Node-seconds that eligible jobs of the job's partition with at least its priority ask for."""
        newest = replace(job, accrued=self.now)
        self._priorities.rank(newest)
        priority = self._priorities.of(newest, self.now)
        return sum(
            other.num_nodes * self.limit(other) * other.tasks
            for other in self._queue
            if other.partition == job.partition and self._priorities.of(other, self.now) >= priority
        )

    # -- time ------------------------------------------------------------------------------------------------------

    def advance(self, to: float) -> None:
        """Let time pass up to `to` (a time that has passed counts as now), and schedule whatever can start."""
        self._schedule()
        events, jobs = self.events, self.jobs
        while (due := events.due(to)) is not None:
            self.now = max(self.now, due)
            while (event := events.pop(self.now, jobs)) is not None:
                self._happen(*event)
            self._schedule()
        self.now = max(self.now, to)

    def call_at(self, time: float, action: Callable[[], None]) -> None:
        """Call `action` when it is `time` (now, if that has passed), after the jobs that end then have ended.

        It may change the cluster; the scheduler runs once for all that happens at the same instant.
        """
        self.events.call(max(time, self.now), action)

    def _happen(self, kind: Kind, number: int) -> None:
        if kind is Kind.CALL:
            self.events.action(number)()
            return
        job = self.jobs[number]
        match kind:
            case Kind.END:
                if job.finish_at is not None and job.finish_at <= self.now:
                    self.end(job, JobState.FAILED if job.finish_code else JobState.COMPLETED, job.finish_code)
                else:
                    self.end(job, JobState.TIMEOUT)
            case Kind.WAKE:
                if not self._blocked.wake(job):
                    self._freed = True
            case Kind.FORGET:
                self._forget(job)

    # -- changes ---------------------------------------------------------------------------------------------------

    def add(self, job: SimJob) -> None:
        """A job enters the queue, where it gets its id."""
        job.id = next(self._ids)
        if job.array is not None:
            job.array.job = job.id
        self._priorities.rank(job)
        self._record(job)
        self._at_once |= not job.batch
        self._wait(job)

    def _record(self, job: SimJob) -> None:
        self.jobs[job.id] = self.records[job.id] = job
        self.records_of.setdefault(job.user, []).append(job)

    def touch(self, job: SimJob) -> None:
        """The job's hold, dependency, begin time, priority or limit was changed from outside: look at it afresh."""
        if job.state.holds_nodes:
            self.machine.extend(job, self.now)
            self._expect(job)
            self._freed = True
        elif job.state is JobState.PENDING:
            eligible = job.eligible
            self._wait(job)
            delayed = max(job.begin or 0.0, eligible or 0.0) > self.now
            if not (job.held or job.dependency or delayed):
                job.eligible = eligible  # it keeps its age

    def release(self, job: SimJob) -> None:
        """The job's hold was lifted: look at it afresh, under priority/basic as the last one."""
        self._priorities.rank(job)
        self.touch(job)

    def end(self, job: SimJob, state: JobState, exit_code: int = 0) -> None:
        """The job is over, running or pending; no effect when it has ended before."""
        if job.state.ended:
            return
        held_nodes = job.nodes if job.state.holds_nodes else ()
        self._leave(job)
        if held_nodes:
            job.num_nodes = len(held_nodes)
        job.state, job.exit_code, job.end, job.planned = state, exit_code, self.now, None
        job.reason = {JobState.TIMEOUT: "TimeLimit", JobState.FAILED: "NonZeroExitCode"}.get(state, "None")
        if self.config.min_job_age:  # 0: nothing is ever purged (slurm.conf.5)
            self.events.at(self.now + self.config.min_job_age, Kind.FORGET, job.id)
        self._strand_resizers(job)
        self.reservation_lifecycle.left(job)
        self._effects.append(Ended(job.id, state, held_nodes))

    def strike(self, job: SimJob, tasks: Collection[int]) -> None:
        """These tasks of an array that waits are not to begin; nothing is kept of them but of the last ones."""
        assert job.array is not None
        left = [task for task in job.array.waiting if task not in tasks]
        if not left:
            self.end(job, JobState.CANCELLED)
        elif len(left) < len(job.array.waiting):
            job.array.waiting[:] = left
            self._freed = True
            self._blocked.notify(job)

    def resize(self, job: SimJob, nodes: tuple[str, ...]) -> None:
        """Give a running job exactly these nodes; those it gains must be free."""
        gained = tuple(n for n in nodes if n not in job.nodes)
        lost = tuple(n for n in job.nodes if n not in nodes)
        assert not any(n in self.machine.owner for n in gained)
        self._account(job)
        job.change_speed(self.now, len(nodes))
        self._expect(job)
        bits = self.machine.bits
        if lost:
            self.machine.give_back(job, bits.mask(lost), self.now)
        if gained:
            self.machine.take(job, bits.mask(gained), self.now)
        job.nodes, job.num_nodes = nodes, len(nodes)
        self._effects.append(Resized(job.id, nodes, gained, lost))
        self._freed = True

    def signal(self, job: SimJob, number: int) -> None:
        """The driver sends a signal to its batch script."""
        self._effects.append(Signalled(job.id, number))

    def requeue(self, job: SimJob) -> None:
        """The job goes back into the queue under its id, from wherever it is."""
        lost = job.nodes if job.state.holds_nodes else ()
        self._leave(job)
        self._effects.append(Requeued(job.id, lost))
        job.state, job.nodes, job.start, job.end, job.finish_at = JobState.PENDING, (), None, None, None
        job.num_nodes, job.exit_code = job.spec.nodes, 0
        job.restarts += 1
        job.accrued = None
        if self.config.requeue_delay:
            job.begin = self.now + self.config.requeue_delay
        self._wait(job)
        self._strand_resizers(job)

    def fail_node(self, name: str) -> None:
        """The node dies: its job ends as NODE_FAIL, or waits again if it may be requeued."""
        self._mark_node(name, "DOWN")
        job = self.jobs[self.owner[name]] if name in self.owner else None
        if job is None:
            return
        if isinstance(job.spec, JobSpec) and job.spec.requeue:
            self.requeue(job)
        else:
            self.end(job, JobState.NODE_FAIL)

    def drain_node(self, name: str) -> None:
        """The node takes no more jobs; the one it has may finish."""
        self._mark_node(name, "DRAIN")

    def resume_node(self, name: str) -> None:
        """The node is back in service."""
        self._mark_node(name, None)

    # -- mechanics -------------------------------------------------------------------------------------------------

    @property
    def _changed(self) -> bool:
        return self._freed or bool(self._fresh) or self._blocked.restless

    def begin_work(self, job: SimJob) -> None:
        """The job, which has its nodes, begins its work."""
        job.begin_work(self.now)
        self._expect(job)

    def _expect(self, job: SimJob) -> None:
        """Note when the job will end, by itself or by its limit."""
        end = job.limit_at if job.finish_at is None else min(job.finish_at, job.limit_at)
        self.events.at(max(end, self.now), Kind.END, job.id)

    def replan(self) -> None:
        """Something may now start that could not before."""
        self._freed = True

    def _mark_node(self, name: str, trouble: str | None) -> None:
        self.machine.mark(name, trouble)
        self._freed = True

    def _account(self, job: SimJob) -> None:
        """Write down what the job has used since it was written down last."""
        used = len(job.nodes) * (self.now - job.accounted)
        self._priorities.used(job.account, used, self.now)
        job.node_seconds += used
        job.accounted = self.now

    def _leave(self, job: SimJob) -> None:
        """The job leaves its nodes, or its place among those that wait."""
        if job.state.holds_nodes:
            self._account(job)
            self.machine.give_back(job, job.mask, self.now)
            self.licenses.give_back(job.licenses)
            del self._running[job.id]
            if job.array is not None:
                job.array.running.discard(job.id)
        elif job.id in self._queue:
            self._queue.remove(job)
            self._fresh.pop(job.id, None)
        else:
            self._blocked.leave(job)
        self._freed = True
        self._blocked.notify(job)

    def _forget(self, job: SimJob) -> None:
        """The controller's memory of the job ends; an array's own record goes last."""
        if job.end is None or self.now < job.end + self.config.min_job_age:  # it was requeued, and has ended again
            return
        array = job.array
        if array is not None and job.id == array.job and any(m in self.jobs for m in array.members):
            # A shorter time than a second might not move the clock at all.
            self.events.at(self.now + max(self.config.min_job_age, 1.0), Kind.FORGET, job.id)
            return
        del self.jobs[job.id]
        self._blocked.forget(job)

    def _strand_resizers(self, job: SimJob) -> None:
        """Nothing is left to expand for those who wait to expand `job`, though their clause was fulfilled before."""
        for number in self._blocked.resizers(job):
            if number in self._queue and self.jobs[number].expands == job.id:
                self._wait(self.jobs[number])

    def _wait(self, job: SimJob) -> None:
        """The job waits; if it had its turn before, it has lost it."""
        if job.id in self._queue:
            self._queue.remove(job)
            self._fresh.pop(job.id, None)
            self._freed = True
        self._blocked.enter(job)

    # -- scheduling ------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Run the scheduler until nothing changes, now or at its next cycle."""
        if self._changed and self.config.cycle and not self._at_once:
            if self._look_at == math.inf:
                self._look_at = (math.floor(self.now / self.config.cycle) + 1) * self.config.cycle
                self.call_at(self._look_at, self._look)
            return
        self._at_once = False
        while self._changed:
            for job in self._blocked.admit():
                self._queue.add(job, self.now)
                self._fresh[job.id] = job
            if self._priorities.due(self.now):
                for job in self._running.values():
                    self._account(job)
            if self._queue.refile(self.now):
                self._freed = True
            fresh, self._fresh = list(self._fresh.values()), {}
            freed, self._freed = self._freed, False
            if freed:
                self._passes.full(self.now)
            elif fresh:
                self._passes.additions(fresh, self.now)
        promise = self._passes.next_promise(self.now)
        if promise < self._next_promise or self._next_promise <= self.now:
            self._next_promise = promise
            if promise < math.inf:
                self.call_at(promise, self.replan)

    def _look(self) -> None:
        """The scheduler's cycle."""
        self._at_once, self._look_at = self._changed, math.inf

    def _start(self, job: SimJob, mask: int) -> None:
        """The job, or the next task of an array, begins on these nodes."""
        job = self._split(job)
        if job.id in self._queue:
            self._queue.remove(job)
        self._running[job.id] = job
        job.time_limit = self.limit(job)
        job.state, job.start, job.planned, job.reason = JobState.RUNNING, self.now, None, "None"
        job.accounted = self.now
        job.nodes, job.mask = (), 0
        self.machine.take(job, mask, self.now)
        self.licenses.take(job.licenses)
        if job.array is not None:
            job.array.running.add(job.id)
        self._effects.append(Started(job.id, job.nodes))
        self._blocked.notify(job)
        try:
            if job.work is None and self._duration is not None and isinstance(job.spec, JobSpec):
                job.work = self._duration(job.spec)
            if self._duration is None or not self._guards.keeps(job):
                job.begin_work(self.now)
        finally:
            self._expect(job)  # whatever there is to say against its script: its limit ends it

    def _split(self, job: SimJob) -> SimJob:
        """The job itself, or of an array the record for its next task; the last one to start takes the array's own."""
        if not job.waits_as_array or job.array is None:
            return job
        array = job.array
        number = array.waiting.pop(0)
        if not array.waiting:
            job.task = number
            return job
        task = replace(job, id=next(self._ids), task=number, dependency=Dependency())
        self._record(task)
        array.members.append(task.id)
        return task
