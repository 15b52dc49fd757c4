"""penstock pool stage, drain: a job of a workflow that gives its nodes to a pool while its tasks run there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from penstock.config import load
from penstock.console.output import emit_json
from penstock.errors import PenstockError, UserError
from penstock.texts import plural
from penstock_pool.client import ask, wait
from penstock_pool.commands.view import in_pool
from penstock_pool.folder import PoolFolder, pool_folder

__all__ = ["drain", "stage"]

_TOLD = 10  # tasks that are named when they have failed
_PATIENCE = 300.0
_AGAIN = 1.0


@click.command()
@in_pool
def stage(name: str) -> None:
    """Run tasks from standard input in a pool that this job joins for as long: what a stage's script does.

    Lines are those of `pool submit --file`. Tasks are known by the workflow's run, so that a job that is tried again
    runs only what has not completed yet. Ends with 1 when a task has not completed.
    """
    from penstock_pool.taskfile import read_tasks

    folder = pool_folder(load(), name)
    run, of = os.environ.get("PENSTOCK_RUN"), os.environ.get("PENSTOCK_STAGE", "stage")
    if not run:
        raise UserError("`penstock pool stage` belongs into the script of a workflow's stage (PENSTOCK_RUN is not set)")
    tasks = read_tasks(Path("-"), str(Path.cwd()))
    for number, task in enumerate(tasks, 1):
        task["name"] = f"{run}/{of}/{task.get('name', number)}"
        task["workflow"] = run
    # First the nodes. Where the job was there before its parents had ended they have joined already.
    joined = None
    if "PENSTOCK_MEANWHILE" not in os.environ:
        command = [sys.executable, "-m", "penstock", "pool", "join", "--pool", name]
        joined = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        numbers = ask(folder, "submit", {"tasks": tasks, "larger": True, "again": True})
        bad = [task for task in wait(folder, numbers, _PATIENCE) if task["phase"] != "complete"]
    finally:
        _leave(folder, joined)
    for task in bad[:_TOLD]:
        click.echo(f"penstock: task {task['name']} {task['phase']}: {task['why']}", err=True)
    click.echo(f"penstock: {len(tasks) - len(bad)} of {plural(len(tasks), 'task')} complete", err=True)
    if bad:
        sys.exit(1)


def _leave(folder: PoolFolder, joined: subprocess.Popen[Any] | None) -> None:
    """This job leaves the pool once what runs in it, of other stages perhaps, has ended."""
    job = os.environ.get("SLURM_JOB_ID", "")
    while joined is None or joined.poll() is None:
        try:
            left = ask(folder, "drain", {"job": job}) if job else 0
        except PenstockError:
            left = 0
        if not left:  # not there yet, gone, or there is no scheduler
            if joined is None:
                return  # the script ends what it has started
            joined.terminate()
        # A node may have joined after we asked: ask again.
        if joined is None:
            time.sleep(_AGAIN)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                joined.wait(_AGAIN)


@click.command()
@in_pool
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def drain(name: str, job: str, as_json: bool) -> None:
    """Have an allocation leave the pool: it takes no more tasks, and leaves when those that run there have ended."""
    members = ask(pool_folder(load(), name), "drain", {"job": job})
    if as_json:
        emit_json({"members": members})
    elif members:
        click.echo(f"{plural(members, 'member')} of job {job} told to leave")
    else:
        raise UserError(f"no member of pool {name!r} is in job {job}")
