"""How Slurm is reached: the backend that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Protocol

from penstock.config import Config
from penstock.core.extensions import BACKENDS
from penstock.errors import ConfigError
from penstock.host.logs import get_logger
from penstock.slurm.base import Backend, Reader
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.commands import CommandRunner

__all__ = [
    "PyslurmExtension",
    "RestExtension",
    "auto",
    "cli",
    "make_backend",
    "pyslurm",
    "pyslurm_extension",
    "request_budget",
    "rest",
    "rest_extension",
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


class RestExtension(Protocol):
    """What the distribution penstock-rest gives: `rest` under the entry point of `BACKENDS`."""

    def __call__(self, config: Config) -> Backend:
        """Slurm by slurmrestd, and by the commands for what that lacks, where they may be used. Raises ConfigError."""
        ...

    async def spoken(self, backend: Reader) -> tuple[str, tuple[str, ...]] | None:
        """The data version that the slurmrestd speaks, and what cannot be done here, for people; None: this backend
        reaches Slurm in another way. Raises PenstockError where slurmrestd does not answer."""
        ...


def make_backend(config: Config) -> Backend:
    """The backend that the configuration names. Raises ConfigError."""
    connect: Callable[[Config], Backend] = BACKENDS.load(config.slurm.backend)
    return BACKENDS.whole(config.slurm.backend, connect(config))


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
    extension = rest_extension()
    if extension is None:
        raise ConfigError("`slurm.backend: rest`, but httpx is not installed (`pip install penstock[rest]`)")
    return extension(config)


def auto(config: Config) -> Backend:
    """Slurm by pyslurm where one is there that fits, else by the commands."""
    extension = pyslurm_extension()
    if extension is not None:
        return extension(config, _tell_fallback)
    _tell_fallback("pyslurm is not installed")
    return cli(config)


def pyslurm_extension() -> PyslurmExtension | None:
    """The backend that penstock-pyslurm gives; None where that, or pyslurm, is not installed. Raises ConfigError."""
    extension: PyslurmExtension | None = _extension("pyslurm", needs="pyslurm")
    return extension


def rest_extension() -> RestExtension | None:
    """The backend that penstock-rest gives; None where that, or httpx, is not installed. Raises ConfigError."""
    extension: RestExtension | None = _extension("rest", needs="httpx")
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


def _extension(name: str, *, needs: str) -> Any:  # noqa: ANN401 (each has its Protocol)
    if find_spec(needs) is None:  # which is only looked for: importing pyslurm may end the process
        return None
    entry = next(iter(entry_points(group=BACKENDS.group, name=name)), None)
    if entry is None:
        return None
    try:
        return entry.load()
    except Exception as e:
        raise BACKENDS.broken(name, e) from e


def _tell_fallback(why: str) -> None:
    _log.info("Slurm is asked through its commands", why=why)
