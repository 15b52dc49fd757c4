"""A task file: what each task needs and runs, and how many of them there are.

    name: md                        # what is learned of run times is kept by it; if left out the file's
    count: 64                       # how many; -n says otherwise
    run: ./md.sh $PENSTOCK_TASK     # what each runs; only --submit needs it
    time: 2h                        # its time limit; if left out three times the predicted run time
    requirements:
      - {type: compute, form: {isa: x86}, amount: 3e12}
      - {type: memory, hold: 4 GB}
    parallel: {cores: 8, serial: 0.05}

Several tasks stand under `tasks:`. `instructions:` is a list of such lists (Eq. 1 adds them up), `profile:` a file of
`penstock profile` in their place or beside them, `include:` names other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.broker.consumables import count_at, name_at, parallel_at, requirements_at, text_at
from penstock.broker.files import Entry, entries
from penstock.broker.profiles import load_profile, requirements_of
from penstock.errors import UserError
from penstock.select.consumables import Instruction, Parallel, Requirement, Task
from penstock.select.values import Value
from penstock.values.documents import mapping, show
from penstock.values.durations import DURATION_FORMS, parse_duration
from penstock.values.speedup import Amdahl, Table

__all__ = ["FILLS", "Bag", "bag_at", "entry_of", "read_bags"]

FILLS: Final = ("pack", "pad", "none")
"""How nodes are filled that no other job shares: with tasks, with copies of one beside it, or not."""

_KEYS: Final = (
    "name", "count", "run", "time", "requirements", "instructions", "profile", "cores", "parallel", "fill", "partition",
    "account", "qos", "constraint", "gres", "workdir", "environment",
)  # fmt: skip
_MOST_TASKS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Bag:
    """`count` independent tasks alike. `run` is a shell command, `limit` seconds; None where the file does not say.

    `options` are further ones of sbatch's by name (partition, account, qos, constraint, gres, workdir).
    """

    task: Task
    count: int = 1
    run: str | None = None
    limit: float | None = None
    fill: str = "pack"
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def read_bags(path: Path) -> list[Bag]:
    """The tasks of a file and of those that it includes. UserError for what cannot be read or is wrong."""
    bags = list(_bags(entries(path, "tasks", "task file"), path.stem))
    if not bags:
        raise UserError(f"{path}: has no tasks")
    names = [bag.task.name for bag in bags]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: two tasks are called {name!r}")
    return bags


def _bags(found: Iterator[Entry], stem: str) -> Iterator[Bag]:
    for number, (where, entry, folder) in enumerate(found):
        yield bag_at(entry, where, folder, f"{stem}{number + 1}" if number else stem)


def bag_at(entry: object, where: str, folder: Path, default: str) -> Bag:
    """One entry of a task file; `default` is its name if it has none. UserError names the place of what is wrong."""
    data = mapping(entry, where, _KEYS, ())
    name = name_at(data.get("name", default), f"{where}.name")
    cores = count_at(data["cores"], f"{where}.cores") if "cores" in data else None
    instructions = _instructions(data, where, folder)
    if not any(not req.held for instruction in instructions for req in instruction):
        raise UserError(f"{where}: uses nothing up: at least one requirement must have an 'amount', such as cycles")
    parallel = (
        Parallel(cores or 1) if "parallel" not in data else parallel_at(data["parallel"], f"{where}.parallel", cores)
    )
    limit = None
    if "time" in data:
        limit = parse_duration(data["time"])
        if limit is None:
            raise UserError(f"{where}.time: must be {DURATION_FORMS}, not {show(data['time'])}")
    fill = data.get("fill", "pack")
    if fill not in FILLS:
        raise UserError(f"{where}.fill: must be one of {', '.join(FILLS)}, not {show(fill)}")
    named = ("partition", "account", "qos", "constraint", "gres")
    options = {key: name_at(data[key], f"{where}.{key}") for key in named if key in data}
    if "workdir" in data:
        options["workdir"] = text_at(data["workdir"], f"{where}.workdir")
    return Bag(
        Task(name, instructions, parallel),
        count_at(data.get("count", 1), f"{where}.count", most=_MOST_TASKS),
        text_at(data["run"], f"{where}.run") if "run" in data else None,
        limit,
        fill,
        options,
        _environment(data.get("environment", {}), f"{where}.environment"),
    )


def _instructions(data: Mapping[str, Any], where: str, folder: Path) -> tuple[Instruction, ...]:
    if "requirements" in data and "instructions" in data:
        raise UserError(f"{where}: has both 'requirements' and 'instructions'; the first is one instruction")
    found: list[Instruction] = []
    if "requirements" in data:
        found.append(requirements_at(data["requirements"], f"{where}.requirements"))
    if "profile" in data:
        file = folder / text_at(data["profile"], f"{where}.profile")
        found.append(requirements_of(load_profile(file)))
    if "instructions" in data:
        given = data["instructions"]
        if not isinstance(given, list):
            raise UserError(f"{where}.instructions: must be a list of lists, not {show(given)}")
        for number, one in enumerate(given):
            at = f"{where}.instructions[{number}]"
            found.append(requirements_at(one["requirements"] if _is_named(one) else one, at))
    if not found:
        raise UserError(f"{where}: the key 'requirements' is missing (or 'profile')")
    return tuple(found)


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {"requirements"}


def _environment(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: must be a map of variables to texts, not {show(value)}")
    for key, text in value.items():
        if not isinstance(key, str) or not key.isidentifier() or not isinstance(text, str | int | float):
            raise UserError(f"{where}: must be a map of variables to texts, not {show(key)}: {show(text)}")
    return {key: str(text) for key, text in value.items()}


def entry_of(bag: Bag) -> dict[str, Any]:
    """The bag as an entry of a task file."""
    parallel = bag.task.parallel
    gains: dict[str, Any] = {"cores": parallel.cores, "types": sorted(parallel.types)}
    if isinstance(parallel.speedup, Amdahl):
        gains["serial"] = parallel.speedup.serial
    elif isinstance(parallel.speedup, Table):
        gains["speedup"] = {str(n): times for n, times in parallel.speedup.points}
    return {
        "name": bag.task.name,
        "count": bag.count,
        **({} if bag.run is None else {"run": bag.run}),
        **({} if bag.limit is None else {"time": bag.limit}),
        "instructions": [[_requirement_of(req) for req in one] for one in bag.task.instructions],
        **({"cores": parallel.cores} if parallel.speedup is None else {"parallel": gains}),
        "fill": bag.fill,
        **bag.options,
        "environment": dict(bag.environment),
    }


def _requirement_of(req: Requirement) -> dict[str, Any]:
    form = {name: [_raw(value) for value in sorted(values, key=str)] for name, values in req.consumable.form}
    return {"type": req.consumable.type, "form": form, "hold" if req.held else "amount": req.amount}


def _raw(value: Value) -> bool | float | str:
    if isinstance(value.content, bool | float) and not value.comparison:
        return value.content
    return str(value)
