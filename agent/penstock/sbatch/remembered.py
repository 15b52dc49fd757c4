"""Which jobs this user has submitted by `penstock sbatch`: a small file for each, in a folder of the user's own.

So that a later `--dependency` on one of them is known for what it is, by whatever agent, or by none.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import PenstockError

__all__ = ["Remembered", "SubmittedJobs", "cluster_name"]

_MOST: Final = 2000
_FORGET: Final = 14 * 86400.0
"""Seconds after which a job is forgotten; and of more than so many jobs the older half is."""
_CONFIGURATIONS: Final = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A job: its `name` in Slurm and what it is called as a `stage`, `at` when it was submitted (epoch s), the
    `dependency` that Slurm was given, and how it was submitted (`workflow.state.Order`, as JSON-able values)."""

    job: int
    name: str
    stage: str
    at: float
    dependency: str = ""
    order: Mapping[str, Any] = field(default_factory=dict)


class SubmittedJobs:
    """The jobs of one cluster, in a folder which is the caller's own and is made when something is put there."""

    def __init__(self, own: Path, cluster: str) -> None:
        # Two clusters that share a home both have a job 12.
        self._folder = own / "submitted" / (cluster.replace("/", "_") or "-")

    def add(self, job: Remembered) -> None:
        """Raises PenstockError where nothing can be written."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, part = tempfile.mkstemp(dir=self._folder)  # for the owner's eyes: a script may hold anything
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump(asdict(job), file)
                Path(part).replace(self._folder / f"{job.job}.json")
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(part).unlink()
                raise
            self._forget()
        except OSError as e:
            raise PenstockError(f"{e.filename or self._folder}: {e.strerror}") from e

    def get(self, number: int) -> Remembered | None:
        """The job of this number; None where it is not known."""
        return _read(self._folder / f"{number}.json")

    def latest(self, name: str) -> Remembered | None:
        """The job of this name that was submitted last, by its name in Slurm or as a stage."""
        found = [job for job in self._all() if name in (job.name, job.stage)]
        return max(found, key=lambda job: (job.at, job.job), default=None)

    def of_name(self, name: str) -> list[int]:
        """The numbers of all jobs of this name in Slurm."""
        return sorted(job.job for job in self._all() if job.name == name)

    def _all(self) -> Iterator[Remembered]:
        for path in self._files():
            if (job := _read(path)) is not None:
                yield job

    def _files(self) -> list[Path]:
        try:
            return list(self._folder.glob("[0-9]*.json"))
        except OSError:
            return []

    def _forget(self) -> None:
        files = self._files()
        if len(files) <= _MOST:
            return
        aged = sorted((path.stat().st_mtime, path) for path in files if path.exists())
        for i, (when, path) in enumerate(aged):
            if i < len(aged) - _MOST // 2 or when < time.time() - _FORGET:
                with contextlib.suppress(OSError):
                    path.unlink()


def _read(path: Path) -> Remembered | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        job = Remembered(**values)
        return job if job.at > time.time() - _FORGET else None
    except (OSError, ValueError, TypeError):
        return None


def cluster_name(environ: Mapping[str, str]) -> str:
    """The name of this host's cluster as its slurm.conf has it; "" where that cannot be read."""
    given = environ.get("SLURM_CONF", "")
    for path in (given,) if given else _CONFIGURATIONS:
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            key, equals, value = line.partition("=")
            if equals and key.strip().lower() == "clustername" and value.split():
                return value.split()[0]
    return ""
