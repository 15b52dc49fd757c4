"""What is asked of slurmrestd: jobs to be, changes of jobs, reservations. Pure.

What sbatch itself does with a script and its options is done here, as far as a job description can say it; what it
cannot raises `Unsaid`, and nothing is sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from penstock.api import Allocation, JobSpec, ReservationSpec
from penstock.errors import Infeasible, UserError
from penstock.slurm.moments import parse_moment
from penstock.slurm.option_table import VARIABLES, column
from penstock.slurm.parse import ParseError, format_minutes, parse_amount
from penstock.slurm.sbatch_options import DECIDED, Option, read_options, script_words
from penstock.values.lines import split_lines
from penstock_rest.versions import DataVersion

__all__ = [
    "Unsaid",
    "allocation",
    "begin_time",
    "checked_script",
    "description",
    "handed_on",
    "minutes",
    "number",
    "reservation",
    "shifted",
]

Fields = dict[str, object]

_LAST_NICE: Final = 2147483645  # the largest that Slurm takes
_FIELDS: Final = column("REST")
_SAID: Final = "said"  # by the fields of a JobSpec anyway, or it changes nothing of the job
# Variables which change nothing of the job, or say what the agent decides.
_OF_SBATCH: Final = DECIDED.union(name for name, option in VARIABLES.items() if _FIELDS.get(option) == _SAID)
_STAGE: Final = column("stage")
_OF_SPEC: Final = (
    "account", "array", "comment", "constraint", "cpus-per-task", "dependency", "error", "licenses", "ntasks", "output",
    "partition", "qos", "reservation",
)  # fmt: skip
"""The options that fields of a JobSpec are as they stand."""
_FLAGS: Final = frozenset(
    {"ALL_NODES", "ANY_NODES", "DAILY", "FLEX", "FORCE_START", "HOURLY", "IGNORE_JOBS", "MAGNETIC", "MAINT"}
    | {"NO_HOLD_JOBS_AFTER_END", "OVERLAP", "PART_NODES", "PURGE_COMP", "REPLACE", "REPLACE_DOWN", "SPEC_NODES"}
    | {"STATIC", "TIME_FLOAT", "USER_DELETE", "WEEKDAY", "WEEKEND", "WEEKLY"}
)
_RENAMED: Final = {"NO_HOLD_JOBS_AFTER": "NO_HOLD_JOBS_AFTER_END", "STATIC_ALLOC": "STATIC"}
_PURGE: Final = re.compile(r"PURGE_COMP=([0-9]{1,6})", re.ASCII)


class Unsaid(Exception):
    """A job description cannot say it."""


def number(value: float | None) -> Mapping[str, object]:
    """A number as all data versions take it; None or infinite: no limit."""
    if value is None or math.isinf(value):
        return {"set": False, "infinite": True, "number": 0}
    return {"set": True, "infinite": False, "number": int(value)}


def minutes(seconds: float) -> Mapping[str, object]:
    """A time limit: whole minutes, rounded up."""
    text = format_minutes(seconds)
    return number(int(text) if text.isdigit() else None)


def begin_time(text: str, now: float) -> Mapping[str, object]:
    """An earliest start, from sbatch's forms. `Infeasible` for what is none."""
    try:
        at = parse_moment(text, now, past=False)
    except ParseError as error:
        raise Infeasible(f"not a time to begin: {text[:60]!r}") from error
    return number(at or now)


def description(
    spec: JobSpec, version: DataVersion, workdir: str, environment: Mapping[str, str], now: float
) -> Fields:
    """The job description of a batch job, without its script. `Infeasible` for what Slurm's sbatch refuses itself,
    `Unsaid` for options that sbatch alone understands."""
    job = _from_options(_options(spec), version, now)
    for option in _OF_SPEC:
        if value := getattr(spec, _STAGE.get(option, option)):
            job |= _as_field(option, value)
    job |= _resources(spec.memory, spec.gpus, spec.gres, version)
    if spec.begin:
        job["begin_time"] = begin_time(spec.begin, now)
    if spec.nodelist:
        job["required_nodes"] = list(spec.nodelist)
    if spec.exclude:
        job["excluded_nodes"] = list(spec.exclude)
    if spec.hold:
        job["hold"] = True
    least = spec.nodes if spec.min_nodes is None else spec.min_nodes
    tasks, cpus = job.get("tasks", least), job.get("cpus_per_task", 1)
    assert isinstance(tasks, int) and isinstance(cpus, int)
    job |= {
        "name": spec.name,
        "minimum_nodes": int(least),
        "maximum_nodes": int(spec.nodes),
        "minimum_cpus": tasks * cpus,  # as sbatch counts them
        "time_limit": minutes(spec.time_limit),
        "requeue": spec.requeue,
        "flags": ["NO_KILL_INVALID_DEPENDENCY"],
        "current_working_directory": workdir,
        "environment": [f"{name}={value}" for name, value in environment.items()],
    }
    return _sayable(job)


def checked_script(script: str) -> str:
    """The script, if sbatch would take it. `Infeasible` otherwise."""
    if not script.startswith("#!"):
        raise Infeasible("a batch script begins with #! and its interpreter")
    if "\0" in script:
        raise Infeasible("a batch script holds no NUL byte")
    if "\r\n" in script:
        raise Infeasible("the batch script contains DOS line breaks (\\r\\n)")
    return str(_sayable({"script": script})["script"])


def allocation(spec: Allocation, version: DataVersion, workdir: str, now: float) -> Fields:
    """The job description of nodes without a script."""
    job: Fields = {
        "name": spec.name,
        "minimum_nodes": int(spec.nodes),
        "maximum_nodes": int(spec.nodes),
        "minimum_cpus": int(spec.nodes),
        "time_limit": minutes(spec.time_limit),
        "current_working_directory": workdir,
        "environment": [f"SLURM_JOB_NAME={spec.name}"],
    }
    named = {"partition": spec.partition, "account": spec.account, "qos": spec.qos, "constraints": spec.constraint}
    job |= {name: value for name, value in named.items() if value}
    job |= _resources(None, None, spec.gres, version)
    if spec.expands is not None:
        job["dependency"] = f"expand:{int(spec.expands)}"
    if spec.last:
        job |= {"nice": _LAST_NICE, "begin_time": number(now + 1)}
    if spec.exclusive:
        job["shared"] = ["none"]
    return _sayable(job)


def reservation(spec: ReservationSpec) -> Fields:
    """The description of a reservation to create."""
    flags, purge = [], None
    for said in spec.flags:
        flag = said.upper()
        if found := _PURGE.fullmatch(flag):
            purge = 60 * int(found[1])
            flag = "PURGE_COMP"
        flag = _RENAMED.get(flag, flag)
        # One that it does not know is an error to slurmrestd, which makes the reservation all the same (26.05).
        if flag not in _FLAGS:
            raise Infeasible(f"slurmrestd knows no flag {said[:40]!r} of a reservation")
        flags.append(flag)
    made: Fields = {
        "name": spec.name,
        "start_time": number(math.floor(spec.start)),
        "duration": minutes(spec.duration),
        "flags": flags,
    }
    if spec.nodelist:
        made["node_list"] = list(spec.nodelist)
    else:
        made["node_count"] = number(int(spec.nodes))
    named = {"users": list(spec.users), "accounts": list(spec.accounts), "partition": spec.partition}
    made |= {name: value for name, value in named.items() if value}
    if purge is not None:
        made["purge_completed"] = {"time": number(purge)}
    return _sayable(made)


def shifted(name: str, start: float, duration: float, nodes: Collection[str]) -> Fields:
    """The description of what a reservation is to become."""
    when = {"start_time": number(math.floor(start)), "duration": minutes(duration)}
    return _sayable({"name": name, "node_list": list(nodes), **when})


def handed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """What of its submitter's environment reaches a job, as sbatch exports it. `Unsaid` for variables by which sbatch
    is told options."""
    for name in environment:
        if name.startswith("SBATCH_") and name not in _OF_SBATCH:
            raise Unsaid(f"{name}, which sbatch would read")
    return {name: value for name, value in environment.items() if not name.startswith("SBATCH_")}


# -- sbatch's options --------------------------------------------------------------------------------------------


def _options(spec: JobSpec) -> list[Option]:
    """Those of the script first, so that those of the job count before them."""
    try:
        words = [words for _, words in script_words(split_lines(spec.script))]
        found = [option for line in words for option in read_options(line)]
        return [*found, *read_options(spec.options)]
    except UserError as error:
        raise Infeasible(str(error)) from error


def _from_options(options: Sequence[Option], version: DataVersion, now: float) -> Fields:
    job: Fields = {}
    asked: dict[str, str] = {}
    special: Mapping[str, Callable[[str], Fields]] = {
        "begin": lambda value: {"begin_time": begin_time(value, now)},
        "hold": lambda _: {"hold": True},
        "nice": lambda value: {"nice": _whole("nice", value or "100")},
    }
    for name, said in options:
        value = said or ""
        if name in special:
            job |= special[name](value)
        elif name in _FIELDS:
            job |= _as_field(name, value)
        elif name in ("mem", "gpus", "gres"):
            asked[name] = value
        else:
            raise Unsaid(f"sbatch's option --{name}")
    return job | _resources(asked.get("mem"), asked.get("gpus"), asked.get("gres"), version)


def _as_field(option: str, value: str) -> Fields:
    form, _, name = _FIELDS[option].rpartition(":")
    if name == _SAID:
        return {}
    return {name: _whole(option, value) if form == "number" else value.split(",") if form == "list" else value}


def _resources(memory: str | None, gpus: str | None, gres: str | None, version: DataVersion) -> Fields:
    job: Fields = {}
    if memory:
        try:
            job["memory_per_node"] = number(math.ceil(parse_amount(memory, "mem")))
        except ParseError as error:
            raise Infeasible(f"not an amount of memory: {memory[:60]!r}") from error
    mark = "gres/" if version.number >= 40 else "gres:"  # which Slurm changed in 23.11
    if gpus:
        job["tres_per_job"] = ",".join(f"{mark}gpu:{word}" for word in gpus.split(","))
    if gres:
        job["tres_per_node"] = ",".join(mark + re.sub("^gres[:/]", "", word) for word in gres.split(","))
    return job


def _whole(name: str, value: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,10}", value, re.ASCII):
        raise Infeasible(f"--{name} is a number, not {value[:60]!r}")
    return int(value)


def _sayable(fields: Fields) -> Fields:
    """The same, if JSON can hold it and Slurm does not cut it off."""
    for name, value in fields.items():
        for text in value if isinstance(value, list) else (value,):
            if not isinstance(text, str):
                continue
            if "\0" in text:
                raise Infeasible(f"a job's {name} cannot hold a NUL byte")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise Unsaid(f"a {name} that is no UTF-8") from None
    return fields
