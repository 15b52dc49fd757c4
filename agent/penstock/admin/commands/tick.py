"""penstock tick: one pass of the agent, from a crontab."""

from __future__ import annotations

import click

from penstock.config import load
from penstock.console.output import clock, emit_json, in_local_time
from penstock.errors import SlurmUnavailable
from penstock.host import logs
from penstock.texts import plural

__all__ = ["tick"]


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Say what was done, and why nothing was.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def tick(verbose: bool, as_json: bool) -> None:
    """Do one pass of the agent and end.

    For a crontab, where no daemon may run.

    \b
    * * * * * penstock tick

    Silent, unless something is wrong. Does nothing where an agent runs, here or, with a state folder on a network file
    system, on another host. Ends with 6 when Slurm does not answer.
    """
    import asyncio  # slow to load

    from penstock.admin.one_pass import tick as one_tick

    config = load()
    logs.configure("warning" if verbose else "error", config.log.format)
    try:
        done = asyncio.run(one_tick(config))
    except SlurmUnavailable as e:
        # Said on request only: cron would send a mail every minute while Slurm is being maintained.
        if verbose:
            click.echo(f"penstock: {e}", err=True)
        if as_json:
            emit_json({"ran": False, "problems": [str(e)], "decisions": [], "left": None})
        raise click.exceptions.Exit(e.exit_code) from None
    if as_json:
        emit_json({"ran": done.ran, "problems": done.problems, "decisions": done.decisions, "left": done.left})
    elif verbose and not done.ran:
        click.echo(f"{done.held}: nothing was done")
    elif verbose:
        for d in done.decisions:
            why = in_local_time("; ".join(text for _code, text in d["reasons"]), d["at"])
            click.echo(f"{clock(d['at'])}  {d['subject']}  {d['verb']}: {why}")
        for problem in done.problems:
            click.echo(f"penstock: {problem}", err=True)
        click.echo(f"{plural(done.left, 'workflow')} under way")
    if done.problems:
        raise click.exceptions.Exit(SlurmUnavailable.exit_code)
