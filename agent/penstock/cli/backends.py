"""Slurm, for as long as a command asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.config import Config
from penstock.slurm.base import Backend

__all__ = ["backend_of"]


@asynccontextmanager
async def backend_of(config: Config) -> AsyncIterator[Backend]:
    """The backend that the configuration names, closed in the end."""
    from penstock.app import make_backend  # slow to load

    backend = make_backend(config)
    try:
        yield backend
    finally:
        await backend.close()
