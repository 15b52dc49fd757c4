"""The site's view as the configuration has it, for whoever looks at Slurm, and what a command sees by it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import MappingProxyType
from typing import Final

from penstock.api import Snapshot
from penstock.config import Config
from penstock.core.observe import waking
from penstock.errors import SlurmUnavailable
from penstock.host.logins import uid_of
from penstock.site import VIEW_SOCKET
from penstock.site.look.client import SharedLook
from penstock.slurm.base import Reader

__all__ = ["shared_look", "take_snapshot", "whole_look"]

_BY_SLURM: Final = ("auto", "cli", "pyslurm")
"""The back ends that reach the Slurm of this host."""
_CLUSTER: Final = re.compile(r"^\s*ClusterName\s*=\s*([A-Za-z0-9._-]+)", re.IGNORECASE | re.MULTILINE)
_FILES: Final = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")


def shared_look(config: Config, cluster: str, *, quiet: bool = False) -> SharedLook | None:
    """What asks the site's view about this cluster, and tells the log how that goes, unless it is `quiet`; None where
    it is off."""
    slurm = config.slurm
    if slurm.view == "off" or (slurm.view == "auto" and slurm.backend not in _BY_SLURM):
        return None
    known = uid_of(slurm.view_user)
    path = Path(VIEW_SOCKET if slurm.view == "auto" else slurm.view)
    trusted, silent = {0} if known is None else {0, known}, slurm.view == "auto"
    return SharedLook(path, trusted, cluster, timeout=slurm.timeout, silent=silent, quiet=quiet)


async def whole_look(config: Config, backend: Reader) -> Snapshot:
    """A picture for a command: what the site's view has, where there is one, else what Slurm says now."""
    if config.slurm.view != "off":
        shared = shared_look(config, "", quiet=True)
        if shared is not None and shared.path.exists():
            shared.cluster = _own_cluster() or (await backend.site()).cluster
            try:
                found = await shared.look(backend.now())
            except SlurmUnavailable:
                found = None
            if found is not None:
                return await waking(found, backend)
    return await take_snapshot(backend)


async def take_snapshot(backend: Reader) -> Snapshot:
    """One whole look; jobs last, so that one that started meanwhile counts as holding its nodes."""
    partitions = {p.name: p for p in await backend.partitions()}
    reservations = tuple(await backend.reservations())
    nodes = {n.name: n for n in await backend.nodes()}
    jobs = {j.id: j for j in await backend.jobs()}
    found = Snapshot(backend.now(), jobs, nodes, MappingProxyType(partitions), reservations=reservations)
    return await waking(found, backend)


def _own_cluster() -> str:
    """The cluster of this process's slurm.conf; empty where that is not to be read without asking."""
    if os.environ.get("SLURM_CLUSTERS"):
        return ""
    given = os.environ.get("SLURM_CONF")
    for path in (given,) if given else _FILES:
        try:
            found = _CLUSTER.findall(Path(path).read_text(errors="replace"))
        except OSError:
            continue
        return found[0] if len(found) == 1 else ""
    return ""
