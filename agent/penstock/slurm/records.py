"""Rows of Slurm's commands as Penstock's values: what to ask for, and how to read the answer.

How an answer falls into rows that no user can forge is in `rows`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from sys import intern

from penstock.api import (
    AccountingRecord,
    Job,
    JobState,
    License,
    Node,
    Partition,
    Reservation,
    StartEstimate,
    Step,
)
from penstock.slurm.parse import (
    ParseError,
    expand_hosts,
    parse_array_tasks,
    parse_count,
    parse_exit_code,
    parse_job_state,
    parse_limit,
    parse_node_state,
    parse_pairs,
    parse_time,
)
from penstock.slurm.rows import draw_mark, lines_of, long_format, split_rows
from penstock.slurm.runs import Period, runs_of
from penstock.slurm.site_settings import WHOLE, items_of

__all__ = [
    "ACCOUNTING_FIELDS",
    "JOB_FIELDS",
    "STEP_FIELDS",
    "TRES_FIELDS",
    "accounting_from_rows",
    "arrays_of",
    "draw_mark",
    "estimate_from_text",
    "fewest",
    "job_from_row",
    "license_from_line",
    "lines_of",
    "long_format",
    "node_from_line",
    "of_array",
    "partition_from_line",
    "partition_from_pairs",
    "reservation_from_line",
    "shares_from_text",
    "split_rows",
    "step_from_row",
]

JOB_FIELDS = (
    "JobID",
    "UserID",
    "UserName",
    "Account",
    "Partition",
    "QOS",
    "State",
    "Reason",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NumNodes",
    "NumCPUs",
    "NodeList",
    "PriorityLong",
    "Dependency",
    "BatchHost",
    "ArrayJobID",
    "ArrayTaskID",
    "RestartCnt",
    "Reservation",
    "tres-alloc",
    "NTPerNode",
)
STEP_FIELDS = ("StepID", "Nodes", "StepState")
TRES_FIELDS = ("tres-alloc", "tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task")
ACCOUNTING_FIELDS = (
    "JobIDRaw",
    "JobName",
    "User",
    "Partition",
    "QOS",
    "Account",
    "State",
    "ExitCode",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "TimelimitRaw",
    "NNodes",
    "NodeList",
)


# str.isdigit() takes "²", too, and int() no more than some thousand digits.


def _integer(text: str) -> int:
    if not WHOLE.fullmatch(text):
        raise ParseError("not a number", text)
    return int(text)


def _text(value: str) -> str:
    """A word that Slurm writes, empty where it means none; words that repeat are kept once."""
    return "" if value in ("(null)", "N/A", "n/a") else intern(value)


def job_from_row(row: Sequence[str], default_limit: Callable[[str], float | None]) -> Job:
    """A job from a row of JOB_FIELDS.

    `default_limit` gives the time limit of a partition for jobs that name none.
    """
    cell = dict(zip(JOB_FIELDS, row, strict=True))
    partition = cell["Partition"]
    tasks = _text(cell["ArrayTaskID"])  # of a job that is no array, ArrayJobID is its own id
    job = Job(
        id=_integer(cell["JobID"]),
        uid=_integer(cell["UserID"]),
        user=intern(cell["UserName"]),
        account=_text(cell["Account"]),
        partition=intern(partition),
        qos=_text(cell["QOS"]),
        state=parse_job_state(cell["State"]),
        reason=_text(cell["Reason"]),
        submit=parse_time(cell["SubmitTime"]) or 0.0,
        eligible=parse_time(cell["EligibleTime"]),
        start=parse_time(cell["StartTime"]),
        end=parse_time(cell["EndTime"]),
        time_limit=parse_limit(cell["TimeLimit"], -1.0),
        num_nodes=parse_count(cell["NumNodes"]),
        num_cpus=parse_count(cell["NumCPUs"]),
        nodes=expand_hosts(cell["NodeList"]),
        priority=_integer(cell["PriorityLong"]),
        dependency=_text(cell["Dependency"]),
        array_job=_integer(cell["ArrayJobID"]) if tasks else None,
        array_task=_integer(tasks) if WHOLE.fullmatch(tasks) else None,
        tasks=parse_array_tasks(tasks) if tasks else 1,
        restarts=_integer(cell["RestartCnt"]),
        reservation=_text(cell["Reservation"]),
        batch_host=_text(cell["BatchHost"]),
    )
    job = replace(job, min_nodes=fewest(job, cell["tres-alloc"], cell["NTPerNode"]))
    return replace(job, time_limit=default_limit(partition)) if job.time_limit == -1.0 else job


def fewest(job: Job, tres: str, per_node: str) -> int | None:
    """With how many nodes a pending job may start, where it takes a range; None where it does not, or is not known.

    NumNodes is what Slurm would give it on an empty cluster. The fewest are in its TRES, but are 1, too, where nothing
    was asked for but tasks: they count where that many nodes have room for its processors at its tasks on a node.
    """
    if not job.pending:
        return None
    asked = dict(part.partition("=")[::2] for part in tres.split(","))
    nodes, cpus = asked.get("node", ""), asked.get("cpu", "")
    if not (WHOLE.fullmatch(nodes) and WHOLE.fullmatch(cpus)) or not 0 < int(nodes) < job.num_nodes:
        return None
    fits = int(cpus) <= int(nodes) * max(int(per_node) if WHOLE.fullmatch(per_node) else 1, 1)
    return int(nodes) if fits else None


def step_from_row(row: Sequence[str], job: int) -> Step | None:
    """A step from a row of STEP_FIELDS; None for one that does not run yet."""
    name, nodes, state = row
    step = name.rpartition(".")[2]
    if step == "TBD" or parse_job_state(state).waits:
        return None
    return Step(job=job, id=step, nodes=expand_hosts(nodes))


def node_from_line(line: str) -> Node:
    """A node from a line of `scontrol -o show nodes`."""
    pairs = parse_pairs(line)
    try:
        state = parse_node_state(pairs["State"])
        return Node(
            name=pairs["NodeName"],
            state=str(state),
            cpus=_integer(pairs["CPUTot"]),
            usable=state.usable,
            partitions=tuple(name for name in _text(pairs.get("Partitions", "")).split(",") if name),
            memory=_memory(pairs.get("RealMemory", "")),
            features=tuple(name for name in _text(pairs.get("ActiveFeatures", "")).split(",") if name),
            gres=_text(pairs.get("Gres", "")),
            arch=_text(pairs.get("Arch", "")),
            idle_since=parse_time(pairs.get("LastBusyTime", "")),
        )
    except KeyError as error:
        raise ParseError(f"a node without {error.args[0]}", line) from None


def partition_from_line(line: str) -> Partition:
    """A partition from a line of `scontrol -o show partition`."""
    return partition_from_pairs(parse_pairs(line))


def partition_from_pairs(pairs: Mapping[str, str]) -> Partition:
    """A partition from what `scontrol show partition` says of it, by its names."""
    try:
        max_nodes = pairs.get("MaxNodes", "UNLIMITED")
        max_time = parse_limit(pairs["MaxTime"])
        return Partition(
            name=pairs["PartitionName"],
            nodes=expand_hosts(pairs["Nodes"]),
            up=pairs["State"] == "UP",
            default=pairs["Default"] == "YES",
            max_time=max_time,
            default_time=parse_limit(pairs.get("DefaultTime", ""), max_time),
            max_nodes=None if max_nodes == "UNLIMITED" else parse_count(max_nodes),
            min_nodes=parse_count(pairs.get("MinNodes", "0")),
            max_cpus_per_node=_integer(cpus) if WHOLE.fullmatch(cpus := pairs.get("MaxCPUsPerNode", "")) else None,
            accounts=_admitted(pairs, "Accounts"),
            qos=_admitted(pairs, "Qos"),
            exclusive=pairs.get("OverSubscribe") == "EXCLUSIVE",
            billing=_weights(pairs.get("TRESBillingWeights", "")),
            own_qos=_text(pairs.get("QoS", "")),
        )
    except KeyError as error:
        raise ParseError(f"a partition without {error.args[0]}", str(dict(pairs))) from None


def _memory(text: str) -> float | None:
    """A node's memory in MB; a site that says nothing has Slurm's default of 1."""
    return float(text) if WHOLE.fullmatch(text) and int(text) > 1 else None


def _admitted(pairs: Mapping[str, str], what: str) -> frozenset[str]:
    """Who may use a partition; who may not with `-` before the name."""
    allowed = pairs.get(f"Allow{what}", "ALL")
    if allowed != "ALL":
        return items_of(allowed)
    return frozenset(f"-{name}" for name in items_of(_text(pairs.get(f"Deny{what}", ""))))


_WEIGHT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)", re.ASCII)


def _weights(text: str) -> dict[str, float]:
    """TRESBillingWeights. Memory's is per GB here; Slurm's is per MB, or per the unit that it names (`Mem=0.25G`)."""
    weights = {}
    for name, _, value in (item.strip().partition("=") for item in text.split(",")):
        number = _WEIGHT.fullmatch(value)
        if number is not None:
            unit = number[2] or ("M" if name.lower() == "mem" else "")
            weights[name] = float(number[1]) * (1024.0 ** ("KMGTP".index("G") - "KMGTP".index(unit)) if unit else 1.0)
    return weights


def reservation_from_line(line: str) -> Reservation:
    """A reservation from a line of `scontrol -o show reservations`."""
    pairs = parse_pairs(line)
    try:
        start, end = parse_time(pairs["StartTime"]), parse_time(pairs["EndTime"])
        return Reservation(
            name=pairs["ReservationName"],
            start=0.0 if start is None else start,
            end=math.inf if end is None else end,  # Slurm's infinity is "Unknown" here
            nodes=expand_hosts(_text(pairs["Nodes"])),
            users=items_of(_text(pairs["Users"])),
            accounts=items_of(_text(pairs["Accounts"])),
            flags=items_of(pairs["Flags"]),
            active=pairs["State"] == "ACTIVE",
            partition=_text(pairs.get("PartitionName", "")),
        )
    except KeyError as error:
        raise ParseError(f"a reservation without {error.args[0]}", line) from None


def license_from_line(line: str) -> License:
    """A licence from a line of `scontrol -o show licenses`."""
    pairs = parse_pairs(line)
    try:
        return License(
            name=pairs["LicenseName"],
            total=_integer(pairs["Total"]),
            used=_integer(pairs["Used"]),
            reserved=_integer(pairs.get("Reserved", "0")),
        )
    except KeyError as error:
        raise ParseError(f"a licence without {error.args[0]}", line) from None


# Up to 24.11: `Job 7 to start at T using 4 processors on nodes n[1-2] in partition p`. Since 25.05 there is ` a` before
# "using", and ` on cluster c` before that where clusters were asked for.
_ESTIMATE = re.compile(
    r"^sbatch: Job [0-9]+ to start at (\S+)(?: on cluster \S+)?(?: a)? using ([0-9]{1,9}) processors "
    r"on nodes (\S+) in partition (\S+)(?: on cluster \S+)?$",
    re.MULTILINE | re.ASCII,
)


def estimate_from_text(text: str) -> StartEstimate:
    """What `sbatch --test-only` says on standard error, whatever else a site's plug-ins say there."""
    match = _ESTIMATE.search(text)
    start = match and parse_time(match[1])
    if not match or start is None:
        raise ParseError("no estimate of a start", text[-200:])
    return StartEstimate(start, expand_hosts(match[3]), int(match[2]), match[4])


def shares_from_text(text: str, user: str) -> dict[str, float]:
    """This user's fair-share factors by account, from sshare's `Account,User,FairShare`; those without one left out."""
    shares: dict[str, float] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 3:
            raise ParseError("not three fields", line)
        if cells[1] != user:
            continue  # the account's own row
        try:
            factor = float(cells[2])
        except ValueError:
            continue
        if 0 <= factor <= 1:
            shares[cells[0]] = max(factor, shares.get(cells[0], 0.0))  # one row a partition, where limits are by those
    return shares


def accounting_from_rows(rows: Iterable[Sequence[str]]) -> list[tuple[AccountingRecord, tuple[str, ...]]]:
    """One record per job, with the nodes of its last row, from rows of ACCOUNTING_FIELDS in any order.

    Of several runs (`runs`) the last counts. The rows of one run are joined: when it was submitted, became eligible
    and started is in the first, how it ended in the last. RESIZING as the last state means that the final row has not
    been written: the job lives, or it was merged into another one; `end` is None then.

    For some seconds slurmdbd may know that a job started or ended, but not yet its partition, name and times (seen on
    22.05 for jobs that start at once). Such a row has not been written as far as we are concerned.
    """
    jobs: dict[int, list[dict[str, str]]] = {}
    for row in rows:
        cell = dict(zip(ACCOUNTING_FIELDS, row, strict=True))
        if cell["Partition"]:
            jobs.setdefault(_integer(cell["JobIDRaw"]), []).append(cell)
    return [_accounted(job, runs_of(cells, _period)[-1]) for job, cells in sorted(jobs.items())]


def _period(cell: Mapping[str, str]) -> Period:
    submit, start, end = (parse_time(cell[name]) for name in ("Submit", "Start", "End"))
    return Period(parse_job_state(cell["State"]), submit, start, end)


def _accounted(job: int, run: Sequence[Mapping[str, str]]) -> tuple[AccountingRecord, tuple[str, ...]]:
    begin, last = run[0], run[-1]
    state = parse_job_state(last["State"])
    record = AccountingRecord(
        id=job,
        name=last["JobName"],
        user=last["User"],
        partition=last["Partition"],
        qos=last["QOS"],
        account=_text(last["Account"]),
        state=state,
        exit_code=parse_exit_code(last["ExitCode"]),
        submit=parse_time(begin["Submit"]) or 0.0,
        eligible=parse_time(begin["Eligible"]),
        start=parse_time(begin["Start"]),
        end=None if state is JobState.RESIZING else parse_time(last["End"]),
        time_limit=parse_limit(last["TimelimitRaw"]),
        num_nodes=parse_count(last["NNodes"]),
    )
    return record, expand_hosts(last["NodeList"])


def arrays_of(text: str) -> dict[int, int]:
    """The array of each task by the task's own id, from sacct's JobIDRaw and JobID ("124|123_1"). Raises ValueError."""
    pairs = [line.split("|") for line in text.splitlines() if "_" in line]
    return {_integer(raw): _integer(job.partition("_")[0]) for raw, job in pairs}


def of_array(array: int, tasks: Sequence[AccountingRecord]) -> AccountingRecord:
    """One record for an array: it lives as long as a task does, and fails with any."""
    alive = next((t for t in tasks if not t.state.ended), None)
    failed = next((t for t in tasks if t.state is not JobState.COMPLETED), None)
    return replace(
        alive or failed or tasks[-1],
        id=array,
        submit=min(t.submit for t in tasks),
        eligible=min((t.eligible for t in tasks if t.eligible is not None), default=None),
        start=min((t.start for t in tasks if t.start is not None), default=None),
        end=None if alive else max((t.end for t in tasks if t.end is not None), default=None),
    )
