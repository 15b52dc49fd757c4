"""Objects of slurmrestd's JSON as Penstock's values. Pure.

What is read here is written alike by all data versions but for the scalars, which `values` takes in every form. A
state that is unknown here becomes UNKNOWN; an answer that lacks what it should have is a `ParseError`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from sys import intern
from typing import Any, TypeVar

from penstock.api import Job, JobTexts, License, Node, NodeNeeds, Partition, Reservation, Step
from penstock.slurm import needs, records
from penstock.slurm.parse import (
    ParseError,
    expand_hosts,
    parse_array_tasks,
    parse_job_state,
    parse_node_state,
)
from penstock_rest.values import amount, count, flags, limit, member, moment, state, text

__all__ = [
    "accounting_row",
    "array_of",
    "asks_for_gres",
    "job_from_json",
    "license_from_json",
    "needs_from_json",
    "node_from_json",
    "partition_from_json",
    "reservation_from_json",
    "shares_from_json",
    "steps_from_json",
    "texts_from_json",
    "tres_of",
    "understood",
]

_UNKNOWN_PRIORITY = 0xFFFFFFFF
_UNSET = 0xFFFE  # of numbers of 16 bits
_NEEDS = ("tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task", "features")
_WHOLE = frozenset({"NODE", "TOPO"})
T = TypeVar("T")
Json = Mapping[str, Any]


def understood(make: Callable[..., T], found: Iterable[Any], *more: object) -> list[T]:
    """A value for each of these objects. `ParseError` when one is not what it should be."""
    try:
        return [make(item, *more) for item in found]
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        if isinstance(error, ParseError):
            raise
        raise ParseError(
            f"not what slurmrestd answers ({type(error).__name__}: {error})", reprlib.repr(found)
        ) from error


def job_from_json(value: Json, default_limit: Callable[[str], float | None]) -> Job:
    """A job of `jobs`. `default_limit` gives the time limit of a partition for jobs that name none."""
    found = parse_job_state(state(value["job_state"]))
    partition = intern(text(value.get("partition")))
    tasks = text(value.get("array_task_string"))
    array, task = count(value.get("array_job_id")), amount(value.get("array_task_id"))
    if not tasks and array and task is not None:
        tasks = str(int(task))
    whole = found.ended or found.holds_nodes
    job = Job(
        id=int(value["job_id"]),
        uid=int(value["user_id"]),
        user=intern(text(value.get("user_name")) or str(value["user_id"])),
        account=intern(text(value.get("account"))),
        partition=partition,
        qos=intern(text(value.get("qos"))),
        state=found,
        reason=intern(text(value.get("state_reason"))),
        submit=moment(value.get("submit_time")) or 0.0,
        eligible=moment(value.get("eligible_time")),
        start=moment(value.get("start_time")),
        end=moment(value.get("end_time")),
        time_limit=limit(value.get("time_limit"), -1.0),
        num_nodes=count(value.get("node_count")),
        num_cpus=count(value.get("cpus")),
        nodes=expand_hosts(text(value.get("nodes"))) if whole else (),
        priority=count(value.get("priority"), _UNKNOWN_PRIORITY),
        dependency=text(value.get("dependency")),
        array_job=array if tasks else None,
        array_task=int(tasks) if tasks.isascii() and tasks.isdigit() else None,
        tasks=parse_array_tasks(tasks) if tasks else 1,
        restarts=count(value.get("restart_cnt")),
        reservation=text(value.get("resv_name")),
        batch_host=text(value.get("batch_host")),
    )
    if job.pending:
        tasks_a_node = amount(value.get("tasks_per_node"))
        job = replace(job, min_nodes=records.fewest(job, tres_of(value), str(int(tasks_a_node or 0))))
        # What the scheduler has made of a range lags behind a change of it.
        if 0 < (most := count(value.get("max_nodes"))) < job.num_nodes:
            job = replace(job, num_nodes=most)
        if named := len(expand_hosts(text(value.get("required_nodes")))):  # the nodes that it names are asked for, too
            job = replace(job, num_nodes=max(job.num_nodes, named))
    return replace(job, time_limit=default_limit(partition)) if job.time_limit == -1.0 else job


def tres_of(value: Json) -> str:
    """What a job of `jobs` counts for, as Slurm writes it ("cpu=2,node=1")."""
    return text(value.get("tres_alloc_str")) or text(value.get("tres_req_str"))


def asks_for_gres(value: Json) -> bool:
    """Whether a job of `jobs` asked for or was given GRES."""
    names = ("tres_alloc_str", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "gres_detail")
    return any("gres" in word for name in names for word in _words(value.get(name)))


def _words(value: object) -> Sequence[str]:
    return [str(word) for word in value] if isinstance(value, list) else [text(value)]


def needs_from_json(value: Json) -> NodeNeeds:
    """What a job of `jobs` needs each further node to have."""
    columns = [text(value.get(name)) for name in _NEEDS]
    given = [str(word) for word in value.get("gres_detail") or ()]
    return needs.node_needs(columns, given, tasks_per_gpu=0 < count(value.get("tasks_per_tres")) < _UNSET)


def texts_from_json(value: Json) -> JobTexts:
    """What users wrote about a job of `jobs`."""
    return JobTexts(
        job=int(value["job_id"]),
        name=value.get("name") or "",
        comment=value.get("comment") or "",
        workdir=value.get("current_working_directory") or "",
        command=value.get("command") or "",
    )


def node_from_json(value: Json) -> Node:
    """A node of `nodes`."""
    found = parse_node_state(state(value["state"]))
    memory = count(value.get("real_memory"))
    return Node(
        name=text(value["name"]),
        state=str(found),
        cpus=count(value["cpus"]),
        usable=found.usable,
        partitions=flags(value.get("partitions")),
        memory=float(memory) if memory > 1 else None,  # a site that says nothing has Slurm's default of 1
        features=flags(value.get("active_features")),
        gres=text(value.get("gres")),
        arch=text(value.get("architecture")),
        idle_since=moment(value.get("last_busy")),
    )


def partition_from_json(value: Json, default: str | None) -> Partition:
    """A partition of `partitions`. `default`: the name of the default one, as older versions do not say which it is."""
    named = flags(value.get("flags"))
    name = text(value["name"])
    shared = member(value, "maximums", "shares")
    exclusive = member(value, "partition", "exclusive")
    whole = bool(_WHOLE & set(flags(exclusive))) if exclusive else shared is not None and count(shared, 1) == 0
    pairs = {
        "PartitionName": name,
        "Nodes": text(member(value, "nodes", "configured")),
        "State": "+".join(flags(member(value, "partition", "state"))),
        "Default": "YES" if "DEFAULT" in named or name == default else "NO",
        "MaxTime": _minutes(member(value, "maximums", "time")) or "UNLIMITED",
        "DefaultTime": _minutes(member(value, "defaults", "time")),
        "MaxNodes": _number(member(value, "maximums", "nodes")) or "UNLIMITED",
        "MinNodes": str(count(member(value, "minimums", "nodes"))),
        "MaxCPUsPerNode": _number(member(value, "maximums", "cpus_per_node")),
        "AllowAccounts": text(member(value, "accounts", "allowed")) or "ALL",
        "DenyAccounts": text(member(value, "accounts", "deny")),
        "AllowQos": text(member(value, "qos", "allowed")) or "ALL",
        "DenyQos": text(member(value, "qos", "deny")),
        "OverSubscribe": "EXCLUSIVE" if whole else "NO",
        "TRESBillingWeights": text(member(value, "tres", "billing_weights")),
        "QoS": text(member(value, "qos", "assigned")),
    }
    if not pairs["DefaultTime"]:
        del pairs["DefaultTime"]
    return records.partition_from_pairs(pairs)


def _number(value: object) -> str:
    found = amount(value)
    return "" if found is None or not math.isfinite(found) else str(int(found))


def _minutes(value: object) -> str:
    found = amount(value)
    return "" if found is None else "UNLIMITED" if math.isinf(found) else str(int(found))


def reservation_from_json(value: Json, now: float) -> Reservation:
    """A reservation of `reservations`; `now` is the controller's clock, as it is not said which are active."""
    start, end = moment(value.get("start_time")) or 0.0, moment(value.get("end_time")) or math.inf
    return Reservation(
        name=text(value["name"]),
        start=start,
        end=end,
        nodes=expand_hosts(text(value.get("node_list"))),
        users=frozenset(flags(text(value.get("users")))),
        accounts=frozenset(flags(text(value.get("accounts")))),
        flags=frozenset(flags(value.get("flags"))),
        active=start <= now < end,
        partition=text(value.get("partition")),
    )


def license_from_json(value: Json) -> License:
    """A licence of `licenses`."""
    numbers = (count(value["Total"]), count(value["Used"]), count(value.get("Reserved")))
    return License(text(value["LicenseName"]), *numbers)


def shares_from_json(document: Json, user: str) -> dict[str, float]:
    """The user's fair-share factors by account, of `shares`; those without one left out."""
    found: dict[str, float] = {}
    listed = member(document, "shares", "shares")
    for item in listed if isinstance(listed, list) else ():
        if item.get("name") != user or "USER" not in flags(item.get("type")):
            continue
        factor = amount(member(item, "fairshare", "factor"))
        if factor is not None and 0 <= factor <= 1:
            account = text(item.get("parent"))
            found[account] = max(factor, found.get(account, 0.0))  # one row a partition, where limits are by those
    return found


# -- accounting --------------------------------------------------------------------------------------------------


def accounting_row(value: Json) -> tuple[str, ...]:
    """A job of accounting's `jobs` as a row of `records.ACCOUNTING_FIELDS`, where such rows are joined to records."""
    time, code = value.get("time"), value.get("exit_code")
    status, by = member(code, "return_code"), member(code, "signal", "signal_id")
    if by is None:
        by = member(code, "signal", "id")
    when = [_instant(member(time, name)) for name in ("submission", "eligible", "start", "end")]
    return (
        str(int(value["job_id"])),
        text(value.get("name")),
        text(value.get("user")),
        text(value.get("partition")),
        text(value.get("qos")),
        text(value.get("account")),
        state(member(value, "state", "current")),
        f"{count(status)}:{count(by)}",
        *when,
        _minutes(member(time, "limit")) or "Partition_Limit",
        str(count(value.get("allocation_nodes")) or _asked_nodes(value)),
        text(value.get("nodes")),
    )


def _asked_nodes(value: Json) -> int:
    """Of a job that never began what it asked for."""
    asked = member(value, "tres", "requested")
    return next((count(tres.get("count")) for tres in asked or () if tres.get("type") == "node"), 0)


def _instant(value: object) -> str:
    found = moment(value)
    return "Unknown" if found is None else str(int(found))


def array_of(value: Json) -> int | None:
    """The array that a job of accounting's `jobs` is a task of."""
    if amount(member(value, "array", "task_id")) is None and not text(member(value, "array", "task")):
        return None
    return count(member(value, "array", "job_id")) or None


def steps_from_json(value: Json) -> list[Step]:
    """The running steps of a job of accounting's `jobs`."""
    job, found = int(value["job_id"]), []
    for step in value.get("steps") or ():
        if parse_job_state(state(step.get("state"))).ended or moment(member(step, "time", "end")) is not None:
            continue
        name = str(member(step, "step", "id") or "").rpartition(".")[2]
        listed = member(step, "nodes", "list")
        nodes = tuple(listed) if isinstance(listed, list) else expand_hosts(text(member(step, "nodes", "range")))
        found.append(Step(job=job, id=name, nodes=nodes))
    return found
