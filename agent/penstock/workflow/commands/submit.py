"""penstock submit: a workflow file on its way."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.config import load
from penstock.console.options import number
from penstock.console.output import emit_json, plain
from penstock.errors import UserError
from penstock.workflow.commands.packing import PackingOptions, packing_options
from penstock.workflow.strategies.registry import known_strategies, strategy_line, strategy_named

__all__ = ["submit"]


class _Strategies(click.Command):
    """Its help lists the strategies, those of extensions included."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each: the first of its docstring."""
        rows = [(name, strategy_line(name)) for name in known_strategies()]
        with formatter.section("Strategies"):
            formatter.write_dl(rows)


@click.command(cls=_Strategies)
@click.argument("workflow", type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    type=click.Choice(known_strategies()),
    metavar="NAME",
    help="When each stage is submitted, see below; default: `workflows.strategy` of the configuration.",
)
@packing_options
@click.option("--cores", type=click.IntRange(1), help="WfFormat: cores of a node; default: as many as this host has.")
@click.option("--held", is_flag=True, help="Submit all stages now, kept back, for the agent to release.")
@click.option("--tick", is_flag=True, help="Where no agent runs, leave it for `penstock tick`.")
@click.option("--shorten", is_flag=True, help="Shorter time limits, where the stages' earlier runs say so.")
@click.option("--less-memory", is_flag=True, help="Less memory a node, where the stages' earlier runs say so.")
@number("risk", "Of these two: chance in % that a stage needs more (default: 1).", 0, 50, "above 0, at most 50")
@click.option("--dry-run", is_flag=True, help="Submit nothing; say what it may expect, as `penstock try`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def submit(
    workflow: Path,
    strategy: str | None,
    packed: PackingOptions,
    cores: int | None,
    held: bool,
    tick: bool,
    shorten: bool,
    less_memory: bool,
    risk: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Hand a workflow file to the agent: YAML, or WfFormat 1.5 or 1.6.

    An agent of another user (a site's) cannot submit for you: all stages are submitted now, kept back, and it lets them
    go. A job that asks for less time starts earlier: with --shorten the limits are those of `penstock advise`, and a
    stage of which too little is known keeps its own. --less-memory does likewise with the memory that stages ask for.
    """
    if risk is not None and not (shorten or less_memory):
        raise UserError("--risk is for --shorten and --less-memory")
    config = load()
    strategy = strategy or config.workflows.strategy
    strategy_named(strategy)
    from penstock.workflow.commands.handing import hand_over
    from penstock.workflow.files.formats import load_workflow  # slow to load

    parsed = load_workflow(workflow, packed.packing(config, cores, runs=not dry_run))
    if shorten or less_memory:
        from penstock.advice.commands.shortening import by_history  # not needed by others

        asked = (1.0 if risk is None else risk) / 100
        parsed, told = by_history(config, parsed, asked, time_limits=shorten, memory=less_memory)
        for line in told:
            click.echo(line, err=as_json)
    if dry_run:
        from penstock.workflow.commands.trying import forecast, show  # not needed by others

        show(forecast(config, parsed), as_json)
        return
    run = hand_over(config, parsed, strategy, held=held, tick=tick)
    for notice in parsed.notices:
        click.echo(plain(f"penstock: {parsed.source}: {notice}"), err=True)
    if as_json:
        emit_json({"run": run})
    elif run is None:
        click.echo("The next `penstock tick` takes the workflow on")
    else:
        click.echo(f"Submitted workflow {run}")
