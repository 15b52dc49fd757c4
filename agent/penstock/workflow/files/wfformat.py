"""Reads workflow instances in WfFormat 1.5 and 1.6 (JSON, WfCommons): tasks become stages, level by level.

A stage holds the tasks of one level (the length of the longest way to them), or those with the same `stage` where the
file's tasks say one. It runs packed on as many nodes as its tasks fill, `nodes` at most, of `cores` cores each; its
expected run time is that of the packed tasks. What a stage needs of another one are the files that tasks of the
other put out and tasks of its own take in, each once. Complaints name the task; nothing is submitted of a file with
one.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from penstock.errors import UserError
from penstock.values.documents import show
from penstock.workflow.model import NAME_PATTERN, Stage, Workflow
from penstock.workflow.tasks import WorkflowTask, packed_command, packed_time, pool_command

__all__ = ["MAX_TASKS", "Packing", "PoolCommands", "from_wfformat", "is_wfformat"]

MAX_TASKS: Final = 1_000_000
_VERSIONS: Final = ("1.5", "1.6")
_MAX_COMMAND: Final = 3_500_000  # bytes; Slurm refuses scripts of more than 4 MB
_MAX_STAGES: Final = 1000
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")
# Some writers number the names of their tasks, too.
_NUMBER: Final = re.compile(r"[_-]?(?:ID)?[0-9]+\Z")
_SHORTEST_LIMIT: Final = 60.0
_SHORTEST_RUN: Final = 0.001
_POOL_RETRIES: Final = 2


class PoolCommands(NamedTuple):
    """Shell commands of a stage's job: `stage` takes tasks on its standard input and has a pool run them; `join` gives
    the job's nodes to the pool, until it is ended."""

    stage: str
    join: str


@dataclass(frozen=True, slots=True)
class Packing:
    """How tasks become jobs: at most `nodes` nodes of `cores` cores for a stage. The time limit is `margin` times the
    expected run time, and a minute at least; or `time` (s). `command` replaces every task's command; in it {id},
    {name}, {program}, {arguments} and {runtime} stand for the task's own. With `pool` tasks run in a pool; a job
    is tried again if it fails then, because what has run stays done. Without `runs` nothing is to be run, only
    planned, and tasks need no commands.
    """

    nodes: int = 1
    cores: int = 1
    margin: float = 3.0
    time: float | None = None
    command: str | None = None
    pool: PoolCommands | None = None
    runs: bool = True


def is_wfformat(document: object) -> bool:
    """Whether this is such a file, of whatever version."""
    return isinstance(document, dict) and "schemaVersion" in document and "workflow" in document


def from_wfformat(document: Mapping[str, Any], source: str, packing: Packing | None = None) -> Workflow:
    """The workflow in it. Raises UserError, without the file's name, if it is wrong in any way."""
    packing = packing or Packing()
    version = str(document.get("schemaVersion"))
    if version not in _VERSIONS:
        raise UserError(f"schemaVersion: must be {' or '.join(_VERSIONS)}, not {version[:20]!r}")
    body = _map(document.get("workflow"), "workflow")
    listed = _map(body.get("specification"), "workflow.specification").get("tasks")
    if not isinstance(listed, list) or not listed:
        raise UserError("workflow.specification.tasks: must be a list with at least one task")
    if len(listed) > MAX_TASKS:
        raise UserError(f"workflow.specification.tasks: must be at most {MAX_TASKS} tasks, not {len(listed)}")
    tasks = _by_id(listed, "workflow.specification.tasks", "id")
    parents = _parents(tasks)
    execution = _map(body.get("execution") or {}, "workflow.execution")
    runs = _by_id(execution.get("tasks") or [], "workflow.execution.tasks", "id")
    groups = _groups(tasks, parents)
    if len(groups) > _MAX_STAGES:
        raise UserError(f"workflow.specification.tasks: make {len(groups)} stages, at most {_MAX_STAGES} are possible")
    home = {task: name for name, members in groups.items() for task in members}
    moved = _moved(home, tasks, _sizes(body["specification"]))
    measured = any(run.get("runtimeInSeconds") not in (None, 0) for run in runs.values())
    stages = []
    for name, members in groups.items():
        after = dict.fromkeys(home[parent] for task in members for parent in parents[task])
        after.pop(name, None)
        stage = _stage(name, members, tuple(after), tasks, runs, packing, measured)
        inputs = tuple(moved.get((parent, name), 0.0) for parent in after)
        stages.append(replace(stage, inputs=inputs) if any(inputs) else stage)
    title = _UNSAFE.sub("-", str(document.get("name") or "workflow"))[:40]
    return Workflow(name=title or "workflow", stages=tuple(stages), source=source)


def _map(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: must be a map")
    return value


def _by_id(listed: object, where: str, key: str) -> dict[str, Mapping[str, Any]]:
    if not isinstance(listed, list):
        raise UserError(f"{where}: must be a list")
    found: dict[str, Mapping[str, Any]] = {}
    for i, task in enumerate(listed):
        name = task.get(key) if isinstance(task, dict) else None
        if not isinstance(name, str) or not name:
            raise UserError(f"{where}[{i}]: must be a map with a text as {key!r}")
        if name in found:
            raise UserError(f"{where}[{i}].{key}: {name[:60]!r} is there twice")
        found[name] = task
    return found


def _parents(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Of every task, as `parents` and `children` together say."""
    found: dict[str, dict[str, None]] = {name: {} for name in tasks}
    for i, (name, task) in enumerate(tasks.items()):
        for key in ("parents", "children"):
            others = task.get(key) or []
            if not isinstance(others, list):
                raise UserError(f"workflow.specification.tasks[{i}].{key}: must be a list of ids")
            for other in others:
                if not isinstance(other, str) or other not in tasks:
                    raise UserError(f"workflow.specification.tasks[{i}].{key}: there is no task {str(other)[:60]!r}")
                if key == "parents":
                    found[name][other] = None
                else:
                    found[other][name] = None
    return {name: tuple(others) for name, others in found.items()}


def _sizes(specification: Mapping[str, Any]) -> dict[str, float]:
    """The bytes of every file that has a size; files without one are taken as empty."""
    files = specification.get("files")
    found: dict[str, float] = {}
    for i, file in enumerate(files if isinstance(files, list) else ()):
        if not isinstance(file, dict) or not isinstance(file.get("id"), str):
            continue
        size = file.get("sizeInBytes") or 0
        if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < 1e18:
            where = f"workflow.specification.files[{i}].sizeInBytes"
            raise UserError(f"{where}: must be bytes of at least 0, not {show(size)}")
        found[file["id"]] = float(size)
    return found


def _moved(
    home: Mapping[str, str], tasks: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, float]
) -> dict[tuple[str, str], float]:
    """By stage and stage after it: the bytes of the files that go from one to the other, each counted once."""
    files: dict[str, dict[str, set[str]]] = {"outputFiles": {}, "inputFiles": {}}
    for name, task in tasks.items():
        for key, by_file in files.items():
            listed = task.get(key)
            for file in listed if isinstance(listed, list) else ():
                if isinstance(file, str):
                    by_file.setdefault(file, set()).add(home[name])
    found: dict[tuple[str, str], float] = {}
    for file, makers in files["outputFiles"].items():
        for pair in ((a, b) for a in makers for b in files["inputFiles"].get(file, ()) if a != b):
            found[pair] = found.get(pair, 0.0) + sizes.get(file, 0.0)
    return found


def _groups(tasks: Mapping[str, Mapping[str, Any]], parents: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The tasks of each stage, parents' stages first as far as levels go."""
    depth = _depths(parents)
    said = {name: task["stage"] for name, task in tasks.items() if "stage" in task}
    for name, stage in said.items():
        if not isinstance(stage, str) or not NAME_PATTERN.fullmatch(stage):
            raise UserError(f"task {name[:60]!r}: stage: must be 1 to 40 of A-Z a-z 0-9 _ . -")
    levels: dict[int, list[str]] = {}
    groups: dict[str, list[str]] = {}
    for name in sorted(tasks, key=depth.__getitem__):
        if name in said:
            groups.setdefault(said[name], []).append(name)
        else:
            levels.setdefault(depth[name], []).append(name)
    for level, members in levels.items():
        kinds = (_NUMBER.sub("", str(tasks[m].get("name") or m)) or "tasks" for m in members)
        kind = Counter(kinds).most_common(1)[0][0]
        name = f"{level + 1}-{_UNSAFE.sub('-', kind)}"[:40]
        groups.setdefault(name, []).extend(members)
    return groups


def _depths(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The length of the longest way to each task."""
    children: dict[str, list[str]] = {name: [] for name in parents}
    for name, before in parents.items():
        for parent in before:
            children[parent].append(name)
    missing = {name: len(before) for name, before in parents.items()}
    depth = dict.fromkeys(parents, 0)
    ready = [name for name, count in missing.items() if count == 0]
    done = 0
    while ready:
        name = ready.pop()
        done += 1
        for child in children[name]:
            depth[child] = max(depth[child], depth[name] + 1)
            missing[child] -= 1
            if missing[child] == 0:
                ready.append(child)
    if done < len(parents):
        raise UserError(f"workflow.specification.tasks: form a cycle: {' -> '.join(_cycle(parents, missing))}")
    return depth


def _cycle(parents: Mapping[str, Sequence[str]], missing: Mapping[str, int]) -> list[str]:
    """One cycle, in the order of work; at most eight names of it."""
    name = next(name for name, count in missing.items() if count > 0)
    seen: dict[str, int] = {}
    way: list[str] = []
    while name not in seen:
        seen[name] = len(way)
        way.append(name)
        name = next(parent for parent in parents[name] if missing[parent] > 0)
    cycle = [*way[seen[name] :], name][::-1]
    shown = cycle if len(cycle) <= 8 else [*cycle[:7], "…", cycle[-1]]
    return [one[:60] for one in shown]


def _stage(
    name: str,
    members: Sequence[str],
    after: tuple[str, ...],
    tasks: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, Mapping[str, Any]],
    packing: Packing,
    measured: bool,
) -> Stage:
    """A stage of these tasks; `measured`: the file has a run time above 0 for some task."""
    made = [_task(member, tasks[member], runs.get(member), packing) for member in members]
    wanted = sum(min(task.cores, packing.cores) for task in made)
    nodes = min(max(math.ceil(wanted / packing.cores), 1), packing.nodes)
    if packing.pool is None:
        command, retries, meanwhile = packed_command(made, nodes, packing.cores), 0, ""
    else:
        command, retries, meanwhile = pool_command(made, packing.pool.stage), _POOL_RETRIES, packing.pool.join
    if len(command) > _MAX_COMMAND:
        raise UserError(
            f"stage {name}: the script of its {len(made)} tasks has {len(command) // 1000} kB, Slurm takes 4 MB; "
            "divide it with the key `stage` of the tasks"
        )
    known = packed_time(made, nodes, packing.cores)
    said = known > 0.0 or all("runtimeInSeconds" in runs.get(member, {}) for member in members)
    # In a file that has measured others, 0.0 is a short one.
    guessed = not (said and measured)
    known = known if guessed else max(known, _SHORTEST_RUN)
    if guessed and packing.time is None:
        why = "says that all its tasks take 0 s" if said else "gives no run time of its tasks"
        raise UserError(
            f"stage {name}: the file {why} (workflow.execution.tasks[].runtimeInSeconds), "
            "so its time limit must be given (--time)"
        )
    limit = max(known * packing.margin, _SHORTEST_LIMIT) if packing.time is None else packing.time
    expected = limit if guessed else min(known, limit)
    return Stage(name, nodes, limit, expected, command, after, retries, guessed, meanwhile)


def _task(name: str, task: Mapping[str, Any], run: Mapping[str, Any] | None, packing: Packing) -> WorkflowTask:
    run = run or {}
    where = f"task {name[:60]!r}"
    seconds = run.get("runtimeInSeconds", 0.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        raise UserError(f"{where}: runtimeInSeconds: must be seconds of at least 0, not {show(seconds)}")
    cores = run.get("coreCount") or 1
    if isinstance(cores, bool) or not isinstance(cores, int | float) or not 0 < cores <= 1e6:
        raise UserError(f"{where}: coreCount: must be above 0, not {show(cores)}")
    return WorkflowTask(_command(name, task, run, packing, float(seconds)), float(seconds), math.ceil(cores), name)


def _command(name: str, task: Mapping[str, Any], run: Mapping[str, Any], packing: Packing, seconds: float) -> str:
    said = run.get("command") or task.get("command")
    program, arguments = (said.get("program"), said.get("arguments") or []) if isinstance(said, dict) else (None, [])
    words = [str(word) for word in arguments] if isinstance(arguments, list) else [str(arguments)]
    if packing.command is not None:
        fields = {
            "id": shlex.quote(name),
            "name": shlex.quote(str(task.get("name") or name)),
            "program": shlex.quote(str(program or "")),
            "arguments": shlex.join(words),
            "runtime": f"{seconds:g}",
        }
        try:
            made = packing.command.format(**fields)
        except (KeyError, IndexError, ValueError, AttributeError) as e:
            raise UserError(f"the tasks' command: only {{{'}, {'.join(fields)}}} can stand in it: {e}") from e
    elif not isinstance(program, str) or not program.strip():
        if not packing.runs:
            return ":"
        raise UserError(f"task {name[:60]!r}: has no command (workflow.execution.tasks[].command.program)")
    elif words and "/" in words[0] and PurePath(words[0]).name == PurePath(program).name:
        made = shlex.join(words)  # some writers repeat the program as it was called
    elif "\n" in program or (not words and len(program.split()) > 1):
        made = " ".join([program.strip(), *map(shlex.quote, words)])  # a script, as Nextflow's instances have
    else:
        made = shlex.join([program, *words])
    if "\0" in made or not made.strip():
        raise UserError(f"task {name[:60]!r}: its command must be a shell command")
    return f"set -e\n{made}" if "\n" in made else made  # as a stage of several lines ends at one that fails
