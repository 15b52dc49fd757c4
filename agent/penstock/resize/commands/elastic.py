"""penstock elastic: a job whose nodes come and go with the queue, without MPI."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import click

from dmr.elastic.signals import check_signal
from penstock.config import load
from penstock.console.door import why_silent
from penstock.console.output import emit_json
from penstock.errors import AgentUnavailable, PenstockError, UserError
from penstock.ipc.client import ask_agent
from penstock.resize.commands.remembered import remembered_elastic

__all__ = ["elastic"]

_MOST = 1 << 20


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Print the job script, and submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def elastic(file: Path, words: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Submit a job whose nodes come and go, without MPI.

    FILE says what runs when nodes join and leave; what follows it are options of sbatch.

    \b
    name: survey
    time: 4h
    elastic: {min: 1, max: 8, use: farm, tasks: tasks.txt}

    Recipes (use): farm, dask, pool, ray, restart, torchrun. Without one: start, join, leave.
    """
    from penstock.resize.recipes.model import read_elastic
    from penstock.resize.recipes.script import batch_script, options
    from penstock.sbatch.remembered import Remembered
    from penstock.sbatch.submission import submit  # slow to load

    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    job = read_elastic(data, str(file), sys.executable)
    try:
        check_signal(job.plan, os.environ)
    except ValueError as error:
        raise UserError(f"{file}: elastic.{error}") from None
    script = batch_script(job.plan, options(job), sys.executable)
    if dry_run:
        if as_json:
            emit_json({"job": None, "script": script})
        else:
            click.echo(script, nl=False)
        return
    environment: dict[str, str] = {}
    try:
        environment = ask_agent(load(), "env")
    except AgentUnavailable as error:
        click.echo(f"penstock: the job will keep its size: {why_silent(load(), error)}", err=True)
    done = submit(["--parsable", *words], script.encode(), environment)
    if done.job is None:
        sys.stdout.write(done.text.decode(errors="replace"))
        raise click.exceptions.Exit(done.end() or 1)
    with contextlib.suppress(PenstockError):  # it is in the queue, whatever it is called
        remembered_elastic(load()).add(Remembered(done.job, job.name, job.name, time.time()))
    if as_json:
        emit_json({"job": done.job, "script": script})
    else:
        click.echo(f"Submitted elastic job {done.job}, {job.plan.minimum} to {job.plan.maximum} nodes")
    raise click.exceptions.Exit(done.end())
