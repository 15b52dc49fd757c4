"""Copies of state files: of one instant, also beside a running agent, and there whole or not at all."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from penstock.errors import StateRefused, StoreError, UserError
from penstock.state.birth import publish
from penstock.state.ownership import is_readable
from penstock.state.reading import SAID, failed, reading
from penstock.state.schema import VERSION, way_out

__all__ = ["copied", "keep_before"]

T = TypeVar("T")

_PORTION = 1000  # pages, of 4 KB as a rule
_TURN = 0.05  # seconds between two portions
_BEGINNINGS = 5


def copied(source: Path, target: Path, *, replace: bool, check: Callable[[Path], T]) -> T:
    """Copy a file to a new one, also beside a running agent; what `check` says of the copy. That is one file, readable
    by its owner only.

    Raises UserError where `target` is there already and is not to be replaced, StoreError when it cannot be read,
    written or checked, NotPermitted where it is another's, and what `check` raises, and then there is no copy.
    """
    is_readable(source)  # else it would be said of the target
    try:
        if target.exists() and not replace:
            raise UserError(f"{target} is there already: name another file, or use --force to replace it")
        if target.exists() and target.samefile(source):
            raise UserError(f"{target} is the state file itself: name another file")
    except OSError as e:
        raise StoreError(f"{target} cannot be written: {e.strerror}") from e
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(fresh, os.O_CREAT | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with reading(source) as db, contextlib.closing(sqlite3.connect(fresh)) as copy:
            _copy(db, copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, that can be read where nothing can be written
        found = check(fresh)
        publish(fresh, target, replace=replace)
    except OSError as e:
        if isinstance(e, FileExistsError) and not replace:
            raise UserError(f"{target} is there already: name another file, or use --force to replace it") from None
        raise StoreError(f"{target} cannot be written: {e.strerror}") from e
    except SAID as e:
        raise failed(source, f"{source} cannot be copied to {target}", e) from e
    finally:
        fresh.unlink(missing_ok=True)
    return found


def keep_before(path: Path) -> Path:
    """Before a file of an older release is brought up to date: copy it beside itself; the copy's name.

    A copy of the same content is not made again. The caller keeps others from writing. Raises StateRefused when the
    file is damaged, StoreError when there is no copy.
    """
    for left in path.parent.glob(f".{path.name}.before-*"):  # of somebody who was killed here
        left.unlink(missing_ok=True)
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.before-{VERSION}" + (f".{number}" if number > 1 else ""))
        try:
            copied(path, copy, replace=False, check=_sound)
        except UserError:  # it is there
            if _same_rows(path, copy):
                return copy
            number += 1
        else:
            return copy


def _same_rows(path: Path, copy: Path) -> bool:
    """Whether a copy, if it is one, has what the file has, but for the lease."""
    try:
        with reading(path) as one, reading(copy) as other:
            for table in _tables(one) | _tables(other):
                rows = [db.execute(f'SELECT * FROM "{table}" ORDER BY rowid') for db in (one, other)]  # noqa: S608
                if any(a != b for a, b in zip_longest(*rows)):
                    return False
    except (StoreError, *SAID):
        return False
    return True


def _tables(db: sqlite3.Connection) -> set[str]:
    found = db.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT IN ('lease', 'sqlite_stat1')")
    return {str(row[0]) for row in found}


def _sound(copy: Path) -> None:
    with reading(copy) as db:
        (said,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        raise StateRefused(f"{copy} is damaged: {said}. {way_out(copy)}")


class _TooBusyError(Exception):
    """Others write so often that a copy in portions does not come to its end."""


class _Progress:
    """Is told of each portion of a copy; a portion that did not bring it on was one of those that begin it anew."""

    def __init__(self) -> None:
        self._left = math.inf
        self._begun = 0

    def __call__(self, _status: int, left: int, _all: int) -> None:
        """Raises `_TooBusyError`."""
        self._begun += left >= self._left
        self._left = left
        if self._begun > _BEGINNINGS:
            raise _TooBusyError
        time.sleep(_TURN if left else 0.0)  # SQLite itself pauses only where somebody else is writing


def _copy(db: sqlite3.Connection, copy: sqlite3.Connection) -> None:
    """All of it, of one instant. Raises `sqlite3.Error`."""
    if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # Nobody can write while it is read, so others get their turn in between. SQLite then begins anew.
        with contextlib.suppress(_TooBusyError):
            db.backup(copy, pages=_PORTION, progress=_Progress(), sleep=_TURN)
            return
    db.backup(copy)
