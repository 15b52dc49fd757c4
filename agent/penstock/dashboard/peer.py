"""Whose process is at the other end of a connection over loopback, by the kernel's table of sockets.

Everybody on a login node can reach its loopback, and a browser sends a cookie to every port of it. So the page is
not guarded by a secret alone: only its own user's connections are read at all.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["owner_of", "tables"]

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _UID = 1, 2, 7
_MAPPED: Final = b"\0\0\xff\xff"  # of an address of IPv6 that stands for one of IPv4
Address = tuple[str, int]


def tables() -> list[str] | None:
    """The kernel's tables of TCP connections; None where it does not show them."""
    try:
        return [path.read_text(encoding="ascii") for path in _TABLES if path.exists()] or None
    except (OSError, UnicodeDecodeError):
        return None


def owner_of(peer: Address, here: Address, shown: Iterable[str]) -> int | None:
    """The uid of who connected from `peer` to `here` (IPv4 addresses); None where no such connection is there."""
    ends = {(one, two) for one, two in zip(_written(peer), _written(here), strict=True)}
    for table in shown:
        for line in table.splitlines()[1:]:
            columns = line.split()
            if len(columns) > _UID and (columns[_LOCAL], columns[_REMOTE]) in ends:
                return int(columns[_UID])
    return None


def _written(address: Address) -> tuple[str, str]:
    """As the table of IPv4 has it, and that of IPv6 for a program which uses its sockets for both."""
    word = _word(socket.inet_aton(address[0]))
    return f"{word}:{address[1]:04X}", f"{_word(bytes(4)) * 2}{_word(_MAPPED)}{word}:{address[1]:04X}"


def _word(raw: bytes) -> str:
    """Four bytes as the kernel prints them, which is as a number of this machine."""
    return f"{int.from_bytes(raw, sys.byteorder):08X}"
