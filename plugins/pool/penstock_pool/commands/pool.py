"""penstock pool: one pool of tasks over many allocations."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from penstock.config import Config, load
from penstock.console.groups import CommandGroup
from penstock.console.memory import MEM
from penstock.console.output import emit_json
from penstock.console.times import TIME, Duration
from penstock.errors import AgentUnavailable, PenstockError, UserError
from penstock.host import logs as logging
from penstock.texts import plural
from penstock.values.lines import split_lines
from penstock_pool import extra
from penstock_pool.client import ask, wait
from penstock_pool.commands.stage import drain, stage
from penstock_pool.commands.view import cancel, in_pool, logs, status, top
from penstock_pool.folder import PoolFolder, pool_folder

__all__ = ["pool"]

_START = 60.0
_END = 30.0


# It plans, and loads what that takes: not for those who submit a task.
_PLACES: Final = {"auto": "penstock_pool.commands.auto:auto"}


@click.group(cls=CommandGroup, places=_PLACES)
def pool() -> None:
    """Run many small tasks in the allocations that you have.

    `pool start` on the login node; `pool join` as the last line of a job's script, in as many jobs as you like; `pool
    submit` from anywhere. Tasks move when an allocation dies, and every task runs as you.
    """


def _needs_dask() -> None:
    if lacking := extra.missing():
        raise UserError(f"a pool needs {', '.join(f'`{name}`' for name in lacking)}: {extra.INSTALL}")


@pool.command("start")
@in_pool
@click.option("--detach", is_flag=True, help="Go on in the background; its log is in the pool's folder.")
@click.option("--json", "as_json", is_flag=True, help="With --detach: print where it is as JSON.")
def start(name: str, detach: bool, as_json: bool) -> None:
    """Run the scheduler of a pool until SIGTERM or `pool stop`.

    Tasks that had not ended when an earlier one ended, or was killed, run again; those that had do not.
    """
    import asyncio  # slow to load

    _needs_dask()
    config = load()
    folder = pool_folder(config, name)
    folder.make()
    if detach:
        _start_detached(folder, as_json)
        return
    logging.configure(config.log.level, config.log.format)
    asyncio.run(_serve(config, folder))


async def _serve(config: Config, folder: PoolFolder) -> None:
    from penstock.console.backends import backend_of  # slow to load
    from penstock_pool.jobs.opening import jobs_door
    from penstock_pool.run import run_scheduler

    async with backend_of(config) as slurm:
        await run_scheduler(config, folder, [jobs_door(config, folder, slurm)])


def _start_detached(folder: PoolFolder, as_json: bool) -> None:
    command = [sys.executable, "-m", "penstock", "pool", "start", "--pool", folder.name]
    with folder.log.open("ab") as log:
        begun = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    deadline = time.monotonic() + _START
    while (address := folder.address()) is None or address.pid != begun.pid:
        if begun.poll() is not None:
            said = split_lines(folder.log.read_text(errors="replace").strip())[-1:]
            raise PenstockError(f"the scheduler did not start: {' '.join(said).removeprefix('penstock: ')}")
        if time.monotonic() > deadline:
            raise PenstockError(f"the scheduler has not answered for {_START:g} s; its log: {folder.log}")
        time.sleep(0.1)
    if as_json:
        emit_json({"pool": folder.name, "url": address.url, "host": address.host, "pid": address.pid})
    else:
        click.echo(f"Pool {folder.name!r} is open: process {address.pid} on {address.host}")


def _bytes(context: click.Context, option: click.Parameter, value: float | None) -> int | None:
    return None if value is None else round(value * 2**20)


def _in_bytes(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--mem as `memory`, in bytes as pools count it."""

    return click.option("--mem", "memory", type=MEM, callback=_bytes, metavar="AMOUNT", help=text)


@pool.command("join")
@in_pool
@click.option("--cores", type=click.FloatRange(min=0, min_open=True), help="Cores to give; default: what the job has.")
@_in_bytes("Memory to give, such as 8G (bare: MB); default: what the job has.")
@click.option(
    "--idle",
    type=Duration(1),
    metavar="TIME",
    help="Leave after so long without a task (bare: seconds); default: stay to the end.",
)
@click.option(
    "--patience",
    type=Duration(1),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="How long a scheduler may be away (bare: seconds).",
)
@click.option("--give-back", is_flag=True, help="Leave as soon as nothing that waits could end before the job does.")
@click.option("--left", type=float, hidden=True, help="Seconds until the allocation's end.")
@click.option("--here", is_flag=True, help="This host only, as one worker, be it in a job or not.")
def join(
    name: str,
    cores: float | None,
    memory: int | None,
    idle: float | None,
    patience: float,
    give_back: bool,
    left: float | None,
    here: bool,
) -> None:
    """Give an allocation to a pool: a line in a job's script. Returns when it has left the pool.

    One worker runs on each node of the job. It leaves before the job's time limit, on SIGTERM, after `--idle`, and when
    the pool is stopped; tasks that cannot end in time run again elsewhere.
    """
    import asyncio  # slow to load

    _needs_dask()
    from penstock_pool.allocation import capacity_here, job_of, seconds_left, spread_command
    from penstock_pool.worker import Terms, work

    config = load()
    folder = pool_folder(config, name)
    job = job_of(os.environ)
    if left is None:
        left = seconds_left(job, config.slurm.timeout)
    words = [sys.executable, "-m", "penstock", *sys.argv[1:], *(["--left", f"{left:.0f}"] if left is not None else [])]
    spread = None if here else spread_command(os.environ, words)
    if spread is not None:
        os.execvp(spread[0], spread)  # noqa: S606 (srun, from an argument list)
    logging.configure(config.log.level, config.log.format)
    terms = Terms(
        capacity_here(os.environ, cores, memory), job, left, idle, patience, config.pool.output_limit, give_back
    )
    click.echo(f"penstock: left pool {name!r}: {asyncio.run(work(folder, terms))}", err=True)


@pool.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@in_pool
@click.option("--file", "file", type=click.Path(path_type=Path), help="Tasks as JSON, one a line; - is standard input.")
@click.option("--name", "task_name", help="Name of the task; one of a name that is known already is not run again.")
@click.option("--workflow", help="The workflow it belongs to; only different ones share cores.")
@click.option("--cores", type=float, help="Cores, fractions too.  [default: 1]")
@_in_bytes("Memory, such as 512M (bare: MB); a task that takes more is killed.")
@click.option("--gpus", type=int, help="GPUs.  [default: 0]")
@click.option(
    "-t",
    "--time",
    "seconds",
    type=TIME,
    metavar="TIME",
    help="Expected run time: it runs only where as much is left.",
)
@click.option("--input", "inputs", multiple=True, metavar="FILE", help="A file that must be there; can be repeated.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable; can be repeated.")
@click.option("--retries", type=int, help="How often it may fail and be tried again.  [default: 2]")
@click.option("--larger", is_flag=True, help="Take tasks that are larger than any member: a larger one may join.")
@click.option("--wait", "waits", is_flag=True, help="Wait until they have ended; exit with 1 if one did not complete.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def submit(name: str, file: Path | None, larger: bool, waits: bool, as_json: bool, **said: Any) -> None:  # noqa: ANN401
    """Submit a command, or a file of tasks. The command runs without a shell, in this folder.

    A line of --file is an object with `command` (a list of words, or a text) and, where wanted, name, workflow, cores,
    memory, gpus, time, inputs, workdir, environment, retries.
    """
    _needs_dask()
    from penstock_pool.taskfile import read_tasks, task_of_options

    folder = pool_folder(load(), name)
    if (file is None) == (not said["command"]):
        raise UserError("give either a command or --file")
    tasks = read_tasks(file, str(Path.cwd())) if file is not None else [task_of_options(said, str(Path.cwd()))]
    numbers: list[int] = ask(folder, "submit", {"tasks": tasks, "larger": larger})
    ended = wait(folder, numbers) if waits else []
    bad = [task for task in ended if task["phase"] != "complete"]
    if as_json:
        emit_json({"tasks": numbers, "ended": ended} if waits else {"tasks": numbers})
    elif waits:
        for task in bad:
            click.echo(f"penstock: task {task['name'] or task['id']} {task['phase']}: {task['why']}", err=True)
        click.echo(f"{len(ended) - len(bad)} of {plural(len(ended), 'task')} complete")
    else:
        many = f"{len(numbers)} tasks, {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"task {numbers[0]}"
        click.echo(f"Submitted {many}")
    if bad:
        sys.exit(1)


@pool.command("stop")
@in_pool
@click.option("--drain", is_flag=True, help="When every task has ended; no more are taken.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stop(name: str, drain: bool, as_json: bool) -> None:
    """Stop a pool. Tasks that have not ended run again when it is started again."""
    folder = pool_folder(load(), name)
    if folder.address() is None:
        raise AgentUnavailable(f"pool {name!r} has no scheduler")
    answer = ask(folder, "stop", {"drain": drain})
    deadline = time.monotonic() + _END
    while not (drain and answer["left"]) and folder.address() is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    if as_json:
        emit_json(answer)
    elif drain and answer["left"]:
        click.echo(f"Pool {name!r} stops when {plural(answer['left'], 'more task')} ended")
    else:
        click.echo(f"Pool {name!r} is stopped; {plural(answer['left'], 'task')} had not ended")


for _command in (status, top, logs, cancel, drain, stage):
    pool.add_command(_command)
