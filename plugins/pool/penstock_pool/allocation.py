"""The allocation that a worker is started in: how long it lasts, what each node has of it, and one worker per node."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from penstock.errors import UserError
from penstock.slurm.parse import parse_limit
from penstock_pool.limits import visible_gpus
from penstock_pool.model import Capacity

__all__ = ["capacity_here", "in_step", "job_of", "scratch_prefix", "seconds_left", "spread_command"]

_NO_STEP: Final = 0xFFFF0000  # from here on the numbers stand for batch scripts, salloc's prompt and the like
_CGROUP: Final = re.compile(r"/job_\d+/step_(\w+)")
_STEPD: Final = re.compile(r"slurmstepd: \[\d+(?:\+\d+)?\.(\w+)")
_DEEPEST: Final = 100  # processes above this one that are looked at
_PER_NODE: Final = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def job_of(environment: Mapping[str, str]) -> str:
    """The job's number, or empty outside of Slurm."""
    return environment.get("SLURM_JOB_ID", "")


def scratch_prefix(job: str) -> str:
    """How the name of a member's scratch folder begins; plugins/slurm/penstock-cleanup.sh goes by it."""
    return f"penstock-pool-{job or 'none'}-{os.getpid()}-"


def spread_command(environment: Mapping[str, str], words: Sequence[str]) -> list[str] | None:
    """The command that runs `words` once on each node of the job; None where we are on one of them as a step already,
    or not in a job at all. One node too: a step is told of the job's end, a batch script is not."""
    if not job_of(environment) or in_step(environment) or shutil.which("srun") is None:
        return None
    nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    command = ["srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    # The site's WaitTime or KillOnBadExit would end all members after the first.
    command += ["--wait=0", "--kill-on-bad-exit=0"]
    if cpus := _least_cpus(environment.get("SLURM_JOB_CPUS_PER_NODE", "")):
        command.append(f"--cpus-per-task={cpus}")
    return [*command, *words]


def in_step(environment: Mapping[str, str], proc: Path = Path("/proc")) -> bool:
    """Whether this process runs in a step that srun has started, and not in a batch script or at salloc's prompt.

    A job that was submitted from within a step has inherited that step's variables. So the name of the cgroup counts,
    or else that of the slurmstepd above us; where both are hidden the variable does.
    """
    number = environment.get("SLURM_STEP_ID", "")
    if not number:
        return False
    name = _step_name(proc)
    if name is not None:
        return name.isdecimal()
    return not (number.isdecimal() and int(number) >= _NO_STEP)


def _step_name(proc: Path) -> str | None:
    """What slurmstepd calls the step that this process is in: a number, batch, interactive ...; None: hidden."""
    with contextlib.suppress(OSError):
        if found := _CGROUP.search((proc / "self" / "cgroup").read_text(errors="replace")):
            return found[1]
    pid = "self"
    for _ in range(_DEEPEST):
        try:
            title = (proc / pid / "cmdline").read_bytes().decode(errors="replace")
            if found := _STEPD.match(title):
                return found[1]
            pid = (proc / pid / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            return None
    return None


def _least_cpus(text: str) -> int | None:
    """Of `16(x2),8`: 8."""
    found = [int(match[1]) for match in map(_PER_NODE.fullmatch, text.split(",")) if match]
    return min(found) if found else None


def seconds_left(job: str, limit: float) -> float | None:
    """Until the job's limit, as Slurm says; None: no limit, or it cannot be had. One request."""
    if not job:
        return None
    try:
        words = ["squeue", "-h", "-j", job, "-o", "%L"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=True)
        return parse_limit(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        print("penstock: Slurm does not say when this job ends: its tasks may be cut off then", file=sys.stderr)
        return None


def capacity_here(environment: Mapping[str, str], cores: float | None, memory: int | None) -> Capacity:
    """What this node has of the allocation, as Slurm says, else the whole node. Given values come first.

    Raises UserError when a variable of Slurm's holds no number.
    """
    if cores is None:
        said = environment.get("SLURM_CPUS_PER_TASK") or environment.get("SLURM_CPUS_ON_NODE")
        cores = float(_number("SLURM_CPUS_ON_NODE", said)) if said else float(len(os.sched_getaffinity(0)))
    if memory is None:
        if per_node := environment.get("SLURM_MEM_PER_NODE"):
            memory = _number("SLURM_MEM_PER_NODE", per_node) * 2**20
        elif per_cpu := environment.get("SLURM_MEM_PER_CPU"):
            memory = int(_number("SLURM_MEM_PER_CPU", per_cpu) * 2**20 * cores)
        memory = memory or psutil.virtual_memory().total
    return Capacity(cores, memory, len(visible_gpus(environment)[1]))


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"{name}: must be a whole number, not {text[:40]!r}")
    return int(text)
