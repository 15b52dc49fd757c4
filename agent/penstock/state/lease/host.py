"""What a host knows of itself and its processes. Linux."""

from __future__ import annotations

import os
import time
from pathlib import Path

from penstock.state.lease.machine import Moment, PidScope

__all__ = ["moment", "place", "runs", "ticks"]


def moment() -> Moment:
    """Now, by both clocks."""
    return Moment(time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


def place() -> PidScope:
    """Where this process runs; not known where /proc does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return PidScope(boot, os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 (what it names is no path)
    except (OSError, ValueError):
        return PidScope()


def ticks(pid: int) -> int:
    """When a process began, in the kernel's count since boot, which no setting of a clock moves; -1: it is over."""
    try:
        # The second field, the name in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return -1 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return -1


def runs(pid: int, began: int) -> bool:
    """Whether exactly this process is there, be it stopped."""
    return ticks(pid) == began != -1
