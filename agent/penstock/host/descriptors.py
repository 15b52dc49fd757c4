"""How many descriptors the process may open, and how many of them connections leave to the agent's own work: the
commands of Slurm that it runs, its state file, its log."""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = ["for_doors", "raise_limit", "reserve", "room", "used"]

_MOST = 16384
_LEAST_RESERVE, _MOST_RESERVE = 24, 1024
_OPEN = Path("/proc/self/fd")


def raise_limit() -> None:
    """As far as may be: every connected application takes a descriptor, and Slurm commands must still find one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Not without bound: Slurm may hand the limit on to the jobs that are submitted.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, _MOST)), hard))


def reserve(limit: int) -> int:
    """How many of so many are not for connections: a command of Slurm takes eight while it starts, and several run at
    once while jobs grow."""
    return min(_MOST_RESERVE, max(_LEAST_RESERVE, limit // 8))


def used() -> int:
    """How many are open now."""
    try:
        with os.scandir(_OPEN) as found:
            return sum(1 for _ in found) - 1  # one is that of the folder itself
    except OSError:  # not one is left to look with
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def room() -> int:
    """How many more connections can be taken now; below zero, the reserve is in use."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - reserve(limit) - used()


def for_doors(there: int) -> int:
    """How many connections all doors have in all, where there is room for so many: full doors leave some, so that a new
    one is taken at once, and another makes room for it."""
    return max(1, there - max(1, there // 8))
