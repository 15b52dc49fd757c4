"""penstock demo: see it all happen."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
from rich.console import Console

from penstock.cli.gantt import require
from penstock.config import Config
from penstock.host import logs
from penstock_lab.demo.arena import VirtualArena
from penstock_lab.demo.breathe import breathe
from penstock_lab.demo.compare import Comparison, Outcome, alternatives, compare
from penstock_lab.demo.gantt import draw
from penstock_lab.demo.report import checks, print_summary
from penstock_lab.demo.sites import NODES, Site, mock_site, slurm_site
from penstock_lab.demo.view import View

__all__ = ["demo"]

_FULL = Comparison()
_QUICK = Comparison(
    stages=(21.0, 21.0, 15.0), largest=20.0, warm_ups=4, rival_seconds=4.0, backlog=4, strategies=("asa",)
)


@click.command()
@click.option("--backend", type=click.Choice(["mock", "slurm"]), default="mock", show_default=True)
@click.option("--quick", is_flag=True, help="Short stages, and no comparison with perstage.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo-out"), show_default=True)
def demo(backend: str, quick: bool, out: Path) -> None:
    """Show a workflow ahead of its queue and a resized MPI job.

    mock needs no Slurm: the comparison of strategies runs in virtual time, the MPI job as real processes. slurm starts
    a throw-away cluster of eight nodes on this machine. Exits 0 only if everything happened.
    """
    require()
    logs.configure("error", "text")
    sys.exit(asyncio.run(_demo(backend, _QUICK if quick else _FULL, out)))


async def _demo(backend: str, plan: Comparison, out: Path) -> int:
    grid = alternatives(plan.largest)
    nodes = [f"n{i + 1}" for i in range(NODES)]
    console = Console(width=None if sys.stdout.isatty() else 120)
    with View(nodes) as view:
        view.say(f"starting {'a simulated' if backend == 'mock' else 'a real'} Slurm of {NODES} nodes, and the agent")
        async with (mock_site if backend == "mock" else slurm_site)(grid) as site:
            try:
                breath = await breathe(site.arena, site.own, site.folder, NODES, view)
                if backend == "mock":
                    outcome = await _virtual_comparison(grid, plan, view)
                else:
                    outcome = await compare(site.arena, plan, view, str(site.folder))
            except BaseException:
                _keep_log(site, out)
                raise
            verdicts = checks(outcome, breath)
            if not all(check.ok for check in verdicts):
                _keep_log(site, out)
    panels = [("Jacobi: grows on idle nodes, shrinks for a job that waits", breath.timeline)] if breath.timeline else []
    panels += [(f"workflow under {name}", line) for name, line in outcome.timelines.items()]
    picture = out / f"gantt-{backend}.png"
    draw(picture, panels, nodes)
    print_summary(console, outcome, breath, verdicts)
    console.print(f"\nPicture: {picture}")
    return 0 if all(check.ok for check in verdicts) else 1


async def _virtual_comparison(grid: tuple[float, ...], plan: Comparison, view: View) -> Outcome:
    view.say("comparison of strategies, in virtual time")
    config = Config.model_validate(
        {
            "agent": {"interval": 1, "idle_interval": 1, "seed": 7},
            "slurm": {"min_interval": 0.5},
            "asa": {"alternatives": grid},
        }
    )
    arena = VirtualArena(config, NODES, start=1_000_000_000.0)
    await arena.start()
    return await compare(arena, plan, view, None)


def _keep_log(site: Site, out: Path) -> None:
    """What the agent said, for whoever looks into a failure."""
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "agent.log"
    kept.write_bytes(site.agent_log.read_bytes())
    click.echo(f"The agent's log: {kept}", err=True)
