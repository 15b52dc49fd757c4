"""The task log: one JSON line for each change that must outlive the scheduler, appended, in the pool's folder.

A scheduler that is killed leaves at most its last line torn; it is cut off by the next one. `append` hands the lines to
the kernel, which keeps them when the process dies; `sync` makes them safe against the death of the host.

A log is made shorter in two steps. `prepare` writes lines that say the same as all so far into a file beside it, and
`swap` adds what was appended meanwhile, and gives that file the log's name. Until then it counts for nothing, whatever
it holds, and the log is whole; from then on it is the log, and has all. So it may end between any two of them.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.errors import StoreError
from penstock.host.files import is_named, open_locked, sync
from penstock_pool.entries import encode

__all__ = ["Journal", "read_journal"]

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND


class Journal:
    """The log of one pool, opened by its scheduler alone. Raises StoreError when another one has it open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.new")
        self._prepared: int | None = None
        self._door = threading.Lock()  # which file is the log
        try:
            self._file = open_locked(path, _FLAGS)
            while not is_named(self._file, path):  # another scheduler has swapped it just before it ended
                os.close(self._file)
                self._file = open_locked(path, _FLAGS)
        except BlockingIOError:
            raise StoreError(f"{path}: another scheduler of this pool runs") from None
        except OSError as e:
            raise StoreError(f"{path}: cannot be opened: {e.strerror}") from e
        self._unsynced = False
        with contextlib.suppress(OSError):
            self._beside.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        """In bytes."""
        return os.fstat(self._file).st_size

    def recall(self) -> Iterator[dict[str, Any]]:
        """All lines so far; a torn last one is cut off. Raises StoreError naming a line that is no JSON."""
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._file, whole)
        return _parse(self._path, data[:whole])

    def prepare(self, lines: Iterable[bytes]) -> None:
        """Write what is to stand instead of all lines so far; takes long, and may be called from a thread of its own.
        Raises StoreError, and nothing has changed."""
        try:
            self._drop_prepared()
            self._prepared = open_locked(self._beside, _FLAGS | os.O_TRUNC)
            with os.fdopen(self._prepared, "wb", closefd=False) as file:
                for line in lines:
                    file.write(line + b"\n")
            os.fsync(self._prepared)
        except OSError as e:
            self._drop_prepared()
            raise StoreError(f"{self._beside}: cannot be written: {e.strerror}") from e

    def swap(self, since: int) -> None:
        """Have what was prepared be the log, with all lines after the first `since` bytes. Raises StoreError, and
        nothing has changed."""
        new = self._prepared
        assert new is not None
        try:
            _write(new, self._lines_after(since))
            os.fsync(new)
            self._beside.rename(self._path)
        except OSError as e:
            self._drop_prepared()
            raise StoreError(f"{self._beside}: cannot be written: {e.strerror}") from e
        # Whoever opens it now finds it locked by us; the lock of the old one is that of nothing.
        with self._door:
            os.close(self._file)
            self._file, self._prepared = new, None
        with contextlib.suppress(OSError):
            sync(self._path.parent)

    def _lines_after(self, since: int) -> bytes:
        left, parts = self.size - since, []
        while left:
            if not (part := os.pread(self._file, left, since)):
                raise OSError(errno.EIO, "the log is shorter than it was")
            parts.append(part)
            left, since = left - len(part), since + len(part)
        return b"".join(parts)

    def _drop_prepared(self) -> None:
        if self._prepared is not None:
            os.close(self._prepared)
            self._prepared = None
        with contextlib.suppress(OSError):
            self._beside.unlink(missing_ok=True)

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines. Raises StoreError, for example when the file system is full; then none of them stays there."""
        data = b"".join([encode(line) + b"\n" for line in lines])
        if not data:
            return
        before = self.size
        try:
            _write(self._file, data)
        except OSError as e:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise StoreError(f"{self._path}: cannot be written: {e.strerror}") from e
        self._unsynced = True

    def sync(self) -> None:
        """Wait until the disk has everything; may take long, and may be called from a thread of its own."""
        if self._unsynced:
            self._unsynced = False
            with self._door:
                file = os.dup(self._file)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def close(self) -> None:
        """Give it up for the next scheduler."""
        with contextlib.suppress(OSError):
            self.sync()
        os.close(self._file)


def _write(file: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(file, data[written:])


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a log that a scheduler may be writing. Raises StoreError."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise StoreError(f"{path}: cannot be read: {e.strerror}") from e
    return list(_parse(path, data[: data.rfind(b"\n") + 1]))


def _parse(path: Path, data: bytes) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(io.BytesIO(data), 1):
        try:
            said = json.loads(line)
        except ValueError:
            raise StoreError(f"{path}:{number}: is no line of a task log") from None
        yield said
