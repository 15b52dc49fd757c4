"""How Slurm is reached: the backend that the configuration names."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from shutil import which
from typing import Protocol

from penstock.config import Config
from penstock.core.extensions import BACKENDS
from penstock.errors import ConfigError
from penstock.host.logins import login
from penstock.host.logs import get_logger
from penstock.slurm.base import Backend
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.commands import PROGRAMS, CommandRunner
from penstock.values.rest_address import RestAddress

__all__ = [
    "PyslurmExtension",
    "auto",
    "cli",
    "make_backend",
    "pyslurm",
    "pyslurm_extension",
    "request_budget",
    "rest",
    "why_no_commands",
]

_log = get_logger(__name__)


class PyslurmExtension(Protocol):
    """What the distribution penstock-pyslurm gives: `pyslurm` under the entry point of `BACKENDS`."""

    def __call__(self, config: Config, fallback: Callable[[str], None] | None = None) -> Backend:
        """Slurm by pyslurm. If that does not fit this Slurm, `fallback` is told why, once, and the commands serve;
        without it the first call raises ConfigError."""
        ...

    async def version(self, runner: CommandRunner, slurm: tuple[int, ...] | None, limit: float) -> str:
        """The version of the pyslurm that is installed. It fits this release of `slurm` (None: not known which that
        is). Raises PenstockError where it does not, or does not start within `limit` seconds."""
        ...


def make_backend(config: Config) -> Backend:
    """The backend that the configuration names. Raises ConfigError."""
    connect: Callable[[Config], Backend] = BACKENDS.load(config.slurm.backend)
    return connect(config)


def cli(config: Config) -> Backend:
    """Slurm by its commands."""
    from penstock.slurm.cli import CliBackend

    merges = config.malleable.merge_releases
    return CliBackend(timeout=config.slurm.timeout, budget=request_budget(config), merge_releases=merges)


def pyslurm(config: Config) -> Backend:
    """Slurm by pyslurm, which has to be there."""
    extension = pyslurm_extension()
    if extension is None:
        raise ConfigError("`slurm.backend: pyslurm`, but pyslurm is not installed (`pip install penstock[pyslurm]`)")
    return extension(config)


def rest(config: Config) -> Backend:
    """Slurm by slurmrestd, and by the commands for what that lacks, where they may be used."""
    if find_spec("httpx") is None:
        raise ConfigError("`slurm.backend: rest`, but httpx is not installed (`pip install penstock[rest]`)")
    from penstock.slurm.rest import RestBackend
    from penstock.slurm.rest_link import RestLink
    from penstock.slurm.rest_tokens import CommandTokens, FileTokens, Tokens

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


def why_no_commands(config: Config) -> str:
    """Why what slurmrestd cannot do is not done by Slurm's commands; empty: it is."""
    if config.rest.commands == "never":
        return "`rest.commands: never` keeps Slurm's commands from being used"
    if config.rest.user not in (None, login(os.geteuid())):
        return f"Slurm's commands would not act as {config.rest.user} (`rest.user`)"
    missing = [name for name in PROGRAMS if which(name) is None]
    return f"Slurm's commands are not on PATH here ({', '.join(missing)})" if missing else ""


def auto(config: Config) -> Backend:
    """Slurm by pyslurm where one is there that fits, else by the commands."""
    extension = pyslurm_extension()
    if extension is not None:
        return extension(config, _tell_fallback)
    _tell_fallback("pyslurm is not installed")
    return cli(config)


def pyslurm_extension() -> PyslurmExtension | None:
    """The backend that penstock-pyslurm gives; None where that, or pyslurm, is not installed. Raises ConfigError."""
    if find_spec("pyslurm") is None:  # which is only looked for: importing it may end the process
        return None
    entry = next(iter(entry_points(group=BACKENDS.group, name="pyslurm")), None)
    if entry is None:
        return None
    try:
        extension: PyslurmExtension = entry.load()
    except Exception as e:
        raise BACKENDS.broken("pyslurm", e) from e
    return extension


def request_budget(config: Config) -> RequestBudget:
    """How often Slurm may be asked, as the configuration says it."""
    slurm = config.slurm
    return RequestBudget(
        BudgetLimits(
            slurm.request_burst,
            slurm.requests_per_second,
            slurm.submissions_per_hour,
            slurm.user_submissions_burst,
            slurm.user_submissions_per_hour,
        )
    )


def _tell_fallback(why: str) -> None:
    _log.info("Slurm is asked through its commands", why=why)
