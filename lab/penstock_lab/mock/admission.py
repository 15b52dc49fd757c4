"""What the simulated Slurm takes into its queue, and what it refuses, with Slurm's own words."""

from __future__ import annotations

import re
from collections.abc import Collection

from penstock.api import Allocation, JobSpec, JobState
from penstock.errors import Infeasible, NotPermitted
from penstock_lab.mock.arrays import Array
from penstock_lab.mock.arrays import parse as parse_array
from penstock_lab.mock.begin import begin_time
from penstock_lab.mock.dependency import Dependency
from penstock_lab.mock.dependency import parse as parse_dependency
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.speedup import Work

__all__ = ["check_reservation", "checked_dependency", "make_job", "required_nodes"]

_FEATURE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
# From this release on a dependency on the outcome of a forgotten job is refused; before, it was dropped silently.
_REFUSES_FORGOTTEN_PARENTS = (23, 2)


def make_job(engine: Engine, user: str, spec: JobSpec | Allocation, work: Work | None = None) -> SimJob:
    """The job that a request becomes, without an id: it is not in the queue yet.

    `Infeasible` and `NotPermitted` when Slurm refuses it.
    """
    config = engine.config
    if isinstance(spec, JobSpec) and not spec.script.startswith("#!"):
        raise Infeasible("This does not look like a batch script: its first line must start with #!")
    partition = spec.partition or config.partitions[0].name
    if partition not in engine.partitions:
        raise Infeasible(f"Invalid partition name specified: {partition}")
    qos = spec.qos or "normal"
    if qos not in config.qos:
        raise Infeasible(f"Invalid qos specification: {qos}")
    if spec.nodes < 1:
        raise Infeasible(f"Node count specification invalid: {spec.nodes}")
    if spec.nodes > engine.machine.within[partition].bit_count():
        raise Infeasible("Requested node configuration is not available")
    if isinstance(spec, JobSpec) and spec.min_nodes is not None and not 1 <= spec.min_nodes <= spec.nodes:
        raise Infeasible(f"Node count specification invalid: {spec.min_nodes}-{spec.nodes}")
    if not spec.time_limit > 0:
        raise Infeasible(f"Requested time limit is invalid: {spec.time_limit}")
    if isinstance(spec, JobSpec):
        _check_asked(engine, spec, partition)
        work = engine.work_of(spec, work)
    job = SimJob(
        id=0,
        spec=spec,
        user=user,
        uid=engine.uid_of(user),
        account=engine.enforcement.account_of(user, spec.account),
        partition=partition,
        qos=qos,
        submit=engine.now,
        num_nodes=spec.nodes,
        time_limit=spec.time_limit,
        dependency=Dependency(),
        work=work,
    )
    if isinstance(spec, Allocation):
        text = None if spec.expands is None else f"expand:{spec.expands}"
        job.dependency = checked_dependency(engine, text, 0, partition, qos)
        if spec.last:
            job.fixed_priority = 1
        return job
    if spec.dependency:
        job.dependency = checked_dependency(engine, spec.dependency, 0, partition, qos)
    if spec.begin is not None:
        job.begin = begin_time(spec.begin, engine.now)
    if spec.hold:
        job.held = "user"
    if spec.licenses:
        job.licenses = engine.licenses.parse(spec.licenses)
    if spec.nodelist:
        job.required = required_nodes(engine, spec.nodelist, partition)
    if spec.exclude:
        job.excluded = _mask(engine, spec.exclude)
        if spec.nodes > (engine.machine.within[partition] & ~job.excluded).bit_count():
            raise Infeasible("Requested node configuration is not available")
    if spec.array is not None:
        tasks, throttle = parse_array(spec.array, config.max_array)
        job.array = Array(0, tasks, throttle)
    if spec.reservation:
        check_reservation(engine, job, job.reservation)
    return job


def _check_asked(engine: Engine, spec: JobSpec, partition: str) -> None:
    """Refuse what no node has. There is no GRES; of the rest that a job may ask for nothing is simulated."""
    if spec.gres or spec.gpus:
        raise Infeasible("Invalid generic resource (gres) specification")
    wanted = frozenset(_FEATURE.findall(spec.constraint or ""))
    features = {p.name: frozenset(p.features) for p in engine.config.partitions}
    if not wanted <= frozenset().union(*features.values()):
        raise Infeasible("Invalid feature specification")
    if not wanted <= features[partition]:
        raise Infeasible("Requested node configuration is not available")


def required_nodes(engine: Engine, names: Collection[str], partition: str) -> int:
    """The nodes that a job must have, as a set of bits; `Infeasible` when one is not there."""
    mask = _mask(engine, names)
    if mask & ~engine.machine.within[partition]:
        raise Infeasible("Requested node configuration is not available")
    return mask


def _mask(engine: Engine, names: Collection[str]) -> int:
    try:
        return engine.machine.bits.mask(names)
    except KeyError as e:
        raise Infeasible(f"Invalid node name specified: {e.args[0]}") from None


def check_reservation(engine: Engine, job: SimJob, name: str) -> None:
    """Raise what Slurm says of a job that may not, or cannot, run in the reservation of this name."""
    held = engine.reservations.get(name)
    if held is None:
        raise Infeasible("Requested reservation is invalid")
    if not held.admits(job.user, job.account):
        raise NotPermitted("Access denied to requested reservation")
    if not held.flex and job.least > (held.mask & engine.machine.within[job.partition]).bit_count():
        raise Infeasible("Requested node configuration is not available")


def checked_dependency(engine: Engine, text: str | None, number: int, partition: str, qos: str) -> Dependency:
    """Parse a dependency and refuse what Slurm refuses; what it drops is dropped by the engine."""
    dependency = parse_dependency(text)
    strict = engine.config.version >= _REFUSES_FORGOTTEN_PARENTS
    for clause in dependency.clauses:
        parent = engine.jobs.get(clause.job)
        if clause.job == number:
            raise Infeasible(f"Job dependency problem: {number} cannot wait for itself")
        if number and _waits_for(engine, clause.job, number):
            raise Infeasible(f"Circular job dependency: {clause.job} waits for {number}")
        if clause.kind == "expand":
            if not engine.config.permit_job_expansion:
                raise Infeasible("Requested operation not supported on this system: job expansion is not permitted")
            if parent is None or parent.state is not JobState.RUNNING:
                raise Infeasible(f"Job dependency problem: {clause.job} does not run")
            if (parent.partition, parent.qos) != (partition, qos):
                raise Infeasible(f"Job dependency problem: {clause.job} has another partition or QOS")
        elif parent is None and clause.kind in ("afterok", "afternotok") and strict:
            raise Infeasible(f"Job dependency problem: {clause.job} is not known")
    return dependency


def _waits_for(engine: Engine, job: int, parent: int) -> bool:
    """Whether a job waits for another one, by itself or through those it waits for."""
    seen: set[int] = set()
    todo = [job]
    while todo:
        current = todo.pop()
        if current == parent:
            return True
        known = engine.jobs.get(current)
        if current not in seen and known is not None and known.state is JobState.PENDING:
            todo += [clause.job for clause in known.dependency.clauses]
        seen.add(current)
    return False
