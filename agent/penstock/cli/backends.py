"""Slurm, for as long as a command asks it, and ending jobs that are the caller's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from penstock.config import Config
from penstock.errors import NotFound, PenstockError
from penstock.slurm.base import Reader

if TYPE_CHECKING:
    from penstock.core.acts import KnownJob

__all__ = ["backend_of", "cancel_all"]


@asynccontextmanager
async def backend_of(config: Config) -> AsyncIterator[Reader]:
    """Slurm as the configuration names it, to look at; closed in the end."""
    from penstock.core.backends import make_backend  # slow to load

    backend = make_backend(config)
    try:
        yield backend
    finally:
        await backend.close()


async def cancel_all(config: Config, jobs: Sequence[KnownJob]) -> list[str]:
    """Cancel these jobs, the last first, so that none starts meanwhile; what went wrong. A number under which Slurm has
    another job by now is left alone."""
    from penstock.cli.acting import acting  # what acts is slow to load, and most commands only look
    from penstock.core.executor import Concern

    failed = []
    async with acting(config) as hand:
        for job in reversed(jobs):
            try:
                await hand.canceller.cancel(job, f"job {job.number}", Concern("workflows", job.uid))
            except NotFound:
                continue
            except PenstockError as e:
                failed.append(f"{job.number}: {e}")
    return failed
