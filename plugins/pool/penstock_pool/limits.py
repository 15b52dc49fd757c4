"""What the kernel holds a task to: CPUs by affinity, GPUs by what it is shown, data by an rlimit. On the worker."""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile

__all__ = ["Shares", "limit_data", "pin_thread", "visible_gpus"]

_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_NO_GPU = frozenset({"", "-1", "nodevfiles", "none", "void"})  # what sites and runtimes write


class Shares:
    """Hands out CPUs and GPUs to tasks. CPUs are pinned only where there are as many as the member has promised; a CPU
    is shared by as few tasks as possible."""

    def __init__(self, cpus: Iterable[int], cores: float, gpus: Iterable[str]) -> None:
        self._cpus = sorted(cpus)
        self._pin = len(self._cpus) >= cores
        self._tasks: Counter[int] = Counter()
        self._gpus = list(gpus)

    def take(self, cores: float, gpus: int) -> tuple[list[int], list[str]]:
        """CPUs (empty: any) and GPUs for a task."""
        cpus: list[int] = []
        if self._pin:
            cpus = sorted(self._cpus, key=lambda cpu: (self._tasks[cpu], cpu))[: math.ceil(cores)]
            self._tasks.update(cpus)
        taken, self._gpus = self._gpus[:gpus], self._gpus[gpus:]
        return cpus, taken

    def give_back(self, cpus: Iterable[int], gpus: Iterable[str]) -> None:
        """The task has ended."""
        self._tasks.subtract(cpus)
        self._gpus += gpus


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """The variable that names the GPUs of this allocation, and them; where none does, as many as Slurm counts."""
    for name in _GPU_VARIABLES:
        # As the runtimes read such a list: it ends before the first that is none.
        named = takewhile(lambda one: one.strip().lower() not in _NO_GPU, environment.get(name, "").split(","))
        if gpus := [one.strip() for one in named]:
            return name, gpus
    counted = environment.get("SLURM_GPUS_ON_NODE", "")
    silent = not any(name in environment for name in _GPU_VARIABLES)
    return _GPU_VARIABLES[0], [str(i) for i in range(int(counted))] if silent and counted.isdecimal() else []


def limit_data(pid: int, memory: int) -> None:
    """Let each process from `pid` on have at most so much data (RLIMIT_DATA: heap and private writable mappings).

    Set just after the start: what it does in its first moment is not bounded, and is measured all the same. Address
    space is not limited, because runtimes reserve much more of it than they use.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory, memory))


def pin_thread(cpus: Iterable[int]) -> None:
    """This thread, and what it starts, runs on these CPUs only."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cpus)
