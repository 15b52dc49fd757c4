"""Pools. Instants are seconds since 1970, durations seconds, memory bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.answers import Answer, AnswerPart, absent

__all__ = ["ANSWERS", "Auto", "Cancel", "Drain", "Logs", "Start", "Status", "Stop", "Submit", "Top"]


class Task(AnswerPart):
    """A task; `last` is how its last attempt ended, `why` says more."""

    id: int
    name: str
    workflow: str
    command: list[str]
    phase: str
    last: str | None
    attempt: int
    failed: int
    lost: int
    node: str
    job: str
    submitted: float
    started: float | None
    ended: float | None
    code: int | None
    why: str
    wall: float
    cpu: float
    memory: int


class Member(AnswerPart):
    """A node of a pool; `left` is how long it stays, null: for ever. `used` are cores that its tasks really use."""

    address: str
    node: str
    job: str
    cores: float
    memory: int | None
    gpus: int
    left: float | None
    joined: float
    draining: bool
    running: int
    busy: float
    used: float


class Shape(AnswerPart):
    """`tasks` that wait for a member as large as this."""

    cores: float
    memory: int | None
    gpus: int
    seconds: float | None
    tasks: int


class _Look(Answer):
    """What `pool status` and `pool top` share."""

    pool: str
    now: float
    problem: str
    cpu: float
    tasks: dict[str, int]
    others: dict[str, int]
    cores: float
    busy: float
    faults: int
    members: list[Member]
    unreachable: list[Shape]


class Status(_Look):
    """`tasks` are counts by phase, `others` those that clients have given to Dask itself (running, waiting), `listed`
    the tasks themselves (--tasks, --phase); `cpu` is what the scheduler has used."""

    listed: list[Task] = absent()


class Top(_Look):
    """With the tasks that run, and those that failed."""

    listed: list[Task]


class AutoOrder(AnswerPart):
    """What the user allows: nodes that work and jobs that run at once, the longest limit; `cores` null: whole nodes."""

    max_nodes: int
    limit: float
    max_jobs: int
    idle: float
    partitions: list[str]
    account: str
    qos: str
    cores: int | None
    options: list[str]
    workdir: str


class AutoAllocation(AnswerPart):
    """A job that was asked for; `job` null: it is being submitted. `expected`: seconds until it starts, null: it has.
    `joined`: the pool has its nodes; `leaving`: it was taken back, or leaves when its tasks have ended."""

    job: int | None
    nodes: int
    limit: float
    partition: str
    submitted: float
    started: float | None
    joined: bool
    leaving: bool
    expected: float | None
    why: str


class AutoSubmission(AnswerPart):
    """`jobs` jobs of so many nodes, a time limit and partitions (comma-separated)."""

    nodes: int
    limit: float
    partition: str
    jobs: int


class AutoVerdict(AnswerPart):
    """What is submitted and why; when all tasks are expected to have ended (seconds from then; null: never, as things
    are); tasks that need more than an allocation may have."""

    submit: list[AutoSubmission]
    end: float | None
    reasons: list[str]
    unreachable: int


class Auto(Answer):
    """A pool that gets its own allocations (`on`); `paused`: why it has given up, or empty; `order` null: never one.
    `verdict` is the last one, with --dry-run that of now."""

    pool: str
    on: bool
    paused: str
    order: AutoOrder | None
    allocations: list[AutoAllocation]
    verdict: AutoVerdict | None


class Start(Answer):
    """Where the scheduler is (--detach)."""

    pool: str
    url: str
    host: str
    pid: int


class Submit(Answer):
    """The numbers of the tasks; with --wait what became of them."""

    tasks: list[int]
    ended: list[Task] = absent()


class Stop(Answer):
    """`left` tasks had not ended, `running` of them ran."""

    left: int
    running: int


class Drain(Answer):
    """So many members leave."""

    members: int


class Logs(Answer):
    """A task and the files of one attempt: `out` and `err`, as far as they are there."""

    task: Task
    attempt: int
    files: dict[str, str]


class Cancel(Answer):
    """So many tasks are being cancelled."""

    cancelled: int


ANSWERS: Final[Mapping[str, Any]] = {
    "pool auto": Auto,
    "pool cancel": Cancel,
    "pool drain": Drain,
    "pool logs": Logs,
    "pool start": Start,
    "pool status": Status,
    "pool stop": Stop,
    "pool submit": Submit,
    "pool top": Top,
}
"""By the words after `penstock`."""
