"""penstock pool status, top, logs, cancel: looking into a pool."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.config import load
from penstock.console.output import ago, build_table, emit_json, say
from penstock.console.parts import TextTable
from penstock.console.times import Duration
from penstock.errors import NotNow, PenstockError
from penstock.texts import plural
from penstock_pool.client import FINAL, ask
from penstock_pool.folder import PoolFolder, pool_folder
from penstock_pool.model import TaskPhase
from penstock_pool.output import output_path

__all__ = ["cancel", "in_pool", "logs", "status", "top"]

_POLL = 0.5
_ROWS = 20
_WIDE = 160
_MEMBERS = ("node", "job", "cores", "busy", "used", "tasks", "left", "")
_TASKS = ("task", "name", "phase", "tries", "node", "job", "wall", "cpu", "memory", "why")


def in_pool(command: Callable[..., Any]) -> Callable[..., Any]:
    """--pool, as `name`."""
    option = click.option(
        "--pool",
        "name",
        metavar="NAME",
        default="main",
        show_default=True,
        envvar="PENSTOCK_POOL",
        help="Which pool.",
    )
    decorated: Callable[..., Any] = option(command)
    return decorated


@click.command()
@in_pool
@click.option("--tasks", "listed", is_flag=True, help="List the tasks, too.")
@click.option(
    "--phase", "phases", multiple=True, type=click.Choice([str(p) for p in TaskPhase]), help="Only these tasks."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str, listed: bool, phases: tuple[str, ...], as_json: bool) -> None:
    """Show a pool: its members, and how far its tasks are."""
    folder = pool_folder(load(), name)
    answer = ask(folder, "status")
    if listed or phases:
        answer["listed"] = ask(folder, "tasks", {"phases": list(phases)})
    if as_json:
        emit_json(answer)
    else:
        say(*_screen(answer, answer.get("listed", [])), width=_WIDE, highlight=True)


@click.command()
@in_pool
@click.option(
    "--interval",
    type=Duration(0.5),
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Time between looks (bare: seconds).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one look as JSON.")
def top(name: str, interval: float, as_json: bool) -> None:
    """Watch a pool; once, where the output is no terminal. Ctrl-C ends it."""
    folder = pool_folder(load(), name)
    if as_json:
        emit_json(_look(folder))
        return
    if not sys.stdout.isatty():
        say(*_screen(*_both(_look(folder))), width=_WIDE)
        return
    from penstock.console.styled import Live, group  # slow to load

    try:
        with Live(group(_screen(*_both(_look(folder)))), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                try:
                    live.update(group(_screen(*_both(_look(folder)))), refresh=True)
                except PenstockError as e:  # a scheduler that is started again comes back
                    live.update(group([f"penstock: {e}"]), refresh=True)
    except KeyboardInterrupt:
        return


def _look(folder: PoolFolder) -> dict[str, Any]:
    answer: dict[str, Any] = ask(folder, "status")
    answer["listed"] = ask(folder, "tasks", {"phases": [TaskPhase.RUNNING, TaskPhase.FAILED], "most": _ROWS})
    return answer


def _both(answer: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return answer, answer["listed"]


def _screen(answer: dict[str, Any], tasks: list[dict[str, Any]]) -> list[str | TextTable]:
    counts = ", ".join(f"{count} {phase}" for phase, count in answer["tasks"].items() if count) or "no tasks yet"
    busy = f"{answer['busy']:g} of {answer['cores']:g} cores busy"
    parts: list[str | TextTable] = [f"pool {answer['pool']}: {counts}; {busy}"]
    others = answer.get("others", {})
    if any(others.values()):
        parts.append(f"of clients of Dask: {others['running']} running, {others['waiting']} waiting")
    if answer["problem"]:
        parts.append(f"on hold: {answer['problem']}")
    for shape in answer["unreachable"]:
        needs = ", ".join(
            [f"{shape['cores']:g} cores"]
            + ([f"{shape['memory'] / 1e9:.3g} GB"] if shape["memory"] else [])
            + ([f"{shape['gpus']} GPUs"] if shape["gpus"] else [])
            + ([f"{ago(shape['seconds'])}"] if shape["seconds"] else [])
        )
        parts.append(f"{shape['tasks']} tasks wait for a member that has as much as they need: {needs}")
    if answer["members"]:
        parts.append(build_table("members", _MEMBERS, [_member(m) for m in answer["members"]]))
    if tasks:
        parts.append(build_table("tasks", _TASKS, [_task(t, answer["now"]) for t in tasks]))
    return parts


def _member(member: dict[str, Any]) -> tuple[object, ...]:
    return (
        member["node"],
        member["job"],
        f"{member['cores']:g}",
        f"{member['busy']:g}",
        f"{member['used']:.1f}",
        member["running"],
        ago(member["left"]),
        "draining" if member["draining"] else "",
    )


def _task(task: dict[str, Any], now: float) -> tuple[object, ...]:
    runs = task["phase"] == TaskPhase.RUNNING
    return (
        task["id"],
        task["name"] or " ".join(task["command"])[:40],
        task["phase"],
        task["attempt"],
        task["node"],
        task["job"],
        ago(now - task["started"] if runs else task["wall"]) if task["started"] is not None else "",
        "" if runs else f"{task['cpu']:.1f}s",
        f"{task['memory'] / 1e6:.0f} MB" if task["memory"] else "",
        task["why"],
    )


@click.command()
@in_pool
@click.argument("task")
@click.option("--err", is_flag=True, help="Its standard error.")
@click.option("--attempt", type=click.IntRange(1), help="Which attempt; default: the last.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until it has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print the task and its files as JSON.")
def logs(name: str, task: str, err: bool, attempt: int | None, follow: bool, as_json: bool) -> None:
    """Print what a task has written. TASK is its number or name."""
    folder = pool_folder(load(), name)
    (found,) = ask(folder, "tasks", {"ids": [task]})
    number = attempt or found["attempt"]
    files = {kind: output_path(folder.output, found["id"], number, kind) for kind in ("out", "err")}
    if as_json:
        emit_json({"task": found, "attempt": number, "files": {k: str(f) for k, f in files.items() if f.exists()}})
        return
    if number == 0:
        raise NotNow(f"task {task} has not begun ({found['phase']})")
    _print(folder, files["err" if err else "out"], found, follow=follow and number == found["attempt"])


def _print(folder: PoolFolder, path: Path, found: dict[str, Any], *, follow: bool) -> None:
    """A file that is not there is an empty one: nothing was written."""
    at, ended = 0, not follow
    while True:
        if path.exists():
            with path.open("rb") as file:
                file.seek(at)
                while data := file.read(65536):
                    sys.stdout.buffer.write(data)
                    at += len(data)
                sys.stdout.buffer.flush()
        if ended:
            return
        time.sleep(_POLL)
        (now,) = ask(folder, "tasks", {"ids": [found["id"]]})
        ended = now["phase"] in FINAL or now["attempt"] != found["attempt"]


@click.command()
@in_pool
@click.argument("tasks", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cancel(name: str, tasks: tuple[str, ...], as_json: bool) -> None:
    """Cancel tasks, by number or name; those that run are ended."""
    count = ask(pool_folder(load(), name), "cancel", {"tasks": list(tasks)})
    if as_json:
        emit_json({"cancelled": count})
    else:
        click.echo(f"{plural(count, 'task')} being cancelled" if count else "All of them had ended before")
