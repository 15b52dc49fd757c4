"""penstock agent, env, config: the daemon and what belongs to it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Final

import click

from penstock.config import DEFAULT, find, load, origins, schema, values_of
from penstock.console.groups import CommandGroup
from penstock.console.output import emit_json
from penstock.errors import ConfigError
from penstock.host import logs
from penstock.ipc.client import ask_agent

__all__ = ["agent", "config", "env"]

_KEY: Final = re.compile(r"`(\w+)\.(\w+)")
"""As an error begins that is about the value of a key."""


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file.")
def agent(path: Path | None) -> None:
    """Run the agent until SIGTERM; SIGHUP reloads its configuration."""
    import asyncio  # slow to load

    from penstock.app import serve

    settings = load(path)
    logs.configure(settings.log.level, settings.log.format)
    asyncio.run(serve(settings, path))


@click.command()
def env() -> None:
    """Print what makes an MPI job malleable.

    Use it before sbatch: eval "$(penstock env)"
    """
    for name, value in ask_agent(load(), "env").items():
        click.echo(f"export {name}={shlex.quote(value)}")


@click.group(cls=CommandGroup)
def config() -> None:
    """Check and show the configuration."""


@config.command("check")
@click.argument("path", required=False, type=click.Path(path_type=Path, dir_okay=False))
def check(path: Path | None) -> None:
    """Say whether a configuration file is right (default: the one the agent would use)."""
    from penstock import app

    settings, file, where = load(path), path or find(), origins(path)
    try:
        app.check(settings)
    except ConfigError as e:
        if (key := _KEY.match(str(e))) is None:  # it is about an installed part, say
            raise
        at = where.get((key[1], key[2]), DEFAULT)
        said = file if at == DEFAULT else at
        raise ConfigError(f"{said}: {e}" if said else str(e)) from e
    variables = sorted({at for at in where.values() if at.startswith("PENSTOCK_")})
    click.echo(f"{', '.join([str(file or 'defaults'), *variables])}: ok")


@config.command("show")
@click.option("--origin", is_flag=True, help="Say of each value where it comes from: default, file and line, variable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(origin: bool, as_json: bool) -> None:
    """Print the configuration that applies, defaults included."""
    import yaml  # slow to load

    values = values_of(load())
    if not origin:
        if as_json:
            emit_json(values)
        else:
            click.echo(yaml.safe_dump(values, sort_keys=False).rstrip())
        return
    where = origins()
    if as_json:
        emit_json({s: {k: {"value": v, "from": where[s, k]} for k, v in keys.items()} for s, keys in values.items()})
        return
    for section, keys in values.items():
        click.echo(f"{section}:")
        lines = {key: _line(key, value) for key, value in keys.items()}
        width = min(40, max(len(line) for line in lines.values()))
        for key, line in lines.items():
            click.echo(f"  {line:<{width}}  # {where[section, key]}")


def _line(key: str, value: object) -> str:
    """A key with its value, on one line of YAML."""
    import yaml  # slow to load

    if isinstance(value, list | dict):
        return f"{key}: {json.dumps(value)}"
    return yaml.safe_dump({key: value}, default_flow_style=False, width=10**6).rstrip()


@config.command("schema")
def print_schema() -> None:
    """Print the JSON schema of the configuration file, for editors and for tools that write one."""
    click.echo(json.dumps(schema(), indent=2))
