"""How Slurm is reached: the backend that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import structlog

from penstock.config import Config
from penstock.core.extensions import BACKENDS
from penstock.errors import ConfigError
from penstock.slurm.base import Backend
from penstock.slurm.budget import BudgetLimits, RequestBudget

__all__ = ["auto", "cli", "make_backend", "pyslurm"]

_log = structlog.get_logger(__name__)


def make_backend(config: Config) -> Backend:
    """The backend that the configuration names. Raises ConfigError."""
    connect: Callable[[Config], Backend] = BACKENDS.load(config.slurm.backend)
    return connect(config)


def cli(config: Config) -> Backend:
    """Slurm by its commands."""
    from penstock.slurm.cli import CliBackend

    merges = config.malleable.merge_releases
    return CliBackend(timeout=config.slurm.timeout, budget=_budget(config), merge_releases=merges)


def pyslurm(config: Config) -> Backend:
    """Slurm by pyslurm, which has to be there."""
    if not _installed():
        raise ConfigError("`slurm.backend: pyslurm`, but pyslurm is not installed (`pip install penstock[pyslurm]`)")
    return _by_pyslurm(config)


def auto(config: Config) -> Backend:
    """Slurm by pyslurm where one is there that fits, else by the commands."""
    if _installed():
        return _by_pyslurm(config, _tell_fallback)
    _tell_fallback("pyslurm is not installed")
    return cli(config)


def _by_pyslurm(config: Config, fallback: Callable[[str], None] | None = None) -> Backend:
    from penstock.slurm.pyslurm import PyslurmBackend

    merges = config.malleable.merge_releases
    return PyslurmBackend(
        fallback=fallback, timeout=config.slurm.timeout, budget=_budget(config), merge_releases=merges
    )


def _budget(config: Config) -> RequestBudget:
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


def _installed() -> bool:
    # Only looked for: importing it may end the process.
    return find_spec("pyslurm") is not None


def _tell_fallback(why: str) -> None:
    _log.info("Slurm is asked through its commands", why=why)
