"""A job of variable size on its way to Slurm: the size to begin with, and the word to the agent once it has a number.

A malleable job may start on its smallest size up to the one that it runs well on. Not more, although it may grow to
more: Slurm gives a job all that is free up to the most that it asks for, and what is free then the next ones in line
want, too. It would shrink again for them at its first check, and of some programs the first step on many nodes takes as
much node-time as half of the run. Beyond the preferred size it grows while nobody waits.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from penstock.config import Config
from penstock.errors import AgentUnavailable, PenstockError, UserError
from penstock.ipc.client import ask_agent
from penstock.resize.waiting.model import read_shapes
from penstock.sbatch.directives import Request
from penstock.sbatch.job import SbatchJob
from penstock.sbatch.submission import as_seen

__all__ = ["FirstSize", "first_size", "shaped", "start_nodes", "tell_shapes"]

_WHOLE: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_SAYS: Final = ("nodes", "ntasks", "gpus", "nodelist", "nodefile")
_FIXED: Final = ("ntasks", "ntasks-per-node", "gpus", "nodelist", "nodefile", "array", "no-requeue")


def start_nodes(job: SbatchJob, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Options that let a malleable job start on whatever is free between its smallest and its preferred size (its
    largest, where it has none).

    An elastic one starts on as few nodes as it may have, which it keeps. Empty where the user says how large it is to
    be at its start, and for other jobs. UserError when no size of it fills whole nodes.
    """
    asked = job.asked
    if (asked.malleable is None and asked.elastic is None) or job.several or job.has(*_SAYS):
        return ()
    if asked.elastic is not None:
        return (f"--nodes={asked.elastic.partition(':')[0]}",)
    assert asked.malleable is not None
    least, most, *rest = (int(part) for part in asked.malleable.split(":"))
    preferred = rest[0] if rest else most
    said = job.value("ntasks-per-node") or environ.get("DMR_RANKS_PER_NODE") or "1"
    per_node = int(said) if _WHOLE.fullmatch(said) and int(said) > 0 else 1
    fewest, widest = -(-least // per_node), most // per_node
    if fewest > widest:
        raise UserError(f"malleable={asked.malleable}: no size of it fills whole nodes of {per_node} processes")
    start = min(max(preferred // per_node, fewest), widest)
    return (f"--nodes={fewest}-{start}",)


def shaped(job: SbatchJob) -> bool:
    """Whether a moldable job's shape is to be chosen: not where the command line itself says nodes or time. UserError
    for what would hold it to one size, or to its first number of tasks."""
    if job.asked.moldable is None:
        return False
    if job.several:
        raise UserError("moldable: a job of several components (:) keeps its size")
    for name in _FIXED:
        if not job.has(name) or (name == "no-requeue" and job.asked.checkpoint is None):
            continue
        hint = "; say it in the script's srun line, as sbatch counts the tasks once" if name.startswith("nt") else ""
        raise UserError(f"moldable: --{name} does not go with it{hint}")
    return not job.line.has("nodes", "time")


@dataclass(frozen=True, slots=True)
class FirstSize:
    """`options` for sbatch, which say on how many nodes a job begins. `molded`: the agent is to change its shape, too,
    while it waits."""

    options: tuple[str, ...]
    molded: bool


def first_size(config: Config, job: SbatchJob, environment: Mapping[str, str]) -> FirstSize:
    """The size that a job of variable size begins with.

    That of a moldable one is the one that the agent would have it begin with; without an agent, what the script itself
    says, else the smallest. Without an agent, whose address is in the job's `environment`, a malleable job that starts
    small would stay so. Raises UserError where no size will do.
    """
    if not shaped(job):
        known = "DMR_AGENT" in environment or job.asked.elastic is not None
        return FirstSize(start_nodes(job, os.environ) if known else (), molded=False)
    return FirstSize(_first_shape(config, job), molded=True)


def _first_shape(config: Config, job: SbatchJob) -> tuple[str, ...]:
    shapes = read_shapes(job.asked.moldable or "")
    wish = {"shapes": job.asked.moldable, "partition": job.value("partition") or ""}
    try:
        told = ask_agent(config, "shape", wish)
        nodes, limit = int(told["nodes"]), float(told["limit"])
    except AgentUnavailable as e:
        click.echo(f"penstock: the job will keep its size: {e}", err=True)
        if job.script.has("nodes", "time"):
            return ()
        nodes, limit = shapes[0].nodes, shapes[0].limit
    words = [f"--nodes={nodes}", f"--time={math.ceil(limit / 60)}"]
    if job.asked.checkpoint is not None:
        words.append("--requeue")
        if not job.has("open-mode"):
            words.append("--open-mode=append")
    return tuple(words)


def tell_shapes(config: Config, asked: Request, job: int, folder: str | None) -> None:
    """The job is submitted; from now on its shape follows the queue."""
    told = {"job": job, "shapes": asked.moldable, "checkpoint": None, "born": as_seen(job)[1]}
    if asked.checkpoint is not None:
        saves = asked.checkpoint
        told["checkpoint"] = str(replace(saves, file=str(Path(folder or ".").absolute() / saves.file)))
    try:
        answer = ask_agent(config, "mold", told)
        if asked.checkpoint is not None and not answer["puts_back"]:
            click.echo(
                f"penstock: job {job} is not put back once it runs: this agent serves other users, too", err=True
            )
    except PenstockError as e:
        click.echo(f"penstock: job {job} keeps its size: {e}", err=True)
