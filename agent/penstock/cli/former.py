"""Options under the names that they had up to 0.1.0: they go on for this release, unseen, and say what to type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

__all__ = ["formerly"]


def formerly(old: str, new: str, name: str) -> Callable[..., Any]:
    """`old` gives the command's parameter `name` as the option `new`, which must not be required, does; with a notice
    on standard error."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**options: Any) -> Any:  # noqa: ANN401
            given = options.pop(f"former_{name}")
            if given is not None:
                click.echo(f"penstock: {old} is called {new} now, and goes with the release after this one", err=True)
                options[name] = given
            return command(**options)

        return click.option(old, f"former_{name}", hidden=True)(gathered)

    return decorate
