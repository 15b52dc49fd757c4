"""What `penstock doctor` finds of messages: whether their channels could work. Nothing is sent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from penstock.config import Config
from penstock.core.findings import Finding, Trouble, Within, failed, fine
from penstock.errors import UserError
from penstock.state.ownership import own_folder
from penstock_messages.channels import Undelivered, channels_of, read_secret

__all__ = ["message_checks", "ways_of"]


def message_checks(config: Config, within: Within) -> Iterator[Finding]:
    """See `Part.checks`."""
    if config.messages.configured and within(lambda: _others_send(config)) is not False:
        yield fine("notify", "the site's agent sends messages")
        return
    ways = within(lambda: ways_of(config))
    if isinstance(ways, Trouble):
        yield failed("notify", ways.why, "correct it, and try it with `penstock message test`")
    elif ways is None:
        yield failed(
            "notify",
            "no channel for messages is configured: nobody is told when a stage fails",
            "set `messages.mail` or another channel",
        )
    else:
        yield fine("notify", ways)


def _others_send(config: Config) -> bool:
    """Whether that is the agent of a site, whose user the caller is not: its secrets are not theirs to read."""
    return config.agent.serve != "own" and own_folder(config) != config.agent.state_dir


def ways_of(config: Config) -> str | None:
    """The ways that messages take; None: none. Raises UserError for one that cannot work."""
    settings, ways = config.messages, []
    programs = []
    channels_of(settings)
    try:
        if settings.mail == "smtp":
            ways.append(f"mail by {settings.smtp}")
            if settings.smtp_login is not None:
                read_secret(settings.smtp_login)
        if settings.webhook is not None:
            read_secret(settings.webhook)
            ways.append("a webhook")
    except Undelivered as error:
        raise UserError(str(error)) from error
    if settings.mail == "sendmail":
        programs.append(settings.sendmail[0])
    if settings.command is not None:
        programs.append(settings.command[0])
    for program in programs:
        if shutil.which(program) is None:
            raise UserError(f"{program} cannot be run")
        ways.append(f"{'mail by ' if program == settings.sendmail[0] else ''}{program}")
    ways += [f"the channel {name}" for name in settings.channels]
    return ", ".join(ways) or None
