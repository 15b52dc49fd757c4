"""penstock pause and resume."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.config import load
from penstock.console.door import ask_or_leave
from penstock.console.output import emit_json
from penstock.errors import UserError
from penstock.values.allow import FEATURES

__all__ = ["pause", "resume"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _scope(command: _Command) -> _Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--partition", metavar="NAME", help="Only what is in this partition."),
        click.option("--user", metavar="NAME", help="Only this user's. Users may name themselves."),
        click.option("--feature", type=click.Choice(FEATURES), help="Only this."),
    ):
        command = option(command)
    return command


def _request(feature: str | None, user: str | None, partition: str | None) -> dict[str, Any]:
    uid = None
    if user is not None:
        try:
            uid = pwd.getpwnam(user).pw_uid
        except KeyError:
            raise UserError(f"--user: there is no user {user!r} here") from None
    return {"feature": feature, "uid": uid, "partition": partition}


def _tell(answer: dict[str, Any] | None, done: str, as_json: bool) -> None:
    if as_json:
        told = answer or {}
        emit_json({"left": answer is None, "pauses": told.get("pauses", []), "unwritten": told.get("unwritten", "")})
    elif answer is None:
        click.echo("Left for the next pass of an agent, or `penstock tick`")
    else:
        for text in answer["pauses"]:
            click.echo(f"{done}: {text}")
        if unwritten := answer.get("unwritten"):
            click.echo(f"penstock: {unwritten}", err=True)


@click.command()
@_scope
@click.option("--why", default="", metavar="TEXT", help="Told wherever something waits for it.")
def pause(feature: str | None, user: str | None, partition: str | None, as_json: bool, why: str) -> None:
    """Have the agent do nothing until `penstock resume`.

    With options it leaves only that alone.

    Nothing is submitted, released or resized from its next pass on, also after a restart. Jobs go on, what has begun in
    Slurm comes to its end, and workflows can be cancelled.
    """
    request = {**_request(feature, user, partition), "why": why}
    _tell(ask_or_leave(load(), "pause", request), "Paused", as_json)


@click.command()
@_scope
def resume(feature: str | None, user: str | None, partition: str | None, as_json: bool) -> None:
    """Lift pauses: those that were set with these options.

    Without options all of them.
    """
    _tell(ask_or_leave(load(), "resume", _request(feature, user, partition)), "Lifted", as_json)
