"""Pools. Instants are seconds since 1970, durations seconds, memory bytes."""

from __future__ import annotations

from penstock.cli.answers.base import Answer, Part, absent

__all__ = ["Cancel", "Drain", "Logs", "Start", "Status", "Stop", "Submit", "Top"]


class Task(Part):
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


class Member(Part):
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


class Shape(Part):
    """`tasks` that wait for a member as large as this."""

    cores: float
    memory: int | None
    gpus: int
    seconds: float | None
    tasks: int


class Status(Answer):
    """`tasks` are counts by phase, `others` those that clients have given to Dask itself (running, waiting), `listed`
    the tasks themselves (--tasks, --phase); `cpu` is what the scheduler has used."""

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
    listed: list[Task] = absent()


class Top(Status):
    """With the tasks that run, and those that failed."""

    listed: list[Task]


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
