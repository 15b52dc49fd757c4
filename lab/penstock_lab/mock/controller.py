"""What a user may ask of the simulated Slurm, and the answers that real Slurm gives; who may ask for what.

Everything here happens at the engine's `now` and takes no time. Infeasible, NotFound and NotPermitted carry Slurm's own
words, so that logs of both backends read alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.api import (
    AccountingRecord,
    Allocation,
    JobSpec,
    JobState,
    JobTexts,
    Reservation,
    ReservationSpec,
    StartEstimate,
    Step,
)
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted
from penstock.future.bits import lowest
from penstock.future.planner import Ask
from penstock.slurm.records import of_array
from penstock.values import merging
from penstock_lab.mock.admission import check_reservation, checked_dependency, make_job, required_nodes
from penstock_lab.mock.begin import begin_time
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.speedup import Work

__all__ = ["Controller"]


class Controller:
    """The door to an engine. Every method takes the name of the user who asks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # -- submission ------------------------------------------------------------------------------------------------

    def submit(self, user: str, spec: JobSpec, work: Work | None = None) -> int:
        """A batch job enters the queue; its id. `work` overrules what its script says that it has to do."""
        job = make_job(self.engine, user, spec, work)
        self.engine.add(job)
        return job.id

    def allocate(self, user: str, spec: Allocation) -> int:
        """A request for nodes without a script enters the queue; its id. It is granted when it runs."""
        job = make_job(self.engine, user, spec)
        self.engine.add(job)
        return job.id

    def estimate(self, user: str, spec: JobSpec) -> StartEstimate:
        """`sbatch --test-only`: when enough nodes are free of those that run, put off by all the node-seconds that
        others ahead of it in its partition's queue ask for, spread over the whole partition, as Slurm does it.

        Infeasible: it never could start. NotNow: no time can be named, because a licence is in use or nodes are down or
        reserved. A job that takes a range of nodes starts when the fewest are free.
        """
        engine = self.engine
        job = make_job(engine, user, spec)
        held = engine.reservations.get(job.reservation)
        ask = self._possible(job)
        if not engine.licenses.available(job.licenses):
            raise NotNow("allocation failure: Licenses required by job are not currently available")
        if held is not None and not held.flex:
            ask = ask._replace(duration=min(ask.duration, held.end - max(held.start, engine.now)))
        profile = engine.available(held)
        found = ask.earliest(profile, max(engine.now, job.begin or 0.0))
        if found is None:
            raise NotNow("allocation failure: Requested node configuration is not available")
        ahead = engine.seconds_ahead(job) / engine.machine.within[job.partition].bit_count()
        more = profile.common(found[0], found[0] + ask.duration, ask.within) & ~found[1]
        mask = found[1] | lowest(more, min(job.num_nodes - found[1].bit_count(), more.bit_count()))
        nodes = engine.machine.bits.named(mask)
        return StartEstimate(found[0] + ahead, nodes, len(nodes) * engine.config.cpus, job.partition)

    # -- changes ---------------------------------------------------------------------------------------------------

    def merge(self, user: str, resizer: int, into: int) -> None:
        """`scontrol update jobid=RESIZER NumNodes=0`: its nodes go to `into`, and it ends as COMPLETED.

        On a release whose slurmctld does not survive this, the simulated one does not, either: whoever sends it there
        takes this process along (SystemExit).
        """
        engine = self.engine
        if merging.kills(engine.config.version):
            raise SystemExit(f"slurmctld {engine.config.site().release}: segmentation fault in a job expansion")
        b = engine.records.get(resizer) or engine.job(resizer)
        self._may(user, b)
        a = engine.job(into)
        if b.merged_into == into and b.merged <= set(a.nodes) and a.state is JobState.RUNNING:
            return
        if b.state.ended:
            raise Infeasible(f"Job {resizer} has already completed ({b.state}), its nodes are not with {into}")
        if b.state is JobState.PENDING and a.state is JobState.RUNNING:
            raise NotNow(f"job {resizer} has not been granted its nodes yet")
        if b.state is not JobState.RUNNING or a.state is not JobState.RUNNING:
            raise Infeasible(f"Job is no longer or not yet running: {resizer} is {b.state}, {into} is {a.state}")
        if b.expands != into:
            raise Infeasible(f"Job {resizer} was not allocated to expand {into}")
        if not engine.config.permit_job_expansion:
            raise Infeasible("Requested operation not supported on this system: job expansion is not permitted")
        if engine.config.contain:
            raise Infeasible(f"Job step already exists: {resizer} has an extern step (PrologFlags=Contain)")
        moved = b.nodes
        engine.end(b, JobState.COMPLETED)
        b.nodes, b.merged, b.merged_into = (), frozenset(moved), into
        engine.resize(a, a.nodes + moved)

    def shrink(self, user: str, job: int, keep: Collection[str]) -> None:
        """`scontrol update jobid=JOB NodeList=KEEP`: the other nodes are free at once."""
        found, wanted = self.engine.job(job), set(keep)
        self._may(user, found)
        if found.state is not JobState.RUNNING:
            raise Infeasible(f"Job {job} does not run: it is {found.state}")
        if wanted == set(found.nodes):
            return
        if not wanted <= set(found.nodes):
            raise Infeasible(f"Invalid node name specified: {sorted(wanted - set(found.nodes))} not with job {job}")
        if not wanted or (found.batch and found.nodes[0] not in wanted):
            raise Infeasible(f"Job {job} must keep the host of its batch script, {found.nodes[0]}")
        if self.engine.config.disable_job_shrink:
            raise Infeasible("Requested operation not supported on this system: disable_job_shrink is set")
        self.engine.resize(found, tuple(n for n in found.nodes if n in wanted))

    def cancel(self, user: str, job: int, tasks: Collection[int] = ()) -> None:
        """`scancel JOB`, `scancel JOB_[TASKS]`. A job that only accounting remembers has ended: nothing to do."""
        found = self.engine.records.get(job)
        if found is None:
            raise NotFound(f"Invalid job id specified: {job}")
        for each in self.engine.array(job) if job in self.engine.jobs else [found]:
            self._may(user, each)
            if tasks and each.waits_as_array:
                self.engine.strike(each, tasks)
            elif not tasks or each.task in tasks:
                self.engine.end(each, JobState.CANCELLED)

    def hold(self, user: str, job: int) -> None:
        """`scontrol hold JOB`; of an array all that waits. Who is not the owner holds as an administrator."""
        waiting = self._waiting(user, job)
        if not waiting:
            raise Infeasible(f"Job is no longer pending execution: {job}")
        for found in waiting:
            self._hold(user, found)
            self.engine.touch(found)

    def release(self, user: str, job: int) -> None:
        """`scontrol release JOB`; an administrator's hold is not the owner's to lift."""
        for found in self._waiting(user, job):
            if found.held == "admin" and not self._operator(user):
                raise NotPermitted(f"Access/permission denied: job {job} was held by an administrator")
            if found.held:
                found.held, found.fixed_priority = "", None
                self.engine.release(found)

    def requeue(self, user: str, job: int) -> None:
        """`scontrol requeue JOB`; of an array every task that has begun."""
        for found in self.engine.array(job):
            self._may(user, found)
            if not isinstance(found.spec, JobSpec):
                raise Infeasible(f"Only batch jobs are accepted or processed: {job}")
            if not found.spec.requeue:
                raise Infeasible(f"Requested operation is presently disabled: {job} was submitted not to be requeued")
            if found.state is not JobState.PENDING:
                self.engine.requeue(found)

    def signal(self, user: str, job: int, number: int) -> None:
        """`scancel --batch --signal=NUMBER JOB`."""
        found = self.engine.job(job)
        self._may(user, found)
        if found.state is not JobState.RUNNING or not found.batch:
            raise Infeasible(f"Job {job} does not run a script: it is {found.state}")
        self.engine.signal(found, number)

    def update(
        self,
        user: str,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
        nodelist: Collection[str] | None = None,
        reset_age: bool = False,
        nice: int | None = None,
        nodes: int | None = None,
        reservation: str | None = None,
    ) -> None:
        """`scontrol update`: all of it or nothing."""
        found, operator = self.engine.job(job), self._operator(user)
        self._may(user, found)
        if found.state.ended:
            raise Infeasible(f"Job {job} has already completed ({found.state})")
        pending = found.state is JobState.PENDING
        only_pending = (dependency, begin, nodelist, nodes, reservation)
        if not pending and (reset_age or any(new is not None for new in only_pending)):
            raise Infeasible(f"Job {job} is no longer pending execution")
        if time_limit is not None and time_limit > found.time_limit and not operator:
            allowed = self.engine.partitions[found.partition].max_time or math.inf
            if not pending or time_limit > allowed:
                raise NotPermitted(f"Access/permission denied: only an operator may raise the limit of job {job}")
        if priority is not None and priority > self.engine.priority(found) and not operator:
            raise NotPermitted(f"Access/permission denied: only an operator may raise the priority of job {job}")
        if nice is not None and nice < 0 and not operator:
            raise NotPermitted(f"Access/permission denied: only an operator may give job {job} a nice value below 0")
        parsed = (
            None if dependency is None else checked_dependency(self.engine, dependency, job, found.partition, found.qos)
        )
        if priority and found.held:
            raise Infeasible(f"Job is in held state; pending scheduler release: {job}")
        required = None if nodelist is None else required_nodes(self.engine, nodelist, found.partition)
        begins = None if begin is None else begin_time(begin, self.engine.now)
        spec = found.spec if nodes is None else self._resized(found, nodes)
        if reservation:
            check_reservation(self.engine, found, reservation)
        if time_limit is not None:
            found.time_limit = time_limit
        if nodes is not None:
            found.spec, found.num_nodes = spec, nodes
        if reservation is not None and isinstance(found.spec, JobSpec):
            found.spec = replace(found.spec, reservation=reservation or None)
        if parsed is not None:
            found.dependency = parsed
        if reset_age and found.accrued is not None:
            found.accrued = self.engine.now
        if begins is not None:
            found.begin = max(begins, self.engine.now)
        if required is not None:
            found.required = required
        if nice is not None:
            found.nice = nice
        if priority is not None:
            found.fixed_priority = priority or None
            if not priority:  # as in Slurm, that is a hold
                self._hold(user, found)
        self.engine.touch(found)

    # -- reservations ----------------------------------------------------------------------------------------------

    def reserve(self, user: str, spec: ReservationSpec) -> Reservation:
        """`scontrol create reservation`: operators only, as Slurm words it."""
        engine = self.engine
        if not self._operator(user):
            raise NotPermitted("Error creating the reservation: Invalid user id")
        partition = spec.partition or engine.config.partitions[0].name
        if partition not in engine.partitions:
            raise Infeasible("Error creating the reservation: Invalid partition name specified")
        spec = replace(spec, partition=partition)
        running = engine.machine.profile(engine.now)
        held = engine.reservations.add(spec, engine.now, engine.machine.bits, running, engine.machine.within[partition])
        engine.reservation_lifecycle.keep(held)
        return held.view(engine.now)

    def move_reservation(
        self, user: str, name: str, start: float, duration: float, nodelist: Sequence[str]
    ) -> Reservation:
        """`scontrol update reservation=NAME` before it has begun."""
        engine = self.engine
        if not self._operator(user):
            raise NotPermitted("Error updating the reservation: Invalid user id")
        held = engine.reservations.get(name)
        if held is None:
            raise NotFound("Error updating the reservation: Requested reservation is invalid")
        if held.start <= engine.now:
            raise Infeasible("Error updating the reservation: Invalid time specified")
        spec = replace(held.spec, start=start, duration=duration, nodes=len(nodelist), nodelist=tuple(nodelist))
        running, within = engine.machine.profile(engine.now), engine.machine.within[spec.partition or ""]
        moved = engine.reservations.move(held, spec, engine.now, engine.machine.bits, running, within)
        engine.reservation_lifecycle.keep(moved)
        return moved.view(engine.now)

    def unreserve(self, user: str, name: str) -> None:
        """`scontrol delete reservation=NAME`; one that is not there is no error."""
        held = self.engine.reservations.get(name)
        own = held is not None and "USER_DELETE" in held.flags and user in held.spec.users
        if not self._operator(user) and not own:
            raise NotPermitted("Invalid user id")
        if held is None:
            return
        if self.engine.reservation_lifecycle.wanted(held):
            raise NotNow("Requested reservation is in use")
        self.engine.reservation_lifecycle.end(held)

    # -- looking ---------------------------------------------------------------------------------------------------

    def steps(self, job: int) -> list[Step]:
        """The steps that Slurm itself makes; those of mpiexec and srun only a driver with real processes knows."""
        found = self.engine.jobs.get(job)
        if found is None or not found.state.holds_nodes:
            return []
        steps = [Step(job, "batch", found.nodes[:1])] if found.batch else []
        if self.engine.config.contain:
            steps.append(Step(job, "extern", found.nodes))
        return steps

    def find(self, uid: int, name: str) -> list[int]:
        """The user's jobs of this name in the controller's memory."""
        return sorted(j.id for j in self.engine.jobs.values() if j.uid == uid and j.name == name)

    def texts(self, ids: Collection[int]) -> dict[int, JobTexts]:
        """What users wrote about these jobs, of those in the controller's memory."""
        return {number: self.engine.jobs[number].texts() for number in ids if number in self.engine.jobs}

    def history(self, user: str, ids: Collection[int], name: str | None, since: float | None) -> list[AccountingRecord]:
        """Accounting: the given ids whoever owns them, else the user's own; all given conditions hold."""

        def told(job: SimJob) -> bool:
            if not ids and not job.was_eligible(self.engine.now):
                return False  # sacct finds such a job by its number alone
            late = since is None or job.submit >= since or job.end is None or job.end >= since
            return late and (name is None or (job.name == name and job.user == user))

        if not ids:
            return [job.record() for job in self.engine.records_of.get(user, []) if told(job)]
        tasks = {i: [job.record() for job in self.engine.accounted(i) if told(job)] for i in sorted(set(ids))}
        return [of_array(i, found) if len(found) > 1 else found[0] for i, found in tasks.items() if found]

    def _resized(self, job: SimJob, nodes: int) -> JobSpec | Allocation:
        """What a pending job asks for with so many nodes; `Infeasible` where there are not so many."""
        partition = self.engine.partitions[job.partition]
        most = min(self.engine.machine.within[job.partition].bit_count(), partition.max_nodes or math.inf)
        if not 1 <= nodes <= most:
            raise Infeasible(f"Node count specification invalid for job {job.id}: {nodes}")
        if isinstance(job.spec, JobSpec):
            return replace(job.spec, nodes=nodes, min_nodes=None)
        return replace(job.spec, nodes=nodes)

    def _possible(self, job: SimJob) -> Ask:
        """What the job asks for; `Infeasible` when it never could start, however long it waits."""
        engine = self.engine
        partition = engine.partitions[job.partition]
        if job.time_limit > (partition.max_time or math.inf):
            raise Infeasible("allocation failure: Requested time limit is invalid (missing or exceeds some limit)")
        if job.num_nodes > (partition.max_nodes or math.inf):
            raise Infeasible("allocation failure: Node count specification invalid")
        ask, held = engine.ask(job), engine.reservations.get(job.reservation)
        if ask.out_of(ask.within if held is None or held.flex else ask.within & held.mask) is None:
            raise Infeasible("allocation failure: Requested node configuration is not available")
        return ask

    @staticmethod
    def _hold(user: str, job: SimJob) -> None:
        """Whoever is not the owner holds as an administrator, and the owner makes nothing less of that."""
        if user != job.user:
            job.held = "admin"
        elif not job.held:
            job.held = "user"

    def _waiting(self, user: str, job: int) -> list[SimJob]:
        """The job if it is pending, of an array all of it that is."""
        found = self.engine.array(job)
        for each in found:
            self._may(user, each)
        return [each for each in found if each.state is JobState.PENDING]

    def _operator(self, user: str) -> bool:
        return user == "root" or user in self.engine.config.operators

    def _may(self, user: str, job: SimJob) -> None:
        if user != job.user and not self._operator(user):
            raise NotPermitted(f"Access/permission denied: job {job.id} belongs to {job.user}, not to {user}")
