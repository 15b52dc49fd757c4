"""What a user may ask of the simulated Slurm, and the answers that real Slurm gives: admission and permissions.

Everything here happens at the engine's `now` and takes no time. Infeasible, NotFound and NotPermitted carry Slurm's own
words, so that logs of both backends read alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime

from penstock.api import AccountingRecord, Allocation, JobSpec, JobState, Step
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted
from penstock.slurm.mock.dependency import Dependency, parse
from penstock.slurm.mock.engine import Engine
from penstock.slurm.mock.jobs import SimJob
from penstock.slurm.mock.speedup import Work

__all__ = ["Controller"]

# From this release on a dependency on the outcome of a forgotten job is refused; before, it was dropped silently.
_REFUSES_FORGOTTEN_PARENTS = (23, 2)


class Controller:
    """The door to an engine. Every method takes the name of the user who asks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # -- submission ------------------------------------------------------------------------------------------------

    def submit(self, user: str, spec: JobSpec, work: Work | None = None) -> int:
        """A batch job enters the queue; its id. `work` overrules what its script says that it has to do."""
        if not spec.script.startswith("#!"):
            raise Infeasible("This does not look like a batch script: its first line must start with #!")
        return self._enter(user, spec, spec.dependency, spec.begin, spec.hold, work)

    def allocate(self, user: str, spec: Allocation) -> int:
        """A request for nodes without a script enters the queue; its id. It is granted when it runs."""
        dependency = None if spec.expands is None else f"expand:{spec.expands}"
        return self._enter(user, spec, dependency, None, False, None)

    def _enter(
        self,
        user: str,
        spec: JobSpec | Allocation,
        dependency: str | None,
        begin: str | None,
        hold: bool,
        work: Work | None,
    ) -> int:
        engine = self.engine
        partition = spec.partition or engine.config.partitions[0].name
        if partition not in engine.partitions:
            raise Infeasible(f"Invalid partition name specified: {partition}")
        qos = spec.qos or "normal"
        if qos not in engine.config.qos:
            raise Infeasible(f"Invalid qos specification: {qos}")
        if spec.nodes < 1:
            raise Infeasible(f"Node count specification invalid: {spec.nodes}")
        if spec.nodes > engine.machine.within[partition].bit_count():
            raise Infeasible("Requested node configuration is not available")
        if not spec.time_limit > 0:
            raise Infeasible(f"Requested time limit is invalid: {spec.time_limit}")
        number = engine.new_id()
        job = SimJob(
            id=number,
            spec=spec,
            user=user,
            uid=engine.uid_of(user),
            account=spec.account or "default",
            partition=partition,
            qos=qos,
            submit=engine.now,
            num_nodes=spec.nodes,
            time_limit=spec.time_limit,
            dependency=self._dependency(dependency, number, partition, qos),
            begin=None if begin is None else _begin(begin, engine.now),
            held="user" if hold else "",
            work=work,
        )
        engine.add(job)
        return number

    def _dependency(self, text: str | None, number: int, partition: str, qos: str) -> Dependency:
        """Parse a dependency and refuse what Slurm refuses; what it drops is dropped by the engine."""
        dependency = parse(text)
        strict = self.engine.config.version >= _REFUSES_FORGOTTEN_PARENTS
        for clause in dependency.clauses:
            parent = self.engine.jobs.get(clause.job)
            if clause.job == number:
                raise Infeasible(f"Job dependency problem: {number} cannot wait for itself")
            if clause.kind == "expand":
                if not self.engine.config.permit_job_expansion:
                    raise Infeasible("Requested operation not supported on this system: job expansion is not permitted")
                if parent is None or parent.state is not JobState.RUNNING:
                    raise Infeasible(f"Job dependency problem: {clause.job} does not run")
                if (parent.partition, parent.qos) != (partition, qos):
                    raise Infeasible(f"Job dependency problem: {clause.job} has another partition or QOS")
            elif parent is None and clause.kind in ("afterok", "afternotok") and strict:
                raise Infeasible(f"Job dependency problem: {clause.job} is not known")
        return dependency

    # -- changes ---------------------------------------------------------------------------------------------------

    def merge(self, user: str, resizer: int, into: int) -> None:
        """`scontrol update jobid=RESIZER NumNodes=0`: its nodes go to `into`, and it ends as COMPLETED."""
        engine = self.engine
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

    def cancel(self, user: str, job: int) -> None:
        """`scancel JOB`. A job that only accounting remembers has ended, so there is nothing to do."""
        found = self.engine.records.get(job)
        if found is None:
            raise NotFound(f"Invalid job id specified: {job}")
        self._may(user, found)
        self.engine.end(found, JobState.CANCELLED)

    def release(self, user: str, job: int) -> None:
        """`scontrol release JOB`; an administrator's hold is not the owner's to lift."""
        found = self.engine.job(job)
        self._may(user, found)
        if found.held == "admin" and not self._operator(user):
            raise NotPermitted(f"Access/permission denied: job {job} was held by an administrator")
        if found.held:
            found.held, found.fixed_priority = "", None
            self.engine.touch(found)

    def update(
        self,
        user: str,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
    ) -> None:
        """`scontrol update`: all of it or nothing."""
        found, operator = self.engine.job(job), self._operator(user)
        self._may(user, found)
        if found.state.ended:
            raise Infeasible(f"Job {job} has already completed ({found.state})")
        pending = found.state is JobState.PENDING
        if not pending and (dependency is not None or begin is not None):
            raise Infeasible(f"Job {job} is no longer pending execution")
        if time_limit is not None and time_limit > found.time_limit and not operator:
            allowed = self.engine.partitions[found.partition].max_time or math.inf
            if not pending or time_limit > allowed:
                raise NotPermitted(f"Access/permission denied: only an operator may raise the limit of job {job}")
        if priority is not None and priority > self.engine.priority(found) and not operator:
            raise NotPermitted(f"Access/permission denied: only an operator may raise the priority of job {job}")
        parsed = None if dependency is None else self._dependency(dependency, job, found.partition, found.qos)
        begins = None if begin is None else _begin(begin, self.engine.now)
        if time_limit is not None:
            found.time_limit = time_limit
        if parsed is not None:
            found.dependency = parsed
        if begins is not None:
            found.begin = begins
        if priority is not None:
            # As in Slurm, priority 0 is a hold, and whoever is not the owner holds as an administrator.
            found.fixed_priority = priority or None
            found.held = "" if priority else "user" if user == found.user else "admin"
        self.engine.touch(found)

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

    def find(self, user: str, name: str) -> list[int]:
        """The user's jobs of this name in the controller's memory."""
        return sorted(j.id for j in self.engine.jobs.values() if j.user == user and j.name == name)

    def history(self, user: str, ids: Collection[int], name: str | None, since: float | None) -> list[AccountingRecord]:
        """Accounting: the given ids whoever owns them, else the user's own; all given conditions hold."""
        return [
            job.record()
            for job in self.engine.records.values()
            if (job.id in ids if ids else job.user == user)
            and (name is None or (job.name == name and job.user == user))
            and (since is None or job.submit >= since or job.end is None or job.end >= since)
        ]

    def _operator(self, user: str) -> bool:
        return user == "root" or user in self.engine.config.operators

    def _may(self, user: str, job: SimJob) -> None:
        if user != job.user and not self._operator(user):
            raise NotPermitted(f"Access/permission denied: job {job.id} belongs to {job.user}, not to {user}")


_UNITS = {"": 1.0, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


def _begin(text: str, now: float) -> float:
    """`now`, `now+30`, `now+5minutes`, `uts1700000000` (seconds since the epoch) or a local `2026-11-30T12:00:00`."""
    head, _, offset = text.partition("+")
    try:
        if head == "now":
            number = offset.rstrip("abcdefghijklmnopqrstuvwxyz")
            return now + float(number or 0) * _UNITS[offset[len(number) :]]
        return float(text[3:]) if text.startswith("uts") else datetime.fromisoformat(text).timestamp()
    except (ValueError, KeyError):
        raise Infeasible(f"Invalid time specification: {text!r}") from None
