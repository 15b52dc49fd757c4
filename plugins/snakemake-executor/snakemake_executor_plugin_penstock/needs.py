"""What a job asks for, read from its resources: as a task of a pool, or as options of sbatch. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["BOUNDS", "JobNeeds", "needs_of", "open_resources", "sbatch_options", "unknown", "unreachable_text"]

_MB: Final = 1_000_000
_INNER_MB: Final = 300  # of a Snakemake that runs one job
_TBD: Final = "<TBD>"
BOUNDS: Final = {"mem_mb": "ahead_mem_mb", "runtime": "ahead_runtime"}
"""Resources that may be computed from inputs, and the resource of a rule that says how much it is at most."""
_ASKED: Final = ("mem_mb", "mem_mb_per_cpu", "runtime", "nodes", "tasks", "tasks_per_node", "cpus_per_task", "gpu")
_GPUS: Final = ("gpu", "gpus", "gres", "nvidia_gpu")


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """Cores of one node, bytes (None: not said), GPUs, and the run time in seconds that the job is given at most."""

    cores: float
    memory: int | None
    gpus: int
    seconds: float | None
    several: bool = False  # nodes, or processes: no task


def open_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources with upper bounds in the place of what is not known before the inputs are there; what has no
    bound stays as "<TBD>"."""
    known = dict(resources)
    for name, bound in BOUNDS.items():
        if str(known.get(name)) == _TBD and _whole(known.get(bound)):
            known[name] = int(known[bound])
    return known


def needs_of(resources: Mapping[str, Any], threads: int, *, inner: bool = False) -> JobNeeds:
    """What a job asks for; with `inner` it runs a second Snakemake, which takes some memory itself."""
    tasks = _number(resources.get("tasks")) or 1
    cores = max(threads, _number(resources.get("cpus_per_task")) or 0, 1)
    megabytes = _number(resources.get("mem_mb"))
    if per := _number(resources.get("mem_mb_per_cpu")):
        megabytes = per * cores
    memory = None if not megabytes else (megabytes + (_INNER_MB if inner else 0)) * _MB
    minutes = _number(resources.get("runtime"))
    nodes = _number(resources.get("nodes")) or 1
    several = nodes > 1 or tasks > 1 or bool(resources.get("mpi")) or bool(_number(resources.get("tasks_per_node")))
    return JobNeeds(float(cores), memory, _gpus(resources), None if not minutes else minutes * 60.0, several)


def sbatch_options(resources: Mapping[str, Any], threads: int) -> list[str]:
    """The options of sbatch for a job; those of the plug-in `slurm`, by the names that it has for the resources.

    Raises ValueError for `slurm_extra` that is no shell's words.
    """
    words = []
    for name, option in (
        ("slurm_partition", "partition"),
        ("slurm_account", "account"),
        ("constraint", "constraint"),
        ("qos", "qos"),
        ("nodes", "nodes"),
        ("gres", "gres"),
        ("slurm_reservation", "reservation"),
    ):
        if resources.get(name) not in (None, ""):
            words.append(f"--{option}={resources[name]}")
    for name in ("clusters", "cluster", "slurm_cluster"):
        if resources.get(name):
            words.append(f"--clusters={resources[name]}")
            break
    if runtime := _number(resources.get("runtime")):
        words.append(f"--time={runtime}")
    if per := _number(resources.get("mem_mb_per_cpu")):
        words.append(f"--mem-per-cpu={per}")
    elif megabytes := _number(resources.get("mem_mb")):
        words.append(f"--mem={megabytes}")
    if per_node := _number(resources.get("tasks_per_node")):
        words.append(f"--ntasks-per-node={per_node}")
    elif tasks := _number(resources.get("tasks")):
        words.append(f"--ntasks={tasks}")
    elif (_number(resources.get("nodes")) or 1) == 1:  # else Slurm would give one node to the one task
        words.append("--ntasks=1")
    if not resources.get("gres") and (gpus := _gpus(resources)):
        words.append(f"--gpus={gpus}")
    words.append(f"--cpus-per-task={max(_number(resources.get('cpus_per_task')) or threads, 1)}")
    return words + shlex.split(str(resources.get("slurm_extra") or ""))


def unreachable_text(shape: Mapping[str, Any]) -> str:
    """What is to be said of tasks that no member could take if it ran nothing else, as the pool tells them."""
    parts = [f"{shape['cores']:g} cores"]
    if shape["memory"]:
        parts.append(f"{shape['memory'] / 1e9:.3g} GB")
    if shape["gpus"]:
        parts.append(f"{shape['gpus']} GPUs")
    if shape["seconds"] is not None:
        parts.append(f"{shape['seconds'] / 60:g} minutes left (runtime)")
    return f"{shape['tasks']} tasks wait for a member with {', '.join(parts)}, and none there is has that"


def unknown(resources: Mapping[str, Any]) -> list[str]:
    """What of that which sbatch is asked for is not known yet."""
    return [name for name in (*_ASKED, "slurm_partition") if str(resources.get(name)) == _TBD]


def _gpus(resources: Mapping[str, Any]) -> int:
    for name in _GPUS:
        value = resources.get(name)
        if name == "gres" and isinstance(value, str) and value.startswith("gpu"):
            last = value.partition("(")[0].rpartition(":")[2]
            return int(last) if last.isdecimal() else 1
        if name != "gres" and (number := _number(value)):
            return number
    return 0


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() else None
