"""A moldable job on its way to Slurm: the shape to begin with, and the word to the agent once it has a number."""

from __future__ import annotations

import math
from pathlib import Path

import click

from penstock.config import Config
from penstock.errors import AgentUnavailable, PenstockError
from penstock.ipc.client import ask_agent
from penstock.resize.waiting.model import read_checkpoint, read_shapes
from penstock.sbatch.directives import Request
from penstock.sbatch.submission import as_seen
from penstock.slurm.option_words import SbatchWords

__all__ = ["first_shape", "tell_shapes"]


def first_shape(config: Config, asked: Request, line: SbatchWords, script: SbatchWords) -> tuple[str, ...]:
    """Options for sbatch: the shape that the agent would have it begin with. Without an agent, what the script itself
    says, else the smallest shape."""
    shapes = read_shapes(asked.moldable or "")
    wish = {"shapes": asked.moldable, "partition": line.value("partition") or script.value("partition") or ""}
    try:
        told = ask_agent(config, "shape", wish)
        nodes, limit = int(told["nodes"]), float(told["limit"])
    except AgentUnavailable as e:
        click.echo(f"penstock: the job will keep its size: {e}", err=True)
        if script.has("nodes") or script.has("time"):
            return ()
        nodes, limit = shapes[0].nodes, shapes[0].limit
    words = [f"--nodes={nodes}", f"--time={math.ceil(limit / 60)}"]
    if asked.checkpoint is not None:
        words.append("--requeue")
        if not (line.has("open-mode") or script.has("open-mode")):
            words.append("--open-mode=append")
    return tuple(words)


def tell_shapes(config: Config, asked: Request, job: int, folder: str | None) -> None:
    """The job is submitted; from now on its shape follows the queue."""
    told = {"job": job, "shapes": asked.moldable, "checkpoint": None, "born": as_seen(job)[1]}
    if asked.checkpoint is not None:
        saves = read_checkpoint(asked.checkpoint)
        told["checkpoint"] = f"{saves.signal}:{Path(folder or '.').absolute() / saves.file}"
    try:
        answer = ask_agent(config, "mold", told)
        if asked.checkpoint is not None and not answer["puts_back"]:
            click.echo(
                f"penstock: job {job} is not put back once it runs: this agent serves other users, too", err=True
            )
    except PenstockError as e:
        click.echo(f"penstock: job {job} keeps its size: {e}", err=True)
