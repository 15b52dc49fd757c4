"""Makes the door for front programs that a pool's scheduler opens."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.config import Config
from penstock.core.backends import make_backend
from penstock.fronts.memory import cluster_name
from penstock.pool.folder import PoolFolder
from penstock.pooljobs.conditions import SlurmJobs
from penstock.pooljobs.door import JobsDoor
from penstock.pooljobs.rows import JobOwner
from penstock.slurm.raw_looks import HasRunner, RawLooks

__all__ = ["jobs_door"]


@asynccontextmanager
async def jobs_door(config: Config, folder: PoolFolder) -> AsyncIterator[JobsDoor]:
    """The door, with what it asks Slurm by, which is closed in the end. Raises ConfigError."""
    backend = make_backend(config)
    try:
        looks = RawLooks(backend.runner, config.slurm.timeout) if isinstance(backend, HasRunner) else None
        host = config.pool.host or ""
        yield JobsDoor(folder, _owner(), SlurmJobs(looks), host or _address(), dict(os.environ))
    finally:
        await backend.close()


def _owner() -> JobOwner:
    uid, gid = os.geteuid(), os.getegid()
    return JobOwner(uid, _name(uid), gid, _group(gid), cluster_name(os.environ))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _address() -> str:
    """Where members of the pool reach this host, as Dask finds it."""
    from distributed.utils import get_ip

    found: str = get_ip()
    return found
