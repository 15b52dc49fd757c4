"""Slurm, for as long as a command asks it, and ending jobs that are the caller's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from penstock.config import Config
from penstock.errors import NotFound, PenstockError
from penstock.slurm.base import Reader
from penstock.texts import plural

if TYPE_CHECKING:
    from penstock.core.acts import KnownJob

__all__ = ["backend_of", "cancel_all", "first_of"]

_SHOWN: Final = 3


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
    """Cancel these jobs, the last first, so that none starts meanwhile; which could not be, and why. One look says
    which are there: of the others nothing is asked. A number under which Slurm has another job by now is left alone.
    """
    from penstock.console.acting import acting  # what acts is slow to load, and most commands only look
    from penstock.core.executor import Concern

    failed: dict[str, list[int]] = {}
    async with acting(config) as hand:
        try:
            seen = await hand.slurm.jobs()
        except PenstockError as e:
            return _by_reason({str(e): [job.number for job in jobs]})
        there = {number for job in seen for number in (job.id, job.array_job)}
        for job in reversed(jobs):
            if job.number not in there:
                continue
            try:
                await hand.canceller.cancel(job, f"job {job.number}", Concern("workflows", job.uid))
            except NotFound:
                continue
            except PenstockError as e:
                failed.setdefault(str(e), []).append(job.number)
    return _by_reason(failed)


def _by_reason(failed: Mapping[str, Sequence[int]]) -> list[str]:
    from penstock.slurm.parse import array_text

    return [f"{array_text(jobs)}: {why}" for why, jobs in failed.items()]


def first_of(failed: Sequence[str]) -> str:
    """What could not be cancelled, on a line that can be read."""
    more = len(failed) - _SHOWN
    return "; ".join([*failed[:_SHOWN], *([f"and for {plural(more, 'more reason')}"] if more > 0 else [])])
