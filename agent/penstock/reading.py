"""SQLite files opened to be looked at: nothing is made or changed, whoever else writes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from penstock.errors import StoreError
from penstock.ownership import is_readable

__all__ = ["PATIENCE", "log_of", "reading"]

PATIENCE: Final = 5.0
"""Seconds that a lock is waited for."""


def log_of(path: Path) -> Path:
    """The write-ahead log of a file."""
    return path.with_name(f"{path.name}-wal")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A file, for reading only; one state of it, whatever others write. Raises StoreError, and NotPermitted where it is
    another's."""
    if not is_readable(path):
        raise StoreError(f"there is no state file {path}")
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    # A reader of a log takes part in it, for which it must be able to write; a file without one nobody writes to.
    if not os.access(path.parent, os.W_OK, effective_ids=True) and not log_of(path).exists():
        address += "&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=PATIENCE)) as db:
            yield db
    except sqlite3.Error as e:
        raise StoreError(f"{path} cannot be read: {e}") from e
