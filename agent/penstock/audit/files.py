"""The audit files of a state folder: their names, their order, and where the last whole line of one is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.audit.chain import LONGEST, ChainEntry, entry_of

__all__ = ["CURRENT", "LOCK", "Tail", "aside", "damaged_name", "first_seq", "kept", "kept_name", "tail"]

CURRENT: Final = "audit.log"
LOCK: Final = "audit.lock"
_KEPT: Final = re.compile(r"audit\.[0-9]{12}\.log")
_ASIDE: Final = re.compile(r"audit\.damaged\..*\.log")
_LOOK: Final = 1024 * 1024
"""How far from its end a file is looked through for a whole line."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file: its last whole line (None: none was found), and the bytes after that."""

    entry: ChainEntry | None
    rest: bytes


def kept_name(seq: int) -> str:
    """What a file is called that begins with this record, when the next one has taken its place."""
    return f"audit.{seq:012d}.log"


def damaged_name(at: float) -> str:
    """What a file is called in which nothing could be read."""
    return f"audit.damaged.{int(at)}.log"


def kept(folder: Path) -> list[Path]:
    """The files before the current one, in the order in which they were written. Raises OSError."""
    return sorted(path for path in folder.iterdir() if _KEPT.fullmatch(path.name))


def aside(folder: Path) -> list[Path]:
    """The files that were set aside, as nothing in them could be read. Raises OSError."""
    return sorted(path for path in folder.iterdir() if _ASIDE.fullmatch(path.name))


def first_seq(descriptor: int) -> int | None:
    """The number of the first record of a file; None where that cannot be told. Raises OSError."""
    line, newline, _rest = os.pread(descriptor, LONGEST, 0).partition(b"\n")
    try:
        return entry_of(line + newline).head.seq
    except ValueError:
        return None


def tail(descriptor: int) -> Tail:
    """The end of a file. Raises OSError."""
    size = os.fstat(descriptor).st_size
    look = LONGEST
    while True:
        begin = max(0, size - look)
        data = _read(descriptor, begin, size - begin)
        end = len(data)
        while (newline := data.rfind(b"\n", 0, end)) >= 0:
            start = data.rfind(b"\n", 0, newline) + 1
            if start == 0 and begin > 0:
                break  # it may have begun before
            try:
                return Tail(entry_of(data[start : newline + 1]), data[newline + 1 :])
            except ValueError:
                end = newline
        if begin == 0 or look >= _LOOK:
            return Tail(None, data)
        look = min(8 * look, _LOOK)


def _read(descriptor: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(descriptor, min(size, 1 << 20), offset)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)
