"""The task log: one JSON line for each change that must outlive the scheduler, appended, in the pool's folder.

A scheduler that is killed leaves at most its last line torn; it is cut off by the next one. `append` hands the lines to
the kernel, which keeps them when the process dies; `sync` makes them safe against the death of the host.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import StoreError
from penstock.host.files import open_locked

__all__ = ["Journal", "read_journal"]


class Journal:
    """The log of one pool, opened by its scheduler alone. Raises StoreError when another one has it open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_locked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except BlockingIOError:
            raise StoreError(f"{path}: another scheduler of this pool runs") from None
        except OSError as e:
            raise StoreError(f"{path}: cannot be opened: {e.strerror}") from e
        self._unsynced = False

    def recall(self) -> list[dict[str, Any]]:
        """All lines so far; a torn last one is cut off. Raises StoreError naming a line that is no JSON."""
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._file, whole)
        return _parse(self._path, data[:whole])

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines. Raises StoreError, for example when the file system is full; then none of them stays there."""
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        if not data:
            return
        before = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as e:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise StoreError(f"{self._path}: cannot be written: {e.strerror}") from e
        self._unsynced = True

    def sync(self) -> None:
        """Wait until the disk has everything; may take long, and may be called from a thread of its own."""
        if self._unsynced:
            self._unsynced = False
            os.fsync(self._file)

    def close(self) -> None:
        """Give it up for the next scheduler."""
        with contextlib.suppress(OSError):
            self.sync()
        os.close(self._file)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a log that a scheduler may be writing. Raises StoreError."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise StoreError(f"{path}: cannot be read: {e.strerror}") from e
    return _parse(path, data[: data.rfind(b"\n") + 1])


def _parse(path: Path, data: bytes) -> list[dict[str, Any]]:
    lines = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            lines.append(json.loads(line))
        except ValueError:
            raise StoreError(f"{path}:{number}: is no line of a task log") from None
    return lines
