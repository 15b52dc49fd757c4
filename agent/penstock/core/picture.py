"""A snapshot as JSON-able values and back: how a look at Slurm, or what it says of one user's jobs, goes from the agent
to a command."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

from penstock.api import Job, JobState, Node, Partition, Reservation, Snapshot
from penstock.values.documents import brief

__all__ = ["jobs_besides", "jobs_of", "picture_from_dict", "picture_to_dict"]

T = TypeVar("T", Job, Node, Partition, Reservation)
_PARTS: Final = {"jobs": Job, "nodes": Node, "partitions": Partition, "reservations": Reservation}
_NAMES: Final = {kind: tuple(f.name for f in fields(kind)) for kind in _PARTS.values()}
_MOST_BESIDES: Final = 200
_SETS: Final = frozenset({"accounts", "qos", "users", "flags"})


def picture_to_dict(snapshot: Snapshot) -> dict[str, Any]:
    """Jobs, nodes, partitions and reservations; a reservation without end has Python's Infinity."""
    return {
        "jobs": _rows(snapshot.jobs.values()),
        "nodes": _rows(snapshot.nodes.values()),
        "partitions": _rows(snapshot.partitions.values()),
        "reservations": _rows(snapshot.reservations),
        "wakes_in": snapshot.wakes_in,
    }


def jobs_of(snapshot: Snapshot, uid: int) -> dict[str, Any]:
    """The same of one user's jobs alone: theirs, and the nodes they hold."""
    jobs = [job for job in snapshot.jobs.values() if job.uid == uid]
    held = {name for job in jobs for name in job.nodes}
    nodes = [node for name, node in snapshot.nodes.items() if name in held]
    return {"jobs": _rows(jobs), "nodes": _rows(nodes), "partitions": [], "reservations": []}


def picture_from_dict(data: Mapping[str, Any], taken_at: float, problems: Iterable[str] = ()) -> Snapshot:
    """What `picture_to_dict` gave. What another release says besides is left out; ValueError if a part is missing."""
    try:
        jobs = {job.id: job for job in (_read(Job, row) for row in data["jobs"])}
        nodes = {node.name: node for node in (_read(Node, row) for row in data["nodes"])}
        partitions = {p.name: p for p in (_read(Partition, row) for row in data["partitions"])}
        reservations = tuple(_read(Reservation, row) for row in data["reservations"])
        wakes_in = float(data.get("wakes_in", 60.0))
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ValueError(f"not a picture of a cluster: {brief(e)}") from e
    return Snapshot(taken_at, jobs, nodes, partitions, tuple(problems), reservations, wakes_in=wakes_in)


def _rows(values: Iterable[Any]) -> list[dict[str, Any]]:
    """By name, not with `asdict`, which copies every value and takes ten times as long: there may be 10 000 jobs."""
    return [{name: _plain(getattr(value, name)) for name in _NAMES[type(value)]} for value in values]


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value


def _read(kind: type[T], row: Mapping[str, Any]) -> T:
    values: dict[str, Any] = {}
    for name, value in row.items():
        if name not in _NAMES[kind]:
            continue
        if isinstance(value, list):
            value = frozenset(value) if name in _SETS else tuple(value)
        values[name] = JobState(value) if name == "state" and kind is Job else value
    return kind(**values)


def jobs_besides(snapshot: Snapshot | None, uid: int, known: Collection[int]) -> list[dict[str, Any]]:
    """The user's other jobs in the queue, those that run first: an MPI program that has not asked the agent yet, an
    elastic job that has not begun, and whatever else there is. `name` is what squeue calls one (`41_2`)."""
    if snapshot is None:
        return []
    mine = [
        job
        for job in snapshot.jobs.values()
        if job.uid == uid and not job.state.ended and job.id not in known and job.head not in known
    ]
    mine.sort(key=lambda job: (job.pending, job.id))
    return [_job_besides(job) for job in mine[:_MOST_BESIDES]]


def _job_besides(job: Job) -> dict[str, Any]:
    task = job.array_job is not None and job.array_task is not None
    return {
        "job": job.id,
        "name": f"{job.array_job}_{job.array_task}" if task else str(job.id),
        "state": job.state.value.lower(),
        "reason": job.reason if job.pending else "",
        "nodes": job.least_nodes if job.pending else len(job.nodes),
        "tasks": job.tasks,
        "submitted": job.submit,
        "start": None if job.pending else job.start,
    }
