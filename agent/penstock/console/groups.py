"""Groups of commands that load a command when it is used, and suggest the one that was meant."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["CommandGroup", "loaded"]


def loaded(place: str) -> click.Command:
    """The command at "module:name"."""
    module, _, name = place.partition(":")
    command: click.Command = getattr(import_module(module), name)
    return command


class CommandGroup(click.Group):
    """As click's; a name that it does not know is a usage error which says what comes near it.

    click suggests options by itself, and commands from 8.4 on, but only those that are loaded. `places` says where
    commands are, as "module:name", that are loaded when they are used.
    """

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self._places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """By name."""
        return sorted([*super().list_commands(ctx), *self._places])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loaded now, where it was not before."""
        place = self._places.get(cmd_name)
        return super().get_command(ctx, cmd_name) if place is None else loaded(place)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises `click.UsageError`."""
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-")) and self.get_command(ctx, name) is None:
            from difflib import get_close_matches  # slow to load

            near = get_close_matches(name, self.list_commands(ctx), n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"no such command {name!r}{meant}", ctx)
        return super().resolve_command(ctx, args)
