"""How a database file comes to be there: whole, under its name, or not at all.

So whatever lies under the name was a whole database once. One of no bytes, or of other bytes, is what is left of it or
somebody else's, and is refused: SQLite itself would take it for a new one, or throw its log away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.errors import StateRefused
from penstock.host.files import sync
from penstock.state.ownership import denied
from penstock.state.schema import APPLICATION_ID, VERSION, statements, too_new, too_old, way_out

__all__ = ["HEADER", "LOGS", "log_there", "publish", "refuse_other", "there_or_made", "version_in"]

HEADER: Final = b"SQLite format 3\0"
LOGS: Final = ("-wal", "-journal")
"""What is called like the file and has a part of what was written."""
_SMALLEST: Final = 512
_LEFT_AFTER: Final = 3600.0
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def refuse_other(path: Path, what: str = "") -> bool:
    """Whether there is a file, which then begins as a database does and may be read.

    Raises `StateRefused` for one that does not, and for a log whose file is gone; `NotPermitted` for another's, which
    says `what` could not be done.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_SMALLEST)
    except FileNotFoundError:
        for end in LOGS:
            if log_there(path, end):
                log = path.name + end
                raise StateRefused(
                    f"{path} is gone, but its log {log} is there: put the file back in its place, or a copy, which "
                    f"needs no log; move {log} away for that, or to start afresh"
                ) from None
        return False
    except OSError as error:
        raise denied(path, error, what or f"{path} cannot be read") from error
    if len(head) < _SMALLEST or not head.startswith(HEADER):
        what = f"has {len(head)} bytes" if len(head) < _SMALLEST else "begins with other bytes"
        logs = any(log_there(path, end) for end in LOGS)
        way = way_out(path, to_look=False, to_salvage=len(head) == _SMALLEST or logs)
        raise StateRefused(f"{path} is no database, or not any more: it {what}. {way}")
    if not {head[18], head[19]} <= {1, 2}:  # SQLite would take it, to be looked at only
        raise StateRefused(f"{path} is damaged: its header is not one that SQLite writes. {way_out(path)}")
    return True


def log_there(path: Path, end: str) -> bool:
    """Whether a file has a log called like it with that at the end, with something in it."""
    try:
        return path.with_name(path.name + end).stat().st_size > 0
    except OSError:
        return False


def there_or_made(path: Path, scripts: Sequence[str], what: str = "") -> None:
    """A file that was there and can be written, or a new one whose version is the number of its `scripts`.

    Raises like `refuse_other`, `OSError` and `sqlite3.Error`.
    """
    if refuse_other(path, what):
        if not os.access(path, os.W_OK, effective_ids=True):
            raise denied(
                path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), what or f"{path} cannot be written"
            )
        return
    _clear_left(path)
    fresh = path.with_name(f".{path.name}.new-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        # Commands and environments of users: for nobody else's eyes. SQLite gives -wal and -shm the same mode.
        os.close(os.open(fresh, os.O_CREAT | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=OFF")  # it is synced as a whole
            db.execute("BEGIN")
            for script in scripts:
                for statement in statements(script):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={len(scripts)}")
            db.execute("COMMIT")
        with contextlib.suppress(FileExistsError):  # somebody else's, as new as ours
            publish(fresh, path, replace=False)
    finally:
        fresh.unlink(missing_ok=True)


def version_in(db: sqlite3.Connection, path: Path | str) -> int:
    """The version of a state file that this release can work on, or bring up to date; 0: there is nothing in it yet.

    Raises `StateRefused` and `sqlite3.Error`.
    """
    have = int(db.execute("PRAGMA user_version").fetchone()[0])
    if have > VERSION:
        raise StateRefused(too_new(path, have))
    tables = {str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    mark = int(db.execute("PRAGMA application_id").fetchone()[0])
    if "decisions" in tables and mark in (0, APPLICATION_ID) and (old := too_old(path, have)):
        raise StateRefused(old)
    ours = have > 0 and mark == APPLICATION_ID and "decisions" in tables
    if not ours and not (have == 0 and str(path) == ":memory:"):
        raise StateRefused(f"{path} is no state file of Penstock, or not a whole one. {way_out(path)}")
    return have


def _clear_left(path: Path) -> None:
    """What somebody left here who was killed in making one."""
    for left in path.parent.glob(f".{path.name}.new-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_AFTER:
                left.unlink()


def publish(fresh: Path, target: Path, *, replace: bool) -> None:
    """Give a file its name when it is on the disk. Raises FileExistsError where there is one that is to stay."""
    sync(fresh)
    if replace:
        fresh.replace(target)
    else:
        try:
            os.link(fresh, target)  # unlike a rename this never replaces what came there meanwhile
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if target.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
            fresh.rename(target)
    sync(target.parent)
