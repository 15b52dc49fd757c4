"""The backend `rest` as the rest of Penstock finds it: by its entry point, see `core.backends.RestExtension`."""

from __future__ import annotations

import os
from shutil import which

from penstock.config import Config
from penstock.core.backends import request_budget
from penstock.errors import ConfigError
from penstock.host.logins import login
from penstock.slurm.base import Backend, Reader
from penstock.slurm.commands import PROGRAMS
from penstock.values.rest_address import RestAddress
from penstock_rest.backend import RestBackend
from penstock_rest.link import RestLink
from penstock_rest.tokens import CommandTokens, FileTokens, Tokens

__all__ = ["Slurmrestd", "extension", "why_no_commands"]


class Slurmrestd:
    """See `RestExtension`."""

    def __call__(self, config: Config) -> Backend:
        """See `RestExtension`."""
        section, own = config.rest, login(os.geteuid())
        if section.url is None:
            raise ConfigError("`slurm.backend: rest` needs `rest.url`, such as unix:/run/slurmrestd/slurmrestd.socket")
        user = section.user or own
        tokens: Tokens | None = None
        if section.token_file is not None:
            tokens = FileTokens(section.token_file)
        elif section.token_command is not None:
            tokens = CommandTokens(section.token_command)
        without = why_no_commands(config)
        return RestBackend(
            link=RestLink(RestAddress.parse(section.url), user, tokens, section.ca),
            commands=not without,
            without=without,
            settings=section.settings,
            default_partition=section.default_partition,
            user=user,
            timeout=config.slurm.timeout,
            budget=request_budget(config),
            merge_releases=config.malleable.merge_releases,
        )

    async def spoken(self, backend: Reader) -> tuple[str, tuple[str, ...]] | None:
        """See `RestExtension`."""
        if not isinstance(backend, RestBackend):
            return None
        lacks = await backend.lacks()
        return backend.data_version, lacks


def why_no_commands(config: Config) -> str:
    """Why what slurmrestd cannot do is not done by Slurm's commands; empty: it is."""
    if config.rest.commands == "never":
        return "`rest.commands: never` keeps Slurm's commands from being used"
    if config.rest.user not in (None, login(os.geteuid())):
        return f"Slurm's commands would not act as {config.rest.user} (`rest.user`)"
    missing = [name for name in PROGRAMS if which(name) is None]
    return f"Slurm's commands are not on PATH here ({', '.join(missing)})" if missing else ""


extension = Slurmrestd()
