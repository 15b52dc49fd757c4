"""penstock try: what a workflow may expect on the queue as it is, before anything is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.config import Config, load
from penstock.console.output import emit_json, table
from penstock.errors import AgentUnavailable, NotPermitted
from penstock.ipc.client import ask_agent
from penstock.workflow.commands.packing import PackingOptions, packing_options

if TYPE_CHECKING:
    from penstock.workflow.model import Workflow

__all__ = ["forecast", "show", "try_"]

_PATIENCE: Final = 180.0  # seconds: a user's questions of this kind are answered one after the other


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
    from penstock.workflow.files.formats import load_workflow  # slow to load

    config = load()
    show(forecast(config, load_workflow(workflow, packed.packing(config, cores, runs=False))), as_json)


def forecast(config: Config, workflow: Workflow) -> Mapping[str, Any]:
    """The agent's forecast; where none answers, or it is another's, that of an agent that stands in."""
    from penstock.workflow.model import workflow_to_dict  # slow to load

    request = {"workflow": workflow_to_dict(workflow)}
    try:
        answer: Mapping[str, Any] = ask_agent(config, "try", request, _PATIENCE)
        return answer
    except (AgentUnavailable, NotPermitted):
        from penstock.console.stand_in import answered  # slow to load

        return {**answered(config, "try", request, without_state=True), "live": False}


def show(answer: Mapping[str, Any], as_json: bool) -> None:
    """Print a forecast: the line, the cuts, and what it is made from."""
    if as_json:
        emit_json(answer)
        return
    from penstock.workflow.submit.forecast import told_change, told_time

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
        title = f"Workflow {answer['workflow']} in {answer['partition']}, drawn {answer['futures']} times"
        table(title, head, rows, ("core-hours", "95 % interval"))
    for note in answer["notes"]:
        click.echo(f"- {note}")
    click.echo("Nothing was submitted.")
