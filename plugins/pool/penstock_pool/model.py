"""Tasks and the members of a pool: the words of this package. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from penstock_pool.terms import JobTerms, terms_from_dict, terms_to_dict

__all__ = [
    "RETRIES",
    "AttemptOutcome",
    "Capacity",
    "PoolMember",
    "PoolTask",
    "TaskPhase",
    "Use",
    "idle_share",
    "known_task",
    "task_to_dict",
]

RETRIES: Final = 2
"""How often a task that fails is tried again, where nobody says it."""
_LEAST_IDLE: Final = 5.0  # seconds
_IDLE_SHARE: Final = 0.05
_FUZZ: Final = 1e-9


class TaskPhase(StrEnum):
    """Where a task stands."""

    WAITING = "waiting"  # also between two attempts
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"  # as often as it may
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Nothing more comes."""
        return self in (TaskPhase.COMPLETE, TaskPhase.FAILED, TaskPhase.CANCELLED)


class AttemptOutcome(StrEnum):
    """How one attempt ended."""

    COMPLETE = "complete"
    FAILED = "failed"  # its command did: it is tried again elsewhere, up to a limit
    LOST = "lost"  # its member went away: it is always tried again
    CANCELLED = "cancelled"
    # Of a job, as failed: it took longer than its limit, or more memory than it asked for.
    TIMEOUT = "timeout"
    MEMORY = "memory"
    REQUEUED = "requeued"  # its owner wants it to run again

    @property
    def failed(self) -> bool:
        """Whether its command is to blame."""
        return self in (AttemptOutcome.FAILED, AttemptOutcome.TIMEOUT, AttemptOutcome.MEMORY)


@dataclass(frozen=True, slots=True)
class PoolTask:
    """A command (an argument list, no shell) and what it needs.

    `cores` may be a fraction; `memory` is in bytes, `seconds` the expected run time; None: not said. `inputs` are files
    that must be there when it starts. `name` is unique within the pool where it is given. `retries`: how often it may
    fail and be tried again. Tasks of different `workflow`s may share cores that they leave idle. `job`: it was
    submitted as a job, and keeps to these terms.
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
    retries: int = RETRIES
    job: JobTerms | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a member has: `memory` in bytes (None: not told, anything goes)."""

    cores: float
    memory: int | None = None
    gpus: int = 0

    def holds(self, task: PoolTask) -> bool:
        """Whether it could run the task if it ran nothing else."""
        return (
            task.cores <= self.cores
            and task.gpus <= self.gpus
            and (self.memory is None or (task.memory or 0) <= self.memory)
        )

    def threads(self, held: float = 0.0) -> int:
        """Whole cores that are left when `held` are taken: one thread each. A member of less than a core has one."""
        return max(0, int(max(self.cores, 1.0) - held + _FUZZ))

    def __str__(self) -> str:
        parts = [f"{self.cores:g} cores"]
        if self.memory is not None:
            parts.append(f"{self.memory / 1e9:.3g} GB")
        if self.gpus:
            parts.append(f"{self.gpus} GPUs")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class PoolMember:
    """One node of one allocation. `ends`: the instant by which its tasks must have ended, on the scheduler's clock;
    None: it has no end. `gives_back`: it leaves as soon as nothing that waits could end there in time."""

    address: str
    node: str
    job: str
    capacity: Capacity
    ends: float | None = None
    gives_back: bool = False


def idle_share(lasted: float, idled: float) -> float:
    """Seconds that a member which gives back what it cannot use may idle now, when it has been there for so long and
    has idled for so long of that before: a twentieth of its time in all, but a few seconds at the least."""
    return max(_LEAST_IDLE, _IDLE_SHARE * lasted - idled)


@dataclass(frozen=True, slots=True)
class Use:
    """What one attempt took: wall and CPU time in seconds, the most memory in bytes that was seen."""

    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0


def task_to_dict(task: PoolTask) -> dict[str, Any]:
    """What `taskjson.task_from_dict` reads; keys that say nothing are left out."""
    value: dict[str, Any] = {
        "name": task.name,
        "workflow": task.workflow,
        "memory": task.memory,
        "gpus": task.gpus,
        "time": task.seconds,
        "inputs": list(task.inputs),
        "environment": dict(task.environment),
        "job": None if task.job is None else terms_to_dict(task.job),
    }
    value = {key: said for key, said in value.items() if said}
    value |= {"command": list(task.argv), "workdir": task.workdir, "cores": task.cores, "retries": task.retries}
    return value


def known_task(told: Mapping[str, Any]) -> PoolTask:
    """The task from what `task_to_dict` has said of it, unchecked. Raises KeyError, TypeError or ValueError for what it
    cannot have said."""
    job = told.get("job")
    return PoolTask(
        argv=tuple(told["command"]),
        name=told.get("name", ""),
        workflow=told.get("workflow", ""),
        cores=float(told["cores"]),
        memory=told.get("memory"),
        gpus=told.get("gpus", 0),
        seconds=told.get("time"),
        inputs=tuple(told.get("inputs", ())),
        workdir=told["workdir"],
        environment=told.get("environment", {}),
        retries=int(told["retries"]),
        job=None if job is None else terms_from_dict(job),
    )
