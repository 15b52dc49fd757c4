"""What a job asks for, read from its resources: as a task of a pool, or as options of sbatch. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import UserError
from penstock.slurm.sbatch_options import Option, read_options
from penstock.values.gres import Gres, asked_gres

__all__ = ["BOUNDS", "JobNeeds", "needs_of", "open_resources", "sbatch_options", "unknown", "unreachable_text"]

_MB: Final = 1_000_000
_INNER_MB: Final = 300  # of a Snakemake that runs one job
_TBD: Final = "<TBD>"
BOUNDS: Final = {"mem_mb": "ahead_mem_mb", "runtime": "ahead_runtime"}
"""Resources that may be computed from inputs, and the resource of a rule that says how much it is at most."""
_GPUS: Final = ("gpu", "gpus", "nvidia_gpu")
_CLUSTERS: Final = ("clusters", "cluster", "slurm_cluster")
_WORDS: Final = (
    ("slurm_partition", "partition"),
    ("slurm_account", "account"),
    ("constraint", "constraint"),
    ("qos", "qos"),
    ("nodes", "nodes"),
    ("gres", "gres"),
    ("slurm_reservation", "reservation"),
)
"""Resources that are options of sbatch as they are, with the options' names."""
_ASKED: Final = (
    *("mem_mb", "mem_mb_per_cpu", "runtime", "tasks", "tasks_per_node", "tasks_per_gpu", "cpus_per_task"),
    *("cpus_per_gpu", "gpu_model", "mpi", "slurm_extra", *_GPUS, *_CLUSTERS, *(name for name, _option in _WORDS)),
)
"""All resources that sbatch is asked by."""
_MODEL: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_OURS: Final = (
    *("array", "chdir", "comment", "dependency", "error", "export", "export-file", "help", "job-name"),
    *("kill-on-invalid-dep", "output", "parsable", "test-only", "usage", "version", "wait", "wrap"),
)
_INSTEAD: Final[Mapping[str, str]] = {
    **{option: name for name, option in _WORDS if option != "reservation"},
    **dict.fromkeys(("cluster", "clusters"), "slurm_cluster"),
    "cpus-per-gpu": "cpus_per_gpu",
    "cpus-per-task": "threads",
    "gpus": "gpu",
    "mem": "mem_mb",
    "mem-per-cpu": "mem_mb_per_cpu",
    "ntasks": "tasks",
    "ntasks-per-gpu": "tasks_per_gpu",
    "time": "runtime",
}
"""`slurm_extra` may have neither: by the first ones a job is followed and found again. The others are refused as the
plug-in `slurm` refuses them, with the resource to be said instead."""
_OF_NO_NODE: Final = (
    *("acctg-freq", "mail-type", "mail-user", "nice", "no-kill", "no-requeue", "open-mode", "priority", "profile"),
    *("propagate", "quiet", "requeue", "reservation", "verbose", "wckey"),
)
"""What a task of a pool can do without."""


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """Cores of one node, bytes (None: not said), GPUs, and the run time in seconds that the job is given at most.

    `of_slurm`: it needs several nodes or processes, or nodes of a kind, which no member of a pool is known to be.
    """

    cores: float
    memory: int | None
    gpus: int
    seconds: float | None
    of_slurm: bool = False


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
    gpus, of_any_kind = _gpus(resources)
    cores = max(threads, _count(resources, "cpus_per_task"), 1)
    if gpus and not resources.get("cpus_per_task") and (per := _count(resources, "cpus_per_gpu")):
        cores = per * gpus
    megabytes = _count(resources, "mem_mb")
    if per := _count(resources, "mem_mb_per_cpu"):
        megabytes = per * cores
    memory = None if not megabytes else (megabytes + (_INNER_MB if inner else 0)) * _MB
    minutes = _count(resources, "runtime")
    several = any(_count(resources, name) > 1 for name in ("nodes", "tasks"))
    several = several or any(resources.get(name) for name in ("mpi", "tasks_per_node", "tasks_per_gpu"))
    of_slurm = several or not of_any_kind or bool(resources.get("constraint")) or _is_of_nodes(resources)
    return JobNeeds(float(cores), memory, gpus, None if not minutes else minutes * 60.0, of_slurm)


def sbatch_options(resources: Mapping[str, Any], threads: int) -> list[str]:
    """The options of sbatch for a job; those of the plug-in `slurm`, by the names that it has for the resources.

    Raises ValueError for `slurm_extra` that is no shell's words or has options that it may not have, and for GPUs that
    are asked for in two ways.
    """
    words = [f"--{option}={resources[name]}" for name, option in _WORDS if resources.get(name) not in (None, "")]
    for name in _CLUSTERS:
        if resources.get(name):
            words.append(f"--clusters={resources[name]}")
            break
    if runtime := _count(resources, "runtime"):
        words.append(f"--time={runtime}")
    if per := _count(resources, "mem_mb_per_cpu"):
        words.append(f"--mem-per-cpu={per}")
    elif megabytes := _count(resources, "mem_mb"):
        words.append(f"--mem={megabytes}")
    if per_gpu := _count(resources, "tasks_per_gpu"):
        words.append(f"--ntasks-per-gpu={per_gpu}")
    elif per_node := _count(resources, "tasks_per_node"):
        words.append(f"--ntasks-per-node={per_node}")
    elif tasks := _count(resources, "tasks"):
        words.append(f"--ntasks={tasks}")
    elif _count(resources, "nodes") <= 1:  # else Slurm would give one node to the one task
        words.append("--ntasks=1")
    words += _gpu_words(resources)
    per_task = _number(resources.get("cpus_per_task")) or 0
    if not per_task and _gpus(resources)[0] and (per_gpu := _count(resources, "cpus_per_gpu")):
        words.append(f"--cpus-per-gpu={per_gpu}")
    elif per_task >= 0:  # below: the site's own rule is to hold, as with the plug-in `slurm`
        words.append(f"--cpus-per-task={per_task or max(threads, 1)}")
    return words + _extra_words(resources)


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
    return [name for name in _ASKED if str(resources.get(name)) == _TBD]


def _gpus(resources: Mapping[str, Any]) -> tuple[int, bool]:
    """How many GPUs, and whether a node with so many will do, whatever else it has."""
    named = next((number for name in _GPUS if (number := _number(resources.get(name))) is not None), None)
    gres = [one for one in _gres(resources) if one.number]
    count = named or sum(one.number for one in gres if one.name == "gpu")
    plain = all(one.name == "gpu" and not one.type for one in gres)
    if not resources.get("gpu_model") or named == 0:
        return count, plain
    return count or 1, False


def _gres(resources: Mapping[str, Any]) -> list[Gres]:
    """What `gres` asks for, if it is 0 times; where it cannot be read, sbatch will say what is wrong with it."""
    found: list[Gres] = []
    for word in map(str.strip, str(resources.get("gres") or "none").split(",")):
        name = word.partition(":")[0]
        if name.lower() == "none":
            continue
        try:
            found += asked_gres(word) or [Gres(name, "", 0 if word else 1)]
        except ValueError:
            found.append(Gres(word, "", 1))
    return found


def _gpu_words(resources: Mapping[str, Any]) -> list[str]:
    count, model = _gpus(resources)[0], resources.get("gpu_model")
    if any(one.name == "gpu" for one in _gres(resources)):
        if model:
            raise ValueError(f"gres={resources['gres']!r} and gpu_model={model!r} both ask for GPUs: say one of them")
        return []
    if not count:
        return []
    if model and not _MODEL.fullmatch(str(model)):
        raise ValueError(f"gpu_model={model!r}: must be a type of the site's GPUs, such as a100")
    return [f"--gpus={model}:{count}" if model else f"--gpus={count}"]


def _extra(resources: Mapping[str, Any]) -> tuple[list[str], list[Option]]:
    """The words of `slurm_extra`, and the options that they are. Raises ValueError."""
    text = str(resources.get("slurm_extra") or "")
    try:
        words = shlex.split(text)
        return words, read_options(words)
    except (ValueError, UserError) as e:
        raise ValueError(f"slurm_extra={text!r}: {e}") from None


def _extra_words(resources: Mapping[str, Any]) -> list[str]:
    words, options = _extra(resources)
    for name, _value in options:
        if name in _OURS:
            raise ValueError(f"slurm_extra may not have --{name}: the executor says it itself, leave it out")
        if name in _INSTEAD:
            hint = f"say the resource {_INSTEAD[name]} instead"
            raise ValueError(f"slurm_extra may not have --{name}: {hint}")
    return words


def _is_of_nodes(resources: Mapping[str, Any]) -> bool:
    """Whether `slurm_extra` asks for what a pool does not know of."""
    try:
        return any(name not in _OF_NO_NODE for name, _value in _extra(resources)[1])
    except ValueError:  # said where it becomes options of sbatch
        return True


def _count(resources: Mapping[str, Any], name: str) -> int:
    """0: not said, or less than one."""
    return max(_number(resources.get(name)) or 0, 0)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> int | None:
    """As a whole number, not less than it is; None for what is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return math.ceil(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, str) and value.isdecimal() else None
