"""SQLite files opened to be looked at: nothing is made or changed, whoever else writes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from penstock.errors import StateRefused, StoreError
from penstock.state.birth import refuse_other
from penstock.state.ownership import is_readable
from penstock.state.schema import VERSION, too_new, too_old, way_out

__all__ = ["PATIENCE", "SAID", "describe", "failed", "log_of", "reading"]

PATIENCE: Final = 5.0
"""Seconds that a lock is waited for."""

SAID: Final = (sqlite3.Error, UnicodeDecodeError)
"""How SQLite says that something is wrong. The second comes of a message about a damaged file that quotes it."""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_MALFORMED: Final = ("no such table", "no such column", "malformed", "unsupported file format", "Could not decode")


def failed(path: Path | str, what: str, error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
    """The error for what SQLite says of a file, which is `StateRefused` where it means that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGED or isinstance(error, UnicodeDecodeError) or str(error).startswith(_MALFORMED):
        return StateRefused(f"{what}: {error}. {way_out(path)}")
    return StoreError(f"{what}: {error}")


def log_of(path: Path) -> Path:
    """The write-ahead log of a file."""
    return path.with_name(f"{path.name}-wal")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A file, for reading only; one state of it, whatever others write. Raises StoreError, StateRefused for what is no
    database or a damaged one, and NotPermitted where it is another's."""
    if not refuse_other(path):
        raise StoreError(f"there is no state file {path}")
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    # A reader of a log takes part in it, for which it must be able to write; a file without one nobody writes to.
    if not os.access(path.parent, os.W_OK, effective_ids=True) and not log_of(path).exists():
        address += "&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=PATIENCE)) as db:
            yield db
    except SAID as e:
        raise failed(path, f"{path} cannot be read", e) from e


def describe(path: Path) -> str:
    """Which version the state file is of, and what will become of it. Raises StoreError when it cannot be used."""
    if not is_readable(path):
        return "there is no state yet; it is made at the first start"
    with reading(path) as db:
        have = int(db.execute("PRAGMA user_version").fetchone()[0])
    if have > VERSION:
        raise StateRefused(too_new(path, have))
    if old := too_old(path, have):
        raise StateRefused(old)
    if have < VERSION:
        return f"{path} is of version {have}; the agent brings it to version {VERSION} when it starts"
    return f"{path}, version {have}"
