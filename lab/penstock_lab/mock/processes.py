"""The real processes of simulated jobs: found by a mark in their environment, told apart by node and step, killed.

A process group does not do: hydra gives its proxies and every MPI rank a session of their own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MARK", "Found", "Wanted", "find", "kill"]

Wanted = Callable[[str], bool]

# In every process of a job: FOLDER:ID.RESTARTS, so that clusters and runs do not mistake each other's.
MARK = "PENSTOCK_MOCK_RUN"


@dataclass(frozen=True, slots=True)
class Found:
    """A process of a job: the simulated node it runs on, and its step ("" in the batch script itself)."""

    pid: int
    run: str
    node: str
    step: str


def find(wanted: Wanted) -> Iterator[Found]:
    """Living processes whose mark is wanted. Those of other users are invisible unless we are root."""
    needle = f"{MARK}=".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            raw = (Path(entry.path) / "environ").read_bytes()  # a zombie's is empty
        except OSError:
            continue
        if needle not in raw:
            continue
        variables = dict(v.split("=", 1) for v in raw.decode(errors="replace").split("\0") if "=" in v)
        run = variables.get(MARK, "")
        if wanted(run):
            yield Found(int(entry.name), run, variables.get("SLURMD_NODENAME", ""), variables.get("SLURM_STEP_ID", ""))


def kill(wanted: Callable[[Found], bool], runs: Wanted, number: signal.Signals) -> int:
    """Send a signal to every process of these runs that is wanted; to how many. We ourselves are never among them."""
    hit = 0
    for found in find(runs):
        if found.pid == os.getpid() or not wanted(found):
            continue
        try:
            os.kill(found.pid, number)
        except OSError:
            continue
        hit += 1
    return hit
