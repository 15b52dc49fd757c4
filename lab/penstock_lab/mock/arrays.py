"""Job arrays: sbatch's `--array`, and what the tasks of one array share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.errors import Infeasible

__all__ = ["Array", "parse"]

_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_LIMIT = re.compile(r"(.*)%(\d+)", re.ASCII)


@dataclass(slots=True)
class Array:
    """An array of id `job`: which tasks wait, the ids of those that have a job of their own, and which of them run.

    At most `throttle` run at a time (0: no limit). As in Slurm the last task to start takes the array's own id.
    """

    job: int
    waiting: list[int]
    throttle: int = 0
    members: list[int] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    first: int = field(init=False)
    last: int = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.first, self.last, self.count = self.waiting[0], self.waiting[-1], len(self.waiting)

    @property
    def throttled(self) -> bool:
        """Whether no further task may run now."""
        return bool(self.throttle) and len(self.running) >= self.throttle


def parse(text: str, largest: int) -> tuple[list[int], int]:
    """The task numbers of `1-10%2` or `1,3,5-9:2`, rising, and the throttle (0: none).

    `Infeasible`, as Slurm says it, when it makes no sense or a number is not below `largest` (MaxArraySize).
    """
    limited = _LIMIT.fullmatch(text)
    body, throttle = (limited[1], int(limited[2])) if limited else (text, 0)
    tasks: set[int] = set()
    for part in body.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise Infeasible(f"Invalid job array specification: {text!r}")
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first or step < 1 or last >= largest:
            raise Infeasible(f"Invalid job array specification: {text!r}")
        tasks.update(range(first, last + 1, step))
    return sorted(tasks), throttle
