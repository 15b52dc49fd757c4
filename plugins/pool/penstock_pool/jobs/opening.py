"""Makes the door for front programs that a pool's scheduler opens."""

from __future__ import annotations

import grp
import os
import pwd

from penstock.config import Config
from penstock.fronts.programs.memory import cluster_name
from penstock.slurm.base import Reader
from penstock.slurm.raw_looks import HasRunner, RawLooks
from penstock_pool.folder import PoolFolder
from penstock_pool.jobs.conditions import SlurmJobs
from penstock_pool.jobs.door import JobsDoor
from penstock_pool.jobs.rows import JobOwner

__all__ = ["jobs_door"]


def jobs_door(config: Config, folder: PoolFolder, slurm: Reader) -> JobsDoor:
    """The door; `slurm` is what it asks about jobs of Slurm's."""
    looks = RawLooks(slurm.runner, config.slurm.timeout) if isinstance(slurm, HasRunner) else None
    return JobsDoor(folder, _owner(), SlurmJobs(looks), config.pool.host or _address(), dict(os.environ))


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
