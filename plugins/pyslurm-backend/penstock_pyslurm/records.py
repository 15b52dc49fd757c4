"""Rows of `pyslurm_worker` as Penstock's values, and a `JobSpec` as what pyslurm wants. Pure; pyslurm is not needed."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.api import AccountingRecord, Job, JobSpec, JobState, JobTexts, Node, Reservation, Step
from penstock.errors import Infeasible
from penstock.slurm.parse import ParseError, expand_hosts, format_minutes, parse_job_state, parse_node_state
from penstock_pyslurm.worker import HISTORY, JOB, NODE, RESERVATION

__all__ = [
    "description_of",
    "job_from_values",
    "minutes_of",
    "node_from_values",
    "record_from_values",
    "reservation_from_values",
    "step_from_values",
    "texts_from_values",
    "understood",
    "unreadable_dependency",
]

_INFINITE = 0xFFFFFFFF
_NO_TIME = 0xFFFFFFFE

T = TypeVar("T")


def understood(make: Callable[..., T], rows: Sequence[Any], *more: object) -> list[T]:
    """A value for every row. `ParseError` when a row is not what it should be."""
    try:
        return [make(row, *more) for row in rows]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, ParseError):
            raise
        raise ParseError(f"not what pyslurm answers ({type(error).__name__}: {error})", reprlib.repr(rows)) from error


def job_from_values(row: Sequence[Any], default_limit: Callable[[str], float | None]) -> Job:
    """A job from a row of JOB.

    pyslurm gives None for no limit, and for a limit that is not given; the second is never seen of a job that has
    started, and taken for granted of one that waits: then `default_limit` of its partition.
    """
    value = dict(zip(JOB, row, strict=True))
    state = parse_job_state(value["state"] or "")
    limit = None if value["time_limit"] is None else 60.0 * value["time_limit"]
    if limit is None and state.waits:
        limit = default_limit(value["partition"] or "")
    endless = limit is None and state.holds_nodes and state is not JobState.COMPLETING
    task, tasks = value["array_task_id"], 1
    if waiting := value["array_tasks_waiting"]:
        tasks = _count_tasks(waiting)
        task = int(waiting) if tasks == 1 else None
    elif (
        value["array_id"] is not None
        and task is None
        and (value["id"] != value["array_id"] or value["allocated_nodes"])
    ):
        task = 0  # which pyslurm takes for "none"; the other row without a task is of those that will never begin
    return Job(
        id=int(value["id"]),
        uid=int(value["user_id"]),
        user=str(value["user"]),
        account=value["account"] or "",
        partition=value["partition"] or "",
        qos=value["qos"] or "",
        state=state,
        reason=value["state_reason"] or "",
        submit=_time(value["submit_time"]) or 0.0,
        eligible=_time(value["eligible_time"]),
        start=_time(value["start_time"]),
        end=None if endless else _time(value["end_time"]),
        time_limit=limit,
        num_nodes=value["num_nodes"] or 0,
        num_cpus=value["cpus"] or 0,
        nodes=expand_hosts(value["allocated_nodes"] or ""),
        priority=value["priority"] if isinstance(value["priority"], int) else _INFINITE,
        dependency=_dependency(value["dependencies"]),
        array_job=value["array_id"] if waiting or task is not None else None,
        array_task=task,
        tasks=tasks,
        restarts=value["requeue_count"] or 0,
        reservation=value["reservation"] or "",
        batch_host=value["batch_host"] or "",
    )


def unreadable_dependency(row: Sequence[Any]) -> bool:
    """Whether the job of a row of JOB may wait for another one to expand, which pyslurm leaves out."""
    value = dict(zip(JOB, row, strict=True))
    found, waits = value["dependencies"], parse_job_state(value["state"] or "").waits
    return waits and not value["is_batch_job"] and found is not None and not _listed(found)


def _dependency(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    # What is left out is `singleton` with its state, or `expand`.
    return ("?" if found.get("satisfy") == "any" else ",").join(_listed(found) or ["singleton"])


def _listed(found: Mapping[str, Any]) -> list[str]:
    return [f"{kind}:{job}" for kind, jobs in found.items() if isinstance(jobs, list) for job in jobs]


def _count_tasks(text: str) -> int:
    """How many tasks `0-3,7,10-20:2` names."""
    count = 0
    for item in text.split(","):
        first, _, rest = item.partition("-")
        last, _, step = rest.partition(":")
        count += (int(last or first) - int(first)) // int(step or 1) + 1
    return count


def _time(seconds: float | None) -> float | None:
    return float(seconds) if seconds else None


def node_from_values(row: Sequence[Any]) -> Node:
    """A node from a row of NODE."""
    value = dict(zip(NODE, row, strict=True))
    state = parse_node_state(value["state"] or "")
    memory, gres = value["real_memory"], value["configured_gres"] or {}
    return Node(
        name=str(value["name"]),
        state=str(state),
        cpus=int(value["total_cpus"]),
        usable=state.usable,
        partitions=tuple(value["partitions"]),
        memory=float(memory) if isinstance(memory, int) and memory > 1 else None,  # 1 is Slurm's default
        features=tuple(value["active_features"] or ()),
        gres=",".join(f"{name}:{count}" for name, count in gres.items()),
        arch=value["architecture"] or "",
        idle_since=_time(value["last_busy_time"]),
    )


def reservation_from_values(row: Sequence[Any], now: float) -> Reservation:
    """A reservation from a row of RESERVATION."""
    value = dict(zip(RESERVATION, row, strict=True))
    return Reservation(
        name=str(value["name"]),
        start=float(value["start_time"]),
        end=float(value["end_time"]) if value["end_time"] < _NO_TIME else math.inf,
        nodes=expand_hosts(value["node_list"] or ""),
        users=frozenset(value["users"] or ()),
        accounts=frozenset(value["accounts"] or ()),
        flags=frozenset(flag for flag in (value["flags"] or "").split(",") if flag),
        active=value["start_time"] <= now < value["end_time"],
        partition=value["partition"] or "",
    )


def step_from_values(row: Sequence[Any], job: int) -> Step | None:
    """A step from its id, state and nodes; None for one that does not run yet."""
    name, state, nodes = row
    if name in ("pending", "TBD") or parse_job_state(state or "").waits:
        return None
    return Step(job, str(name), expand_hosts(",".join(nodes or ())))


def texts_from_values(row: Sequence[Any]) -> JobTexts:
    """The texts of a job from its id, name, comment, folder and command."""
    job, *texts = row
    return JobTexts(int(job), *(text or "" for text in texts))


def record_from_values(row: Sequence[Any]) -> tuple[AccountingRecord, bool] | None:
    """A record from a row of HISTORY, and whether it is to be doubted; None while it is half written.

    A row for every size is kept of a resized job, of which pyslurm gives the last. That one counts from the resize as
    if the job had been submitted, become eligible and started at that moment, so whoever really did looks the same. Of
    a job that never began pyslurm does not give the size.
    """
    value = dict(zip(HISTORY, row, strict=True))
    if not value["partition"]:
        return None
    state = parse_job_state(value["state"] or "")
    code, signal = value["exit_code"] or 0, value["exit_code_signal"] or 0
    record = AccountingRecord(
        id=int(value["id"]),
        name=value["name"] or "",
        user=str(value["user"]),
        partition=value["partition"],
        qos=value["qos"] or "",
        account=value["account"] or "",
        state=state,
        exit_code=128 + signal if signal and not code else code,
        submit=_time(value["submit_time"]) or 0.0,
        eligible=_time(value["eligible_time"]),
        start=_time(value["start_time"]),
        end=_time(value["end_time"]),
        time_limit=60.0 * value["time_limit"] if isinstance(value["time_limit"], int) else None,
        num_nodes=value["num_nodes"] or 0,
    )
    at_once = record.submit == record.eligible == record.start
    return record, state is JobState.RESIZING or at_once or not record.num_nodes


def minutes_of(time_limit: float) -> int | str:
    """A limit as pyslurm wants it: whole minutes, rounded up, or `UNLIMITED`."""
    text = format_minutes(time_limit)
    return int(text) if text.isdigit() else text


def beyond(spec: JobSpec) -> bool:
    """Whether it has something that pyslurm is not given; sbatch is."""
    asked = (spec.memory, spec.gpus, spec.gres, spec.ntasks, spec.cpus, spec.constraint, spec.error)
    return spec.origin is not None or any((*asked, spec.options, spec.nodelist, spec.exclude))


def description_of(spec: JobSpec, workdir: str) -> dict[str, object]:
    """What pyslurm's JobSubmitDescription is made of, without script and environment."""
    texts = {
        "name": spec.name,
        "partitions": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "dependencies": spec.dependency,
        "begin_time": spec.begin,
        "working_directory": spec.workdir or workdir,
        "standard_output": spec.output,
        "array": spec.array,
        "reservations": spec.reservation,
        "licenses": spec.licenses,
        "comment": spec.comment,
    }
    if cut := [name for name, text in texts.items() if text and "\0" in text]:
        raise Infeasible(f"a job's {cut[0]} cannot hold a NUL byte")  # pyslurm would cut it off there
    found: dict[str, object] = {name: text for name, text in texts.items() if text}
    found |= {"nodes": spec.nodes, "time_limit": minutes_of(spec.time_limit), "is_requeueable": spec.requeue}
    if spec.hold:
        found["priority"] = 0
    return found
