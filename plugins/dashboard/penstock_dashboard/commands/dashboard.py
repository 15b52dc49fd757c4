"""penstock dashboard: a page to look at."""

from __future__ import annotations

import getpass
import signal
import socket
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn

import click

from penstock.config import Config, load
from penstock.console.door import ask_or_read
from penstock.core.installed import installed_parts
from penstock.ipc.client import ask_agent
from penstock.waits.live.known import kept_past
from penstock_dashboard.feed import Ask, Feed
from penstock_dashboard.server import Dashboard, listen_address

__all__ = ["dashboard"]

_PATIENCE = 45.0


@click.command()
@click.option(
    "--listen",
    metavar="127.0.0.1:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Where to serve it; port 0 takes any that is free.",
)
def dashboard(listen: str) -> None:
    """Serve a web page of the cluster and your work on it.

    It shows workflows and malleable jobs, too, and what was decided why.

    It runs until Ctrl-C, for you alone, and changes nothing. It asks the agent, which says what you may see; where no
    agent answers the page says so and goes on trying.
    """
    config = load()
    feed = Feed(
        _door(config),
        known=lambda cluster, snapshot: kept_past(config, cluster, snapshot),
        slots=next((found for part in installed_parts() if (found := part.free_slots(config)) is not None), None),
    )
    server = Dashboard(listen_address(listen), feed.latest)
    port = server.server_port
    click.echo(f"The dashboard is at\n  {server.url}")
    click.echo(
        "From another computer, first run there\n"
        f"  ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.gethostname()}\n"
        "and then open the same address. The address is a key: show it to nobody. Ctrl-C ends it."
    )
    signal.signal(signal.SIGTERM, _end)
    feed.start()
    try:
        server.serve_forever(poll_interval=0.5)
    except KeyboardInterrupt:
        pass
    finally:
        feed.stop()
        server.server_close()


def _door(config: Config) -> Ask:
    def request(op: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
        return ask_or_read(config, op) if op == "status" else ask_agent(config, op, arguments, timeout=_PATIENCE)

    return request


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
