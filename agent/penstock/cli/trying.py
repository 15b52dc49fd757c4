"""penstock try: what a workflow may expect on the queue as it is, before anything is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import emit_json, table
from penstock.cli.packing import PackingOptions, packing_options
from penstock.config import Config, load
from penstock.errors import AgentUnavailable, NotPermitted, PenstockError, StoreError
from penstock.ipc.client import ask_agent
from penstock.workflow.formats import load_workflow
from penstock.workflow.model import Workflow, workflow_to_dict

if TYPE_CHECKING:
    from penstock.api import Snapshot
    from penstock.future.past import QueuePast
    from penstock.slurm.base import Reader

__all__ = ["forecast", "show", "try_"]


@click.command("try")
@click.argument("workflow", type=click.Path(path_type=Path))
@packing_options
@click.option("--cores", type=click.IntRange(1), help="WfFormat: cores of a node; default: as many as this host has.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def try_(workflow: Path, packed: PackingOptions, cores: int | None, as_json: bool) -> None:
    """Say how long a workflow would take on the queue as it is.

    As a plain chain (a job a stage, each behind those before it), and with neighbouring stages in one job: both in the
    same futures of the queue, drawn from its past. Submits nothing.

    \b
    penstock try mosaic.yaml
    """
    config = load()
    show(forecast(config, load_workflow(workflow, packed.packing(config, cores))), as_json)


def forecast(config: Config, workflow: Workflow) -> Mapping[str, Any]:
    """The agent's forecast; where none answers, or it is another's, that of an own look at Slurm."""
    try:
        answer: Mapping[str, Any] = ask_agent(config, "try", {"workflow": workflow_to_dict(workflow)})
        return answer
    except (AgentUnavailable, NotPermitted):
        return asyncio.run(_alone(config, workflow))


async def _alone(config: Config, workflow: Workflow) -> Mapping[str, Any]:
    # Not needed where an agent answers, and slow to load.
    from penstock.cli.backends import backend_of
    from penstock.core.pace import at_once
    from penstock.future.cluster import Cluster
    from penstock.future.turns import believed
    from penstock.holding.reservations import take_snapshot
    from penstock.workflow.forecast import PATIENT, compare
    from penstock.workflow.strategy import Rules

    async with backend_of(config) as backend:
        site, snapshot = await backend.site(), await take_snapshot(backend)
        past = await _past(config, backend, site.cluster, snapshot)
    cluster = Cluster.of(believed(snapshot, site.scheduler_parameters))
    found = at_once(compare(workflow, cluster, past, Rules.of(site), work=PATIENT))
    return {"live": False, **found.told()}


async def _past(config: Config, backend: Reader, cluster: str, snapshot: Snapshot) -> QueuePast:
    """What the agent's state file knows, where it is the caller's to read; else what accounting tells of the caller's
    own jobs."""
    from penstock.future.past import ENOUGH, QueuePast, used_in
    from penstock.predictions.recorder import past_in
    from penstock.state.ownership import is_readable
    from penstock.state.store import Store

    past, path = QueuePast(), config.agent.state_dir / "penstock.db"
    try:
        if is_readable(path):
            with closing(Store.read_only(path)) as store:
                past = past_in(store, cluster, snapshot)
    except (NotPermitted, StoreError):
        pass  # another's
    if len(past.used) < ENOUGH and config.asa.history:
        try:
            own = used_in(await backend.history(since=backend.now() - config.asa.history))
        except PenstockError:
            return past  # without accounting: it is said that nothing is known
        past = replace(past, used=(*own, *past.used[len(past.own) :]), own=own)
    return past


def show(answer: Mapping[str, Any], as_json: bool) -> None:
    """Print a forecast: the line, the cuts, and what it is made from."""
    if as_json:
        emit_json(answer)
        return
    from penstock.workflow.forecast import told_change, told_time

    click.echo(answer["line"])
    rows = []
    for i, cut in enumerate(answer["cuts"]):
        makespan, less = cut["makespan"], cut["less"]
        rows.append(
            (
                "*" if i == answer["chosen"] else "",
                ", ".join("+".join(stages) for stages in cut["jobs"]) if i else "the plain chain",
                told_time(makespan["median"]),
                f"{told_time(makespan['low'])} to {told_time(makespan['high'])}",
                "" if less is None else told_change(less["mean"]),
                "" if less is None else f"{told_change(less['low'])} to {told_change(less['high'])}",
                f"{cut['core_hours']:.2f}",
            )
        )
    if rows:
        head = ("", "jobs", "median", "8 of 10 between", "than the chain", "95 % interval", "core-hours")
        table(f"Workflow {answer['workflow']} in {answer['partition']}, drawn {answer['futures']} times", head, rows)
    for note in answer["notes"]:
        click.echo(f"- {note}")
    click.echo("Nothing was submitted.")
