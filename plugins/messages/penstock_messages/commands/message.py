"""penstock message: what the agent tells people, tried out and looked through."""

from __future__ import annotations

import os
import time

import click

from penstock.config import Config, load
from penstock.console.groups import CommandGroup
from penstock.console.output import clock, emit_json, plain, table
from penstock.errors import PenstockError, UserError
from penstock.host.logins import login

__all__ = ["message"]


@click.group(cls=CommandGroup)
def message() -> None:
    """Try the messages that the agent sends, and list them."""


@message.command("test")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def test(as_json: bool) -> None:
    """Send a test by every way that is configured, from here and at once.

    Run it as the agent's user: `sudo -u penstock penstock message test`. Mail goes to whom the agent would write about
    itself, or about a stage of this user's. Ends with 1 if one way fails.
    """
    from penstock.core.events import Event
    from penstock_messages.channels import attempt, channels_of

    config = load()
    shared, domain = config.agent.serve == "all", ""
    if config.messages.mail != "off" and config.messages.mail_domain is None:
        domain = _mail_domain(config)
    channels = channels_of(config.messages, domain, shared=shared)
    if not channels:
        raise UserError(
            "no way is configured for messages: set `messages.mail`, `messages.webhook`, `messages.command` or "
            "`messages.channels`"
        )
    uid = None if shared and config.messages.mail_to else os.geteuid()
    user = "" if uid is None else login(uid)
    now = time.time()
    text = "This is a test of the messages that Penstock sends, by `penstock message test`. Nothing has happened.\n"
    event = Event(f"test {now}", "test", now, "a test", text, uid, user)
    errors = {name: attempt(channel, event) for name, channel in channels.items()}
    found = {name: "" if error is None else str(error) or "not delivered" for name, error in errors.items()}
    if as_json:
        emit_json({"tests": [{"channel": name, "sent": not why, "why": why or None} for name, why in found.items()]})
    else:
        for name, why in found.items():
            click.echo(plain(f"{name}: {why or 'sent'}"))
    if any(found.values()):
        raise click.exceptions.Exit(PenstockError.exit_code)


def _mail_domain(config: Config) -> str:
    """Slurm's MailDomain; none where Slurm does not answer, which is no reason not to try."""
    import asyncio

    from penstock.console.backends import backend_of

    async def ask() -> str:
        async with backend_of(config) as slurm:
            try:
                return (await slurm.site()).mail_domain
            except PenstockError as error:
                click.echo(plain(f"penstock: MailDomain is not known: {error}"), err=True)
                return ""

    return asyncio.run(ask())


@message.command("list")
@click.option(
    "--last", "limit", type=click.IntRange(1, 10_000), metavar="N", default=20, show_default=True, help="The latest N."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_messages(limit: int, as_json: bool) -> None:
    """Show the latest messages and what became of them: sent, open, failed, dropped, or unknown (not sent again).

    Read from the state file, which only the agent's user can.
    """
    from penstock.state.opening import open_state  # slow to load

    store = open_state(load())
    try:
        found = store.messages.latest(limit)
    finally:
        store.close()
    if as_json:
        emit_json({"messages": found})
        return
    rows = [
        (clock(m["at"]), m["channel"], m["event"]["user"], m["event"]["title"], m["state"], m["tries"], m["outcome"])
        for m in found
    ]
    if rows:
        table("messages", ("at", "by", "of", "what", "state", "tries", "why"), rows)
    else:
        click.echo("No message was ever to be sent.")
