"""The fence: the number of the lease inside the state file, so that a holder who has lost it can write no more."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from penstock.errors import StoreError
from penstock.state.birth import there_or_made, version_in
from penstock.state.reading import SAID, failed
from penstock.state.schema import MIGRATIONS

__all__ = ["PATIENCE", "claim", "fence", "number_in", "set_journal"]

PATIENCE: Final = 2.0
"""Seconds that a connection waits for another one that writes."""


def claim(path: Path, number: int) -> int | None:
    """The number of the lease in a state file that several hosts see, found in the transaction that raised it to this
    one if it was lower. None: somebody is writing, even now. Raises `StoreError`, and `StateRefused` for a file that is
    none of ours, or damaged.
    """
    # What a crashed host left half written, SQLite finds by the journal. Opening that is what makes a network file
    # system look whether it is there.
    with suppress(OSError), Path(f"{path}-journal").open("rb"):
        pass
    try:
        there_or_made(path, MIGRATIONS)
        with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as db:
            version_in(db, path)
            set_journal(db)
            db.execute("BEGIN IMMEDIATE")
            db.execute("CREATE TABLE IF NOT EXISTS lease (number INTEGER NOT NULL)")
            found = number_in(db)
            if found < number:
                db.execute("DELETE FROM lease")
                db.execute("INSERT INTO lease VALUES (?)", (number,))
            db.execute("COMMIT")
            return found
    except sqlite3.OperationalError as e:
        if e.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return None
        raise failed(path, f"the state file {path}", e) from e
    except SAID as e:
        raise failed(path, f"cannot open the state file {path}", e) from e
    except OSError as e:
        raise StoreError(f"cannot open the state file {path}: {e}") from e


def fence(path: Path) -> int:
    """The number of the lease in a state file that several hosts see. Raises `StoreError`."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=PATIENCE)) as db:
            return number_in(db)
    except SAID as e:
        raise failed(path, f"the state file {path}", e) from e


def number_in(db: sqlite3.Connection) -> int:
    """The number of the lease. Raises `sqlite3.Error`."""
    return int(db.execute("SELECT max(number) FROM lease").fetchone()[0] or 0)


def set_journal(db: sqlite3.Connection) -> None:
    """A journal that hosts without common memory agree on. Raises `sqlite3.Error`."""
    # Not deleted after each transaction but emptied: a host that has once seen that there is no such file may take some
    # time to see that there is one.
    if db.execute("PRAGMA journal_mode=TRUNCATE").fetchone()[0] != "truncate":
        raise sqlite3.DatabaseError("it is in use by something that does not know of the lease")
    db.execute("PRAGMA synchronous=FULL")
