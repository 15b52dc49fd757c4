"""Whether what a command prints with --json is what its schema says."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence

import click
from pydantic import BaseModel

from penstock.cli import cli
from penstock.cli.schemas import answers
from penstock.console.output import json_text


@functools.cache
def commands() -> dict[str, click.Command]:
    """Every command that is not a group, by the words after `penstock`."""
    return dict(_below(click.Context(cli, info_name="penstock")))


def _below(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    command = context.command
    assert isinstance(command, click.Group)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        inner = click.Context(found, info_name=name, parent=context)
        if isinstance(found, click.Group):
            yield from _below(inner)
        else:
            yield inner.command_path.removeprefix("penstock "), found


def prints_json(command: click.Command) -> bool:
    return any("--json" in option.opts for option in command.params)


def check(name: str, text: str) -> None:
    """Fails where a key is missing, is of another type, or is one that the schema does not know."""
    found = answers()[name].validate_json(text, strict=True)
    shown = found.model_dump_json(exclude_unset=True) if isinstance(found, BaseModel) else json_text(found)
    assert json.loads(shown) == json.loads(text), f"penstock {name} --json: what its schema does not say"


def name_of(command: click.Command) -> str | None:
    """None: it is no command of `penstock`."""
    return next((name for name, known in commands().items() if known is command), None)


def named_by(words: Sequence[str]) -> str | None:
    """The command that a command line calls."""
    found = [name for name in commands() if name.split() == list(words[: len(name.split())])]
    return max(found, key=len, default=None)
