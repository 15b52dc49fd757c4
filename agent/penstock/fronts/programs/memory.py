"""Which jobs a user has submitted, as small files in a folder of the user's own: written for every job, so quickly."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORGET", "cluster_name", "keep", "memory_folder"]

FORGET = 14 * 86400.0
"""Seconds after which a job is forgotten; and of more than so many jobs the older half is."""
_MOST = 2000

_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


def cluster_name(environ: Mapping[str, str]) -> str:
    """The name of this host's cluster as its slurm.conf has it; "" where that cannot be read."""
    given = environ.get("SLURM_CONF", "")
    for path in (given,) if given else _CONFIGURATIONS:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().split("\n")
        except OSError:
            continue
        for line in lines:
            key, equals, value = line.partition("=")
            if equals and key.strip().lower() == "clustername" and value.split():
                return value.split()[0]
    return ""


def memory_folder(own: str, cluster: str) -> str:
    """Where the jobs of one cluster are, in a user's own folder: two clusters that share a home both have a job 12."""
    return os.path.join(own, "submitted", cluster.replace("/", "_") or "-")


def keep(folder: str, job: int, text: str) -> None:
    """Write down a job, whole or not at all. Raises OSError."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    part = os.path.join(folder, f".{job}.{os.getpid()}")
    # For the owner's eyes: a script may hold anything.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, os.path.join(folder, f"{job}.json"))
    except BaseException:
        _remove(part)
        raise
    _forget(folder)


def _forget(folder: str) -> None:
    with os.scandir(folder) as found:
        files = [entry for entry in found if entry.name[:1].isdigit()]
    if len(files) <= _MOST:
        return
    aged = []
    for entry in files:
        try:
            aged.append((entry.stat().st_mtime, entry.path))
        except OSError:  # another command has just forgotten it
            continue
    aged.sort()
    for i, (when, path) in enumerate(aged):
        if i < len(aged) - _MOST // 2 or when < time.time() - FORGET:
            _remove(path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
