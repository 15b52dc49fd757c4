"""What `penstock doctor` finds of pools: the packages that they need, and the folder in which members find them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.config import Config
from penstock.core.findings import Finding, Trouble, Within, failed, fine, note
from penstock.core.folders import folder_at
from penstock.host.filesystems import is_network
from penstock.host.logins import login
from penstock.state.pools import pools_folder
from penstock_pool.extra import INSTALL, missing

__all__ = ["pool_checks"]


def pool_checks(config: Config, within: Within) -> Iterator[Finding]:
    """See `Part.checks`."""
    yield _packages()
    yield _folder(config, within)


def _packages() -> Finding:
    if lacking := missing():
        return failed("pool-packages", f"not installed: {', '.join(lacking)}", f"{INSTALL}, if you want pools of tasks")
    return fine("pool-packages", "Dask's distributed and the packages that it needs are installed")


def _folder(config: Config, within: Within) -> Finding:
    change = "set `pool.folder` to a folder that the compute nodes see (such as one in your home)"
    folder = within(lambda: folder_at(pools_folder(config)))
    if isinstance(folder, Trouble):
        return failed("pool-folder", folder.why, change)
    if not folder.writable:
        return failed("pool-folder", f"{login(os.geteuid())} cannot write to {folder.path}", change)
    where = f"{folder.path} is on {folder.kind} ({folder.mount})"
    if not is_network(folder.kind):
        return note("pool-folder", f"{where}: members on other hosts may not find the pool", change)
    return fine("pool-folder", where)
