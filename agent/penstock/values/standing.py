"""How a job stands by what is known of it, so that it is seen whether another look says something new. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from penstock.api import AccountingRecord, Job, JobState

__all__ = ["Standing", "standing"]

Standing = tuple[object, ...]
"""To be compared with another one."""

_FIELDS: Final = attrgetter(
    "id", "uid", "user", "account", "partition", "qos", "state", "reason", "submit", "eligible", "time_limit",
    "num_nodes", "nodes", "dependency", "array_job", "array_task", "tasks", "restarts", "reservation", "min_nodes",
)  # fmt: skip


def standing(number: int, rows: Sequence[Job], record: AccountingRecord | None) -> Standing | None:
    """By the rows of a look under its number, or by accounting's record where there are none. A waiting job's priority
    and Slurm's estimate of its start move on by themselves, and are left out. None where the rows alone do not tell:
    a node may be booting for it."""
    if any(row.state is JobState.CONFIGURING for row in rows):
        return None
    if not rows:
        return number, record
    ways = ((_FIELDS(row), row.priority == 0, *((row.start, row.end) if not row.pending else ())) for row in rows)
    return number, *ways
