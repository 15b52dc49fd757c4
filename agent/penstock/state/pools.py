"""Where a user's pools of tasks are, for whoever names one: the folder of each, and its scheduler's address.

Only its owner can read the folder: see `PoolPlace.check`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.config import Config
from penstock.errors import AgentUnavailable, NotPermitted, StoreError, UserError
from penstock.state.ownership import own_folder

__all__ = ["POOL_JOBS", "PoolPlace", "SchedulerAddress", "pool_place", "pool_places", "pools_folder"]

POOL_JOBS: Final = "penstock-pool-"
"""How the names of jobs begin that are got for a pool; the name of the pool follows."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True, slots=True)
class SchedulerAddress:
    """Where the scheduler is: `url` for Dask, `host` and `pid` for people; `started` in seconds of its clock."""

    url: str
    host: str
    pid: int
    started: float


def pool_place(config: Config, name: str) -> PoolPlace:
    """The place of the pool of this name. Raises UserError for a name that cannot be one."""
    if not _NAME.fullmatch(name):
        raise UserError(f"pool {name[:60]!r}: a name is 1 to 40 of A-Z a-z 0-9 _ . - and begins with a letter or digit")
    return PoolPlace(name, pools_folder(config) / name)


def pool_places(config: Config) -> Iterator[PoolPlace]:
    """Those of the pools that there are."""
    with contextlib.suppress(OSError):
        for path in sorted(pools_folder(config).iterdir()):
            place = PoolPlace(path.name, path)
            if place.key.exists():
                yield place


def pools_folder(config: Config) -> Path:
    """Where the folders of all pools are."""
    return config.pool.folder or own_folder(config) / "pools"


class PoolPlace:
    """The folder of a pool as it is found: whose it is, the key that makes it one, and the scheduler's address."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.key = path / "key.pem"
        self._address = path / "address.json"

    @property
    def start(self) -> str:
        """The command that starts its scheduler, for a message."""
        return f"`penstock pool start --pool {self.name}`"

    def check(self) -> None:
        """Raise unless it is there and nobody but the caller can look into it."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            raise AgentUnavailable(
                f"there is no pool {self.name!r} in {self.path.parent}; {self.start} makes one"
            ) from None
        except OSError as e:
            raise NotPermitted(f"{self.path}: {e.strerror}") from None
        if found.st_uid != os.geteuid():
            raise NotPermitted(f"{self.path}: belongs to another user: a pool runs tasks as its owner only")
        if found.st_mode & 0o077:
            raise NotPermitted(f"{self.path}: others can look into it, and with it into the pool's key: chmod 700 it")

    def address(self) -> SchedulerAddress | None:
        """Where its scheduler is; None: it was stopped, or never started. Raises as `check`, and StoreError."""
        self.check()
        try:
            return SchedulerAddress(**json.loads(self._address.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as e:
            raise StoreError(f"{self._address}: cannot be read: {e}") from e
