"""penstock site-view: one look at Slurm for all users of the host."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.config import load
from penstock.console.times import Duration
from penstock.host import logs
from penstock.site import VIEW_SOCKET

__all__ = ["site_view"]


@click.command("site-view")
@click.option(
    "--socket",
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    default=VIEW_SOCKET,
    show_default=True,
    help="Where to listen for users' agents and commands.",
)
@click.option(
    "--age",
    metavar="TIME",
    type=Duration(5, 120),
    default="15s",
    show_default=True,
    help="How old a look may be that is handed out.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus there.")
def site_view(socket: Path, age: float, metrics: str | None) -> None:
    """Look at Slurm once for all users of this host.

    It runs until SIGTERM, as a system user of its own, who needs AdminLevel=Operator where PrivateData hides anything.
    Every user's agent, tick and command on this host then asks it instead of Slurm, and is shown what Slurm would show
    them. It reads, and can change nothing.
    """
    import asyncio  # slow to load

    from penstock_site_view.run import serve

    config = load()
    logs.configure(config.log.level, config.log.format)
    asyncio.run(serve(socket, age, config.slurm.timeout, metrics, config.limits.first))
