"""A workflow: stages, what each asks for, and which comes after which. Values only; checked when made.

Errors name the key as it stands in a workflow file (`stages[1].nodes`), counted from 0, without the file's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType, NoneType
from typing import Any, Final

from penstock.errors import UserError
from penstock.values.graph import find_cycle, in_order
from penstock.workflow.asks import NO_ASKS, Asks, asks_from_dict, asks_to_dict

__all__ = ["NAME_PATTERN", "SHELLS", "Stage", "Workflow", "submitted_from", "workflow_from_dict", "workflow_to_dict"]

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
SHELLS: Final = ("strict", "plain")
"""How a stage's shell takes a line that fails: `strict` ends the stage (`set -eo pipefail`), `plain` goes on with the
next, as in a script that sbatch runs."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: `nodes` whole nodes, `time_limit` and expected `run_time` in seconds, the shell `command` to run.

    `after` names the stages that must have completed before it starts. A failed attempt is repeated `retries` times;
    one that failed with its nodes is repeated anyway. `guessed`: nobody has said how long it runs, `run_time` is only
    its limit; what earlier runs took is better. `meanwhile`: a shell command that makes use of the nodes of a job which
    has started before its parents have ended; it is ended with the job's script at the latest. `took` are the run times
    of earlier runs in seconds, for plans that choose how long its slot is. `inputs` are the bytes that it needs of each
    stage in `after`, in that order; empty: nobody has said. `workdir` is where it runs, None: where the workflow does;
    `asks` is what it asks Slurm for besides nodes and time. `script`: the command is one program, which the job's
    shell may become.
    """

    name: str
    nodes: int
    time_limit: float
    run_time: float
    command: str
    after: tuple[str, ...] = ()
    retries: int = 0
    guessed: bool = False
    meanwhile: str = ""
    took: tuple[float, ...] = ()
    inputs: tuple[float, ...] = ()
    workdir: str | None = None
    asks: Asks = NO_ASKS
    script: bool = False


@dataclass(frozen=True, slots=True)
class Workflow:
    """Stages that depend on each other without a cycle. None leaves the choice to Slurm's defaults.

    `shell` is one of `SHELLS`. `folder` and `umask` are those of whoever submits it, None: not known. `source` is the
    file it came from, for messages; `notices` are what its user should know about it, a line each. Raises UserError
    when a value is out of range, a name doubled or unknown, or the stages wait for each other in a circle.
    """

    name: str
    stages: tuple[Stage, ...]
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    workdir: str | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    source: str = "workflow"
    shell: str = "strict"
    folder: str | None = None
    umask: int | None = None
    notices: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise UserError(f"name: must be 1 to 40 of A-Z a-z 0-9 _ . -, not {self.name[:60]!r}")
        if self.shell not in SHELLS:
            raise UserError(f"shell: must be {' or '.join(SHELLS)}, not {self.shell[:60]!r}")
        if not self.stages:
            raise UserError("stages: must have at least one stage")
        seen: dict[str, int] = {}
        for i, stage in enumerate(self.stages):
            _check_stage(i, stage)
            if stage.name in seen:
                raise UserError(f"stages[{i}].name: {stage.name!r} is the name of stages[{seen[stage.name]}] already")
            seen[stage.name] = i
        for i, stage in enumerate(self.stages):
            for parent in stage.after:
                if parent not in seen:
                    raise UserError(f"stages[{i}].after: there is no stage {parent!r} (stages: {', '.join(seen)})")
            if len(set(stage.after)) != len(stage.after):
                raise UserError(f"stages[{i}].after: names a stage twice")
        if cycle := find_cycle(len(self.stages), self._edges()):
            names = [self.stages[i].name for i in cycle]
            raise UserError(f"stages[{cycle[0]}].after: the stages form a cycle: {' -> '.join(names)}")

    def _edges(self) -> list[tuple[int, int]]:
        """From every stage to each that comes after it, by their places."""
        place = {stage.name: i for i, stage in enumerate(self.stages)}
        return [(place[parent], i) for i, stage in enumerate(self.stages) for parent in stage.after]

    @property
    def order(self) -> tuple[Stage, ...]:
        """The stages so that each comes after its parents; otherwise as they were written."""
        return tuple(self.stages[i] for i in in_order(len(self.stages), self._edges()))

    def index(self, name: str) -> int:
        """The place of a stage in `stages`, as messages count it. Raises KeyError."""
        for i, stage in enumerate(self.stages):
            if stage.name == name:
                return i
        raise KeyError(name)


def _check_stage(i: int, stage: Stage) -> None:
    where = f"stages[{i}]"
    if not NAME_PATTERN.fullmatch(stage.name):
        raise UserError(f"{where}.name: must be 1 to 40 of A-Z a-z 0-9 _ . -, not {stage.name[:60]!r}")
    if stage.nodes < 1:
        raise UserError(f"{where}.nodes: must be at least 1, not {stage.nodes}")
    if not (math.isfinite(stage.time_limit) and stage.time_limit > 0):
        raise UserError(f"{where}.time: must be longer than 0 s, not {stage.time_limit:g} s")
    for j, seconds in enumerate(stage.took):
        if not 0 < seconds <= stage.time_limit:
            raise UserError(
                f"{where}.took[{j}]: must be longer than 0 s and not longer than time ({stage.time_limit:g} s), "
                f"not {seconds:g} s"
            )
    if not (math.isfinite(stage.run_time) and stage.run_time > 0):
        raise UserError(f"{where}.expect: must be longer than 0 s, not {stage.run_time:g} s")
    if stage.run_time > stage.time_limit:
        raise UserError(
            f"{where}.expect: must not be longer than time ({stage.time_limit:g} s), not {stage.run_time:g} s"
        )
    if stage.inputs and len(stage.inputs) != len(stage.after):
        raise UserError(f"{where}.inputs: must be as many as the stages that it comes after")
    if not all(math.isfinite(size) and size >= 0 for size in stage.inputs):
        raise UserError(f"{where}.inputs: must be bytes of at least 0")
    if not stage.command.strip():
        raise UserError(f"{where}.run: must be a shell command, not empty")
    if stage.asks is not NO_ASKS:
        stage.asks.check(where)


def submitted_from(workflow: Workflow, folder: str, umask: int) -> Workflow:
    """The workflow as it is submitted from that folder (absolute): where its stages run unless it says otherwise, and
    what its relative folders are relative to."""

    def placed(name: str) -> str:
        return str(PurePosixPath(folder) / name)

    stages = tuple(s if s.workdir is None else replace(s, workdir=placed(s.workdir)) for s in workflow.stages)
    workdir = placed(workflow.workdir or ".")
    return replace(workflow, stages=stages, workdir=workdir, folder=folder, umask=umask)


def workflow_to_dict(workflow: Workflow) -> dict[str, Any]:
    """The workflow as JSON-able values, versioned."""
    return {
        "version": _VERSION,
        "name": workflow.name,
        "partition": workflow.partition,
        "account": workflow.account,
        "qos": workflow.qos,
        "workdir": workflow.workdir,
        "environment": dict(workflow.environment),
        "source": workflow.source,
        "shell": workflow.shell,
        "folder": workflow.folder,
        "umask": workflow.umask,
        "stages": [
            {
                "name": s.name,
                "nodes": s.nodes,
                "time_limit": s.time_limit,
                "run_time": s.run_time,
                "command": s.command,
                "after": list(s.after),
                "retries": s.retries,
                "guessed": s.guessed,
                "meanwhile": s.meanwhile,
                "took": list(s.took),
                "inputs": list(s.inputs),
                "workdir": s.workdir,
                "asks": asks_to_dict(s.asks),
                "script": s.script,
            }
            for s in workflow.stages
        ],
    }


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "name": (str,),
    "stages": (list, tuple),
    "partition": (str, NoneType),
    "account": (str, NoneType),
    "qos": (str, NoneType),
    "workdir": (str, NoneType),
    "environment": (dict,),
    "source": (str,),
    "shell": (str,),
    "folder": (str, NoneType),
    "umask": (int, NoneType),
}
_STAGE_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "name": (str,),
    "nodes": (int,),
    "time_limit": (int, float),
    "run_time": (int, float),
    "command": (str,),
    "after": (list, tuple),
    "retries": (int,),
    "guessed": (bool,),
    "meanwhile": (str,),
    "took": (list, tuple),
    "inputs": (list, tuple),
    "workdir": (str, NoneType),
    "asks": (dict,),
    "script": (bool,),
}
_MOST: Final = 2**53  # what is above is no number of nodes and no time


def _of_kind(data: object, kinds: Mapping[str, tuple[type, ...]], what: str) -> None:
    if not isinstance(data, dict):
        raise TypeError(f"a {what} must be a map")
    for key, allowed in kinds.items():
        value = data.get(key)
        fits = type(value) in allowed and not (isinstance(value, int) and abs(value) > _MOST)
        if key in data and not fits:
            raise TypeError(f"{key!r} of a {what} must be of type {' or '.join(kind.__name__ for kind in allowed)}")


def workflow_from_dict(data: Mapping[str, Any]) -> Workflow:
    """What `workflow_to_dict` gave, or somebody who says so. Raises ValueError for another version, KeyError for a key
    that is missing, TypeError for a value of another kind, and UserError as `Workflow`."""
    if not isinstance(data, dict):
        raise TypeError("a workflow must be a map")
    if data.get("version") != _VERSION:
        raise ValueError(f"stored workflow has version {data.get('version')!r}, this release reads {_VERSION}")
    for stage in data["stages"]:
        _of_kind(stage, _STAGE_KINDS, "stage")
        if not all(isinstance(name, str) for name in stage.get("after", ())):
            raise TypeError("a stage's 'after' must be a list of texts")
        if not all(type(time) in (int, float) for time in stage.get("took", ())):
            raise TypeError("a stage's 'took' must be a list of numbers")
        if not all(type(size) in (int, float) for size in stage.get("inputs", ())):
            raise TypeError("a stage's 'inputs' must be a list of numbers")
    _of_kind(data, _KINDS, "workflow")
    if not all(isinstance(word, str) for item in data["environment"].items() for word in item):
        raise TypeError("a workflow's 'environment' must be a map of texts")
    return Workflow(
        name=data["name"],
        stages=tuple(map(_stage_from_dict, data["stages"])),
        partition=data["partition"],
        account=data["account"],
        qos=data["qos"],
        workdir=data["workdir"],
        environment=MappingProxyType(dict(data["environment"])),
        source=data["source"],
        # Files of earlier releases did not say, and were strict.
        shell=data.get("shell", "strict"),
        folder=data.get("folder"),
        umask=data.get("umask"),
    )


def _stage_from_dict(data: Mapping[str, Any]) -> Stage:
    lists = {key: tuple(data.get(key, ())) for key in ("took", "inputs")}
    asks = asks_from_dict(data["asks"]) if data.get("asks") else NO_ASKS
    return Stage(**{**data, "after": tuple(data["after"]), **lists, "asks": asks})
