"""Groups of commands that suggest the command that was meant."""

from __future__ import annotations

from difflib import get_close_matches

import click

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """As click's; a name that it does not know is a usage error which says what comes near it.

    click suggests options by itself, and commands from 8.4 on, but only those that are loaded.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises `click.UsageError`."""
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-")) and self.get_command(ctx, name) is None:
            near = get_close_matches(name, self.list_commands(ctx), n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"no such command {name!r}{meant}", ctx)
        return super().resolve_command(ctx, args)
