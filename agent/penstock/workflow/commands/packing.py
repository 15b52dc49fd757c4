"""Options of commands that take WfFormat files: how its tasks become jobs, or tasks of a pool."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.console.times import TIME
from penstock.errors import AgentUnavailable

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.workflow.files.wfformat import Packing, PoolCommands

__all__ = ["PackingOptions", "packing_options", "pool_commands"]


class PackingOptions(NamedTuple):
    """What the options say."""

    max_nodes: int
    limit: float | None
    task: str | None
    pool: str | None

    def packing(self, config: Config, cores: int | None, *, runs: bool = True) -> Packing:
        """For nodes of so many cores; None: as many as this host has. Without `runs` it is for a plan alone.
        AgentUnavailable if the pool is not open."""
        from penstock.workflow.files.wfformat import Packing  # slow to load

        in_pool = None if self.pool is None else pool_commands(config, self.pool)
        width = cores or os.cpu_count() or 1
        return Packing(self.max_nodes, width, time=self.limit, command=self.task, pool=in_pool, runs=runs)


def packing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--max-nodes, --time, --task and --pool; the command gets them as `packed`."""

    @functools.wraps(command)
    def gathered(max_nodes: int, limit: float | None, task: str | None, pool: str | None, **options: Any) -> Any:  # noqa: ANN401
        return command(packed=PackingOptions(max_nodes, limit, task, pool), **options)

    out: Callable[..., Any] = gathered
    for option in (
        click.option("--pool", metavar="NAME", help="WfFormat: run the tasks in this pool, which has been started."),
        click.option("--task", metavar="COMMAND", help="WfFormat: run this for each task, as in 'sleep {runtime}'."),
        click.option(
            "-t",
            "--time",
            "limit",
            type=TIME,
            metavar="TIME",
            help="WfFormat: limit of each stage; default: 3 times its work.",
        ),
        click.option(
            "--max-nodes", type=click.IntRange(1), default=1, show_default=True, help="WfFormat: for a stage, at most."
        ),
    ):
        out = option(out)
    return out


def pool_commands(config: Config, name: str) -> PoolCommands:
    """What a job runs to work for the pool, wherever it is submitted from. AgentUnavailable if that is not open."""
    from penstock.state.pools import pool_place
    from penstock.workflow.files.wfformat import PoolCommands

    place = pool_place(config, name)
    if place.address() is None:
        raise AgentUnavailable(f"pool {name!r} has no scheduler; {place.start} starts one")
    variable = f"PENSTOCK_POOL__FOLDER={place.path.parent}"
    stage, join = (
        shlex.join(["env", variable, sys.executable, "-m", "penstock", "pool", word, "--pool", name])
        for word in ("stage", "join")
    )
    return PoolCommands(stage, join)
