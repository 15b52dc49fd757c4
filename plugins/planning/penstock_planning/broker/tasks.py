"""A task file: what each task needs and runs, and how many of them there are.

    name: md                        # what is learned of run times is kept by it; if left out the file's
    count: 64                       # how many; -n says otherwise
    run: ./md.sh $PENSTOCK_TASK     # what each runs; only --submit needs it
    time: 2h                        # its time limit; if left out three times the predicted run time
    requirements:
      - {type: compute, form: {isa: x86}, amount: 3e12}
      - {type: memory, hold: 4 GB}
    parallel: {cores: 8, serial: 0.05}
    nodes: 2                        # how many nodes each runs on at once; cores are those of all of them
    checkpoint: 30m                 # begins no further back after an interruption; if left out it begins anew
    input: 3 GB                     # what each fetches first where its cluster has a link in the site file

Several tasks stand under `tasks:`. `instructions:` is a list of such lists (Eq. 1 adds them up), `profile:` a file of
`penstock profile` in their place or beside them, `include:` names other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from penstock.errors import UserError
from penstock.values.models import Bytes, Content, Duration, Entry, Name, Text, VariableName, read_as, whole
from penstock_planning.broker.consumables import Cores, ParallelEntry, RequirementEntry
from penstock_planning.broker.files import Entry as Found
from penstock_planning.broker.files import entries
from penstock_planning.broker.profiles import load_profile, requirements_of
from penstock_planning.select.consumables import Parallel, Requirement, Task
from penstock_planning.select.speedup import Amdahl, SpeedupTable
from penstock_planning.select.values import Value

__all__ = ["Bag", "bag_at", "entry_of", "read_bags"]

_OPTIONS: Final = {"partition", "account", "qos", "constraint", "gres", "workdir"}


@dataclass(frozen=True, slots=True)
class Bag:
    """`count` independent tasks alike, each on `nodes` nodes at once. `run` is a shell command, `limit` seconds;
    None where the file does not say.

    `fill` is how nodes are filled that no other job shares: with tasks (pack), with copies of one beside it (pad), or
    not (none). `options` are further ones of sbatch's by name (partition, account, qos, constraint, gres, workdir).
    `checkpoint` is how much work (s) is lost at most when a task is interrupted; None: all of it. `input` is what each
    fetches before it begins (bytes), on clusters where that takes time.
    """

    task: Task
    count: int = 1
    run: str | None = None
    limit: float | None = None
    fill: str = "pack"
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 1
    checkpoint: float | None = None
    input: float = 0.0

    @property
    def qos(self) -> tuple[str, ...]:
        """The QOS that its jobs may have, the first one preferred; none: Slurm's default."""
        return tuple(filter(None, self.options.get("qos", "").split(",")))

    @property
    def ways(self) -> list[Bag]:
        """The same under each QOS alone that its jobs may have, the one preferred first."""
        return [replace(self, options={**self.options, "qos": qos}) for qos in self.qos] or [self]


def _plain(value: object) -> object:
    """An instruction that has its requirements under that name."""
    return value["requirements"] if isinstance(value, dict) and set(value) == {"requirements"} else value


class _BagEntry(Entry):
    name: Name
    count: Annotated[int, whole(1, 100_000)] = 1
    run: Text | None = None
    time: Duration | None = None
    checkpoint: Duration | None = None
    input: Bytes | None = None
    requirements: list[RequirementEntry] | None = None
    instructions: list[Annotated[list[RequirementEntry], BeforeValidator(_plain)]] | None = None
    profile: Text | None = None
    cores: Cores | None = None
    nodes: Annotated[int, whole(1, 100_000)] = 1
    parallel: ParallelEntry | None = None
    fill: Literal["pack", "pad", "none"] = "pack"
    partition: Name | None = None
    account: Name | None = None
    qos: Name | None = None
    constraint: Name | None = None
    gres: Name | None = None
    workdir: Text | None = None
    environment: dict[VariableName, Content] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.requirements is not None and self.instructions is not None:
            raise ValueError("has both 'requirements' and 'instructions'; the first is one instruction")
        assert self.gains  # or it says what is wrong
        return self

    @property
    def gains(self) -> Parallel:
        """How it gets faster. Raises ValueError."""
        made = self.parallel.made(self.cores) if self.parallel else Parallel(self.cores or self.nodes)
        if made.cores % self.nodes:
            text = f"{made.cores} cores cannot be divided by {self.nodes} nodes: name the cores of all nodes together"
            raise ValueError(text)
        return made


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


def _bags(found: Iterator[Found], stem: str) -> Iterator[Bag]:
    for number, (where, entry, folder) in enumerate(found):
        yield bag_at(entry, where, folder, f"{stem}{number + 1}" if number else stem)


def bag_at(entry: object, where: str, folder: Path, default: str) -> Bag:
    """One entry of a task file; `default` is its name if it has none. UserError names the place of what is wrong."""
    if isinstance(entry, dict) and entry.get("name") is None:
        entry = {**entry, "name": default}
    said = read_as(_BagEntry, entry, where)
    instructions = [[one.made for one in said.requirements]] if said.requirements is not None else []
    if said.profile is not None:
        instructions.append(list(requirements_of(load_profile(folder / said.profile))))
    instructions += [[one.made for one in several] for several in said.instructions or ()]
    if not instructions:
        raise UserError(f"{where}: the key 'requirements' is missing (or 'profile')")
    if all(req.held for instruction in instructions for req in instruction):
        raise UserError(f"{where}: uses nothing up: at least one requirement must have an 'amount', such as cycles")
    return Bag(
        Task(said.name, tuple(map(tuple, instructions)), said.gains),
        said.count,
        said.run,
        said.time,
        said.fill,
        said.model_dump(include=_OPTIONS, exclude_none=True),
        said.environment,
        said.nodes,
        said.checkpoint,
        said.input or 0.0,
    )


def entry_of(bag: Bag) -> dict[str, Any]:
    """The bag as an entry of a task file."""
    parallel = bag.task.parallel
    gains: dict[str, Any] = {"cores": parallel.cores, "types": sorted(parallel.types)}
    if isinstance(parallel.speedup, Amdahl):
        gains["serial"] = parallel.speedup.serial
    elif isinstance(parallel.speedup, SpeedupTable):
        gains["speedup"] = {str(n): times for n, times in parallel.speedup.points}
    return {
        "name": bag.task.name,
        "count": bag.count,
        **({} if bag.run is None else {"run": bag.run}),
        **({} if bag.limit is None else {"time": bag.limit}),
        **({} if bag.checkpoint is None else {"checkpoint": bag.checkpoint}),
        **({"input": bag.input} if bag.input else {}),
        "instructions": [[_requirement_of(req) for req in one] for one in bag.task.instructions],
        **({"cores": parallel.cores} if parallel.speedup is None else {"parallel": gains}),
        "fill": bag.fill,
        **({} if bag.nodes == 1 else {"nodes": bag.nodes}),
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
