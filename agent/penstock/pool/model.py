"""Tasks and the members of a pool: the words of this package, and how tasks are read from JSON. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from penstock.errors import UserError
from penstock.select.units import AMOUNT_FORMS, parse_amount
from penstock.values.durations import DURATION_FORMS, parse_duration

__all__ = ["Capacity", "Member", "Outcome", "Phase", "Task", "Use", "memory_of", "task_from_dict", "task_to_dict"]

_RETRIES: Final = 2
_MAX_RETRIES: Final = 100
_MAX_CORES: Final = 100_000


class Phase(StrEnum):
    """Where a task stands."""

    WAITING = "waiting"  # also between two attempts
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"  # as often as it may
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Nothing more comes."""
        return self in (Phase.COMPLETE, Phase.FAILED, Phase.CANCELLED)


class Outcome(StrEnum):
    """How one attempt ended."""

    COMPLETE = "complete"
    FAILED = "failed"  # its command did: it is tried again elsewhere, up to a limit
    LOST = "lost"  # its member went away: it is always tried again
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Task:
    """A command (an argument list, no shell) and what it needs.

    `cores` may be a fraction; `memory` is in bytes, `seconds` the expected run time; None: not said. `inputs` are files
    that must be there when it starts. `name` is unique within the pool where it is given. `retries`: how often it may
    fail and be tried again. Tasks of different `workflow`s may share cores that they leave idle.
    """

    argv: tuple[str, ...]
    name: str = ""
    workflow: str = ""
    cores: float = 1.0
    memory: int | None = None
    gpus: int = 0
    seconds: float | None = None
    inputs: tuple[str, ...] = ()
    workdir: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    retries: int = _RETRIES


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a member has: `memory` in bytes (None: not told, anything goes)."""

    cores: float
    memory: int | None = None
    gpus: int = 0

    def holds(self, task: Task) -> bool:
        """Whether it could run the task if it ran nothing else."""
        return (
            task.cores <= self.cores
            and task.gpus <= self.gpus
            and (self.memory is None or (task.memory or 0) <= self.memory)
        )

    def __str__(self) -> str:
        parts = [f"{self.cores:g} cores"]
        if self.memory is not None:
            parts.append(f"{self.memory / 1e9:.3g} GB")
        if self.gpus:
            parts.append(f"{self.gpus} GPUs")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Member:
    """One node of one allocation. `ends`: the instant by which its tasks must have ended, on the scheduler's clock;
    None: it has no end."""

    address: str
    node: str
    job: str
    capacity: Capacity
    ends: float | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """What one attempt took: wall and CPU time in seconds, the most memory in bytes that was seen."""

    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0


_KEYS: Final = ("command", *(f.name for f in fields(Task) if f.name not in ("argv", "seconds")), "time")


def task_from_dict(value: object, where: str, workdir: str) -> Task:
    """The task that a JSON object describes; `workdir` is taken where it names none.

    Keys: command (a list, or a text that is split into words as a shell would), name, workflow, cores, memory, gpus,
    time, inputs, workdir, environment, retries. Raises UserError that begins with `where`.
    """
    if not isinstance(value, dict):
        raise UserError(f"{where}: must be a JSON object with the key `command`")
    for key in value:
        if key not in _KEYS:
            raise UserError(f"{where}: unknown key {str(key)[:40]!r}; known: {', '.join(_KEYS)}")
    environment = value.get("environment") or {}
    if not isinstance(environment, dict) or not all(
        isinstance(v, str) and "\0" not in k + v and k and "=" not in k for k, v in environment.items()
    ):
        raise UserError(f"{where}: environment: must be a map of texts")
    folder = _text(value, "workdir", where) or workdir
    if not folder.startswith("/"):
        raise UserError(f"{where}: workdir: must be an absolute path, not {folder!r}")
    seconds = parse_duration(value["time"]) if value.get("time") is not None else None
    if value.get("time") is not None and seconds is None:
        raise UserError(f"{where}: time: must be {DURATION_FORMS}, not {str(value['time'])[:40]!r}")
    return Task(
        argv=_command(value.get("command"), where),
        name=_text(value, "name", where),
        workflow=_text(value, "workflow", where),
        cores=_number(value, "cores", where, 1.0),
        memory=memory_of(value.get("memory"), f"{where}: memory"),
        gpus=_count(value, "gpus", where, 0, 1024),
        seconds=seconds,
        inputs=_texts(value.get("inputs") or [], f"{where}: inputs"),
        workdir=folder,
        environment=environment,
        retries=_count(value, "retries", where, _RETRIES, _MAX_RETRIES),
    )


def task_to_dict(task: Task) -> dict[str, Any]:
    """What `task_from_dict` reads; keys that say nothing are left out."""
    value: dict[str, Any] = {
        "name": task.name,
        "workflow": task.workflow,
        "memory": task.memory,
        "gpus": task.gpus,
        "time": task.seconds,
        "inputs": list(task.inputs),
        "environment": dict(task.environment),
    }
    value = {key: said for key, said in value.items() if said}
    value |= {"command": list(task.argv), "workdir": task.workdir, "cores": task.cores, "retries": task.retries}
    return value


def _command(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as e:
            raise UserError(f"{where}: command: {e}") from None
    words = _texts(value if value is not None else [], f"{where}: command")
    if not words or not words[0]:
        raise UserError(f"{where}: command: must be a list of words or a text, not empty")
    return words


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) and "\0" not in word for word in value):
        raise UserError(f"{where}: must be a list of texts")
    return tuple(value)


def _text(value: Mapping[str, Any], key: str, where: str) -> str:
    said = value.get(key) or ""
    if not isinstance(said, str) or len(said) > 4096 or not said.isprintable():
        raise UserError(f"{where}: {key}: must be a printable text")
    return said


def _number(value: Mapping[str, Any], key: str, where: str, default: float) -> float:
    said = value.get(key, default)
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said <= _MAX_CORES or math.isnan(said):
        raise UserError(f"{where}: {key}: must be a number above 0, such as 1 or 0.5, not {str(said)[:40]!r}")
    return float(said)


def _count(value: Mapping[str, Any], key: str, where: str, default: int, most: int) -> int:
    said = value.get(key, default)
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said <= most:
        raise UserError(f"{where}: {key}: must be a whole number from 0 to {most}, not {str(said)[:40]!r}")
    return said


def memory_of(value: object, where: str) -> int | None:
    """Bytes, from a number or a text such as 2GB. Raises UserError that begins with `where`."""
    if value is None:
        return None
    try:
        return int(parse_amount(value))
    except ValueError as e:
        raise UserError(f"{where}: {str(e).replace(AMOUNT_FORMS, 'an amount such as 512 MiB or 2 GB')}") from None
