"""A Unix socket at which every user of the host is known by the kernel: to listen at, and to connect to."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError, PenstockError
from penstock.host.filesystems import unusable

__all__ = ["UnixDoor", "connected"]

_PROBE: Final = 1.0


class UnixDoor:
    """Listens at `path` from the start. `key` is what names the path in messages.

    Raises:
        ConfigError, StoreError, NotNow: it cannot listen there, by what `unusable` makes of it.
        PenstockError: what `taken` makes of the path, where another already listens.
    """

    def __init__(self, path: Path, backlog: int, taken: Callable[[Path], PenstockError], key: str = "") -> None:
        if path.exists():
            if not path.is_socket():
                raise ConfigError(f"{key}{path} is there already and is no socket")
            if _answers(path):
                raise taken(path)
            path.unlink()
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.bind(str(path))
            path.chmod(0o666)  # open to connect: what a peer may do depends on its uid
            self.socket.listen(backlog)
        except OSError as e:
            self.socket.close()
            raise unusable(e)(f"{key}cannot listen at {path}: {e.strerror or e}") from e
        made = path.stat()
        self._made = path, made.st_dev, made.st_ino

    def remove(self) -> None:
        """Remove the path, if it is still this socket's: in a folder that several hosts see, it may be another's."""
        path, device, inode = self._made
        with contextlib.suppress(OSError):
            there = path.lstat()
            if (there.st_dev, there.st_ino) == (device, inode):
                path.unlink()


def connected(path: Path, seconds: float) -> socket.socket:
    """A connection to `path`; waits its turn for at most so long where many are at the door, at which a socket with
    Python's own time limit is refused at once. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        limit = struct.pack("ll", *divmod(math.ceil(seconds * 1e6), 1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
