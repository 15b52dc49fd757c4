"""penstock agent, env, config: the daemon and what belongs to it."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import click
import yaml

from penstock import logs
from penstock.config import find, load
from penstock.ipc.client import ask

__all__ = ["agent", "config", "env"]


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file.")
def agent(path: Path | None) -> None:
    """Run the agent until SIGTERM; SIGHUP reloads its configuration."""
    from penstock.app import serve

    settings = load(path)
    logs.configure(settings.log.level, settings.log.format)
    asyncio.run(serve(settings, path))


@click.command()
def env() -> None:
    """Print what makes an MPI job malleable.

    Use it before sbatch: eval "$(penstock env)"
    """
    for name, value in ask(load().socket_path, "env").items():
        click.echo(f"export {name}={shlex.quote(value)}")


@click.group()
def config() -> None:
    """Check and show the configuration."""


@config.command("check")
@click.argument("path", required=False, type=click.Path(path_type=Path, dir_okay=False))
def check(path: Path | None) -> None:
    """Say whether a configuration file is right (default: the one the agent would use)."""
    load(path)
    click.echo(f"{path or find() or 'defaults'}: ok")


@config.command("show")
def show() -> None:
    """Print the configuration that applies, defaults included."""
    click.echo(yaml.safe_dump(load().model_dump(mode="json"), sort_keys=False), nl=False)
