"""Which jobs this user has submitted by `penstock sbatch`: a small file for each, in a folder of the user's own.

So that a later `--dependency` on one of them is known for what it is, by whatever agent, or by none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.fronts.programs.memory import FORGET, cluster_name, keep, memory_folder

__all__ = ["Remembered", "SubmittedJobs", "cluster_name"]


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
        self._folder = Path(memory_folder(str(own), cluster))

    def add(self, job: Remembered) -> None:
        """Raises PenstockError where nothing can be written."""
        try:
            keep(str(self._folder), job.job, json.dumps(asdict(job)))
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


def _read(path: Path) -> Remembered | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        job = Remembered(**values)
        return job if job.at > time.time() - FORGET else None
    except (OSError, ValueError, TypeError):
        return None
