"""penstock report: what the agent was good for."""

from __future__ import annotations

import time

import click

from penstock.config import load
from penstock.console.output import emit_json
from penstock.console.times import Duration

__all__ = ["report"]


@click.command()
@click.option(
    "--since",
    type=Duration(0.001),
    default="7d",
    show_default=True,
    metavar="T",
    help="How far back, such as 12h, 7d (bare: seconds).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(since: float, as_json: bool) -> None:
    """Say what the agent has done and what it cost.

    Hours of waiting, nodes moved, and the price of it, each with how it was found; and whether workflows have waited
    less than plain chains (sbatch --dependency=afterok) would have.

    Read from the state file, which only the agent's user can; beside a running agent or without one. The agent sends
    the same once a week where messages are set up.
    """
    from penstock.report.period import as_text, report_of  # slow to load
    from penstock.state.opening import open_state  # slow to load

    store = open_state(load())
    try:
        now = time.time()
        found = report_of(store, now - since, now)
    finally:
        store.close()
    if as_json:
        emit_json(found.to_dict())
    else:
        click.echo(as_text(found), nl=False)
