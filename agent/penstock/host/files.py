"""Files that processes share: locked, and written so that a reader or a crash finds them whole or as they were."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from penstock.errors import NotNow

__all__ = ["is_named", "lock", "locked", "open_locked", "replace", "replacing", "sync"]


# -- locks -------------------------------------------------------------------------------------------------------------


def lock(descriptor: int, *, shared: bool = False, patience: float = 0.0, turn: float = 0.05) -> None:
    """Lock an open file or folder, until it is closed or the process ends.

    Raises BlockingIOError where another process holds it for `patience` seconds; it is looked at every `turn` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(turn)


def open_locked(path: Path, flags: int = os.O_CREAT | os.O_RDWR, *, shared: bool = False, patience: float = 0.0) -> int:
    """A descriptor of the file or folder, locked; raises as `lock` and `os.open`. A new file is its owner's alone."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        lock(descriptor, shared=shared, patience=patience)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked(path: Path, flags: int, held: str, patience: float = 0.0) -> Iterator[int]:
    """The same for as long as the block takes. Raises NotNow that says `held` where another process has the lock."""
    try:
        descriptor = open_locked(path, flags, patience=patience)
    except BlockingIOError as error:
        raise NotNow(held) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_named(descriptor: int, path: Path) -> bool:
    """Whether that is what the path names. A lock on a file that was removed meanwhile is the lock of nothing."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


# -- files that are there whole or as they were ------------------------------------------------------------------------


@contextmanager
def replacing(path: Path, mode: int | None = 0o600, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file that takes the name `path` when the block has ended well, and `durable` its content is on the disk.

    `mode` None: as the umask has it. Raises OSError.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(fresh, flags, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if mode is not None:
                os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def replace(path: Path, content: bytes | str, mode: int | None = 0o600, *, durable: bool = True) -> None:
    """Write a file at once, as `replacing`; texts as UTF-8."""
    with replacing(path, mode, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
