"""Options under the names that they had up to 0.1.0: they go on for this release, unseen, and say what to type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

__all__ = ["formerly"]


def formerly(old: str, new: str, name: str, **settings: Any) -> Callable[..., Any]:  # noqa: ANN401
    """`old` gives the command's parameter `name` as `new`, which must not be required, does; with a notice on standard
    error. `settings` are those of the option: its type, its callback."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**options: Any) -> Any:  # noqa: ANN401
            given = options.pop(f"former_{name}")
            if given not in (None, (), []):  # not given, or not given once where it may be repeated
                click.echo(f"penstock: {old} is called {new} now, and goes with the release after this one", err=True)
                options[name] = given
            return command(**options)

        return click.option(old, f"former_{name}", hidden=True, **settings)(gathered)

    return decorate
