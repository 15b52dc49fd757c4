"""The backend `pyslurm` as the rest of Penstock finds it: by its entry point, see `core.backends.PyslurmExtension`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config import Config
from penstock.core.backends import request_budget
from penstock.errors import SlurmUnavailable
from penstock.slurm.base import Backend
from penstock.slurm.commands import CommandRunner
from penstock_pyslurm.backend import PyslurmBackend
from penstock_pyslurm.link import PyslurmLink, Unfit, misfit

__all__ = ["Pyslurm", "extension"]


class Pyslurm:
    """See `PyslurmExtension`."""

    def __call__(self, config: Config, fallback: Callable[[str], None] | None = None) -> Backend:
        """See `PyslurmExtension`."""
        return PyslurmBackend(
            fallback=fallback,
            timeout=config.slurm.timeout,
            budget=request_budget(config),
            merge_releases=config.malleable.merge_releases,
        )

    async def version(self, runner: CommandRunner, slurm: tuple[int, ...] | None, limit: float) -> str:
        """See `PyslurmExtension`. In a process of its own, as the agent has it: importing a pyslurm that does not fit
        may end Python."""
        link = PyslurmLink(runner)
        try:
            versions = await link.start(limit)
        except Unfit as error:
            raise SlurmUnavailable(str(error)) from error
        finally:
            await link.end()
        if slurm is not None and (why := misfit(versions, slurm)):
            raise SlurmUnavailable(why)
        return versions.pyslurm


extension = Pyslurm()
