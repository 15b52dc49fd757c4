"""penstock demo: see it all happen."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import click
from rich.console import Console

from penstock.config import config_of, load
from penstock.host import logs
from penstock_lab.demo.accounting import difference
from penstock_lab.demo.arena import VirtualArena
from penstock_lab.demo.compare import Comparison, Outcome, Way, compare
from penstock_lab.demo.gantt import Panel, draw
from penstock_lab.demo.present import present_site
from penstock_lab.demo.report import checks, print_summary
from penstock_lab.demo.resizing import Resizing, run_resized
from penstock_lab.demo.sites import NODES, Ground, Site, mock_site, slurm_site
from penstock_lab.demo.view import View
from penstock_planning.commands.gantt import require

__all__ = ["demo", "policy_note"]

_FULL = Comparison()
# An agent that serves others, too, looks more rarely, and has learned from earlier runs what gains by more nodes.
_PACE = ("--seconds", "0.8")
_QUICK = Comparison(stages=(14.0, 14.0, 10.0), warm_ups=4, rival_seconds=4.0, backlog=4)


@click.command()
@click.option("--backend", type=click.Choice(["mock", "slurm", "site"]), default="mock", show_default=True)
@click.option("--quick", is_flag=True, help="Short stages.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo-out"), show_default=True)
def demo(backend: str, quick: bool, out: Path) -> None:
    """Show a resized MPI job, and a workflow beside a plain chain.

    mock needs no Slurm: the workflow and the chain run in virtual time, the MPI job as real processes. slurm starts
    a throw-away cluster of eight nodes on this machine. site takes the Slurm and the agent that are here, for jobs of
    yours: only where nobody else needs the nodes. Exits 0 only if everything happened.
    """
    require()
    logs.configure("error", "text")
    sys.exit(asyncio.run(_demo(backend, _QUICK if quick else _FULL, out)))


async def _demo(backend: str, plan: Comparison, out: Path) -> int:
    console = Console(width=None if sys.stdout.isatty() else 120)
    async with _ground(backend) as ground:
        if isinstance(ground, Site) and (said := policy_note(ground.config)):
            print(said, flush=True)
        with View(ground.nodes) as view:
            try:
                resizing = await (
                    run_resized(ground, view, pace=_PACE) if backend == "site" else run_resized(ground, view)
                )
                if ground.accounting is not None and resizing.timeline is not None:
                    drawn = [bar for bar in resizing.timeline.bars if bar.job in resizing.jobs]
                    resizing.booked, resizing.off = True, difference(drawn, await ground.accounting(resizing.jobs))
                if backend == "mock":
                    outcome = await _virtual_comparison(plan, view)
                else:
                    outcome = await compare(ground.arena, plan, view, str(ground.folder))
            except BaseException:
                _keep_log(ground, out)
                raise
            verdicts = checks(outcome, resizing)
            if not all(check.ok for check in verdicts):
                _keep_log(ground, out)
    picture = out / f"gantt-{backend}.png"
    draw(picture, [*_of_resizing(resizing), *map(_of_way, outcome.ways)], ground.nodes)
    print_summary(console, outcome, resizing, verdicts)
    console.print(f"\nPicture: {picture}")
    return 0 if all(check.ok for check in verdicts) else 1


def _ground(backend: str) -> AbstractAsyncContextManager[Ground]:
    if backend == "site":
        return present_site(load())
    print(
        f"starting {'a simulated' if backend == 'mock' else 'a real'} Slurm of {NODES} nodes, and the agent", flush=True
    )
    policy = os.environ.get("PENSTOCK_DMR__POLICY")  # the agent on a real Slurm has an environment of its own
    return mock_site() if backend == "mock" else slurm_site(accrue_always=False, age_counts=True, policy=policy)


def policy_note(path: Path) -> str:
    """Which policy decides on resizes by this configuration and the environment; "" where it is the default one."""
    policy = load(path).dmr.policy
    return "" if policy == config_of({}).dmr.policy else f"the policy `{policy}` decides on resizes (`dmr.policy`)"


def _of_resizing(resizing: Resizing) -> list[Panel]:
    if resizing.timeline is None:
        return []
    origin = min((bar.start for bar in resizing.timeline.bars), default=0.0)
    title = "Jacobi: grows on idle nodes, shrinks for a job that waits"
    return [Panel(title, resizing.timeline, origin, "jacobi")]


def _of_way(way: Way) -> Panel:
    makespan = "" if way.makespan is None else f": makespan {way.makespan:.0f} s"
    return Panel(way.title + makespan, way.timeline, way.submitted_at, "workflow")


async def _virtual_comparison(plan: Comparison, view: View) -> Outcome:
    view.say("a plain chain and a workflow, in virtual time")
    config = config_of({"agent": {"interval": 1, "idle_interval": 1, "seed": 7}, "slurm": {"min_interval": 0.5}})
    arena = VirtualArena(config, NODES, start=1_000_000_000.0)
    await arena.start()
    return await compare(arena, plan, view, None)


def _keep_log(ground: Ground, out: Path) -> None:
    """What the demo's own agent said, for whoever looks into a failure."""
    if ground.agent_log is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "agent.log"
    kept.write_bytes(ground.agent_log.read_bytes())
    click.echo(f"The agent's log: {kept}", err=True)
