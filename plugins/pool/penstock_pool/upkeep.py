"""Keeps a pool's folder small: the log is made shorter, and what has ended long ago is forgotten with what it has left.

A task leaves files: its output, the script and environment of a job (one each for all that are alike), what a Python
call was given and has returned. They go when the log does not have the task any more; what a scheduler that was killed
in between has left goes when the next one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import StoreError
from penstock.host.logs import get_logger
from penstock_pool.callfiles import call_files, calls_folder
from penstock_pool.entries import TaskEntry
from penstock_pool.folder import PoolFolder
from penstock_pool.jobfiles import JobFiles
from penstock_pool.journal import Journal
from penstock_pool.machine import Machine
from penstock_pool.output import output_paths, task_of_output

__all__ = ["PoolRetention", "Upkeep"]

_log = get_logger(__name__)
SHORT: Final = 8 * 2**20  # bytes of a log that is not worth being made shorter
_LOOK: Final = 3600.0  # seconds between looks for what has ended too long ago
_FRESH: Final = 86400.0  # seconds for which files of a call that is no task are left to whoever may still submit it
_SLICE: Final = 100  # files that are removed in one go


@dataclass(frozen=True, slots=True)
class PoolRetention:
    """How long a pool keeps what has ended, in seconds (0: for ever), and how many ended tasks at most."""

    seconds: float = 7 * 86400.0
    tasks: int = 100_000


class Upkeep:
    """Of one pool, while its scheduler runs; to be used in its event loop alone."""

    def __init__(self, folder: PoolFolder, machine: Machine, journal: Journal, retention: PoolRetention) -> None:
        self._folder = folder
        self._jobs = JobFiles(folder)
        self._machine = machine
        self._journal = journal
        self._retention = retention
        self._most = SHORT  # bytes of the log at which it is made shorter
        self._look_at = time.monotonic() + _LOOK

    def due(self) -> bool:
        """Whether there may be something to do."""
        return self._journal.size >= self._most or time.monotonic() >= self._look_at

    async def run(self, now: float, spared: Set[int]) -> None:
        """Do it. `now` by the clock of the machine, whose lines are all in the log; `spared` tasks are kept."""
        self._look_at = time.monotonic() + _LOOK
        before = now - self._retention.seconds if self._retention.seconds else -math.inf
        gone = self._machine.forget(before, self._retention.tasks, spared)
        if not gone and self._journal.size < self._most:
            return
        lines, since = list(self._machine.snapshot()), self._journal.size
        try:
            await asyncio.to_thread(self._journal.prepare, lines)
            self._journal.swap(since)
        except StoreError as e:
            _log.warning("the task log stays as long as it is", why=str(e))
            self._most = self._journal.size + SHORT
            return  # what it still has keeps its files
        self._most = max(SHORT, 2 * self._journal.size)
        await asyncio.to_thread(self._remove_of, [entry for entry, _unused in gone])
        await self._remove_of_jobs([file for _entry, unused in gone for file in unused])

    def sweep(self) -> None:
        """Remove what no task has need of any more; before anybody can submit one."""
        machine = self._machine
        for path in _files(self._folder.output):
            if (task := task_of_output(path)) is not None and machine.forgotten(task):
                _remove([path])
        _remove(path for path in _files(self._jobs.path) if path.name not in machine.entries.files)
        if old := {path for path in _files(calls_folder(self._folder)) if _is_old(path)}:
            needed = {path for entry in machine.entries.values() for path in call_files(self._folder, entry.task)}
            _remove(old - needed)

    def _remove_of(self, entries: Iterable[TaskEntry]) -> None:
        for entry in entries:
            attempts = range(1, entry.attempt + 1)
            _remove(path for n in attempts for path in output_paths(self._folder.output, entry.id, n))
            _remove(call_files(self._folder, entry.task))

    async def _remove_of_jobs(self, names: list[str]) -> None:
        """In this thread: a job that is submitted meanwhile may need one of them again."""
        for start in range(0, len(names), _SLICE):
            unused = [name for name in names[start : start + _SLICE] if name not in self._machine.entries.files]
            _remove(self._jobs.path / name for name in unused)
            await asyncio.sleep(0)


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _FRESH
    except OSError:
        return False


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
