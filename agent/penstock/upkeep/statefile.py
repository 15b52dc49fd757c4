"""The state file as a file: what is in it, whether it is whole, a copy to keep, and less of it.

Looking and copying go on beside a running agent: SQLite shows each reader one state of the file, and lets the agent
write meanwhile. Where several hosts see the file (`penstock.state.lease`) it has no log that makes this possible: who
reads keeps the agent from writing, so it is copied in portions. What is old is taken out by the agent itself
(`agent.keep`); making the file smaller is for the time when none runs, as SQLite then writes all of it anew and keeps
everybody else out.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from penstock.config import Config
from penstock.errors import NotPermitted, StateRefused, StoreError, UserError
from penstock.holding.ledger import MIGRATIONS as LEDGER_MIGRATIONS
from penstock.state.birth import publish
from penstock.state.ownership import is_readable
from penstock.state.reading import PATIENCE, SAID, failed, log_of, reading
from penstock.state.schema import APPLICATION_ID, MIGRATIONS, VERSION, too_new, way_out
from penstock.state.store import Store
from penstock.state.tenure import DATABASE, Tenure, open_store
from penstock.upkeep import statecheck
from penstock.upkeep.statecheck import Documents

__all__ = [
    "LEDGER",
    "STATE",
    "Contents",
    "Kind",
    "backup",
    "describe",
    "inspect",
    "keep_before",
    "open_checked",
    "vacuum",
]

_PORTION = 1000  # pages, of 4 KB as a rule
_TURN = 0.05  # seconds between two portions
_BEGINNINGS = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file should be: what made it (one script a version), what is in its documents, a table that it must have,
    the mark in its header (0: none) and since which version it has that, and by table the column that says when a row
    was written."""

    name: str
    scripts: Sequence[str]
    documents: Documents
    table: str
    when: Mapping[str, str]
    mark: int = 0
    marked: int = 0

    @property
    def version(self) -> int:
        """The one that this release writes."""
        return len(self.scripts)


STATE = Kind(
    "state file",
    MIGRATIONS,
    statecheck.IN_STATE,
    "decisions",
    {
        "intents": "opened",
        "decisions": "at",
        "runs": "created",
        "resizes": "finished",
        "learned": "updated",
        "waits": "at",
        "inbox": "at",
        "messages": "at",
    },
    APPLICATION_ID,
    5,
)
LEDGER = Kind("ledger", LEDGER_MIGRATIONS, statecheck.IN_LEDGER, "entries", {"entries": "at"})


@dataclass(frozen=True, slots=True)
class Contents:
    """A file: what it is, its schema's version, its size in bytes (that of its log included), what of it is wrong, how
    many rows each table has, and the times (epoch s) of the first and the last row of each that knows them."""

    path: str
    kind: Kind
    version: int
    size: int
    problems: tuple[str, ...]
    rows: Mapping[str, int]
    spans: Mapping[str, tuple[float, float]]

    @property
    def compatible(self) -> str:
        """What this release makes of the version: "same", "older" or "newer"."""
        want = self.kind.version
        return "same" if self.version == want else "older" if self.version < want else "newer"


def inspect(path: Path, kind: Kind = STATE) -> Contents:
    """Look into a file, beside a running agent or not: through all that is in it, but for one of a newer release.

    Raises StoreError when it cannot be read, StateRefused when it is no such file, or too damaged to be looked into.
    """
    with reading(path) as db:
        db.execute("BEGIN")  # one state of it for all that follows
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        tables = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")]
        if kind.table not in tables:
            raise StateRefused(f"{path} is no {kind.name} of Penstock: it has no table `{kind.table}`. {way_out(path)}")
        mark = int(db.execute("PRAGMA application_id").fetchone()[0])
        problems = []
        if mark not in ((kind.mark,) if version >= kind.marked else (0, kind.mark)):
            problems.append(f"its header has the application id {mark:#x}, not {kind.mark:#x}")
        if version < 1:
            problems.append(f"its header has the version {version}, which there has never been")
        elif version <= kind.version:
            problems += statecheck.problems(db, kind.scripts[:version], kind.documents)
        rows, spans = {}, {}
        for table in tables if not problems else ():
            rows[table] = int(db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608 (its own names)
            if rows[table] and table in kind.when:
                column = kind.when[table]
                first, last = db.execute(f'SELECT min("{column}"), max("{column}") FROM "{table}"').fetchone()  # noqa: S608
                spans[table] = (float(first), float(last))
    size = sum(part.stat().st_size for part in _parts(path))
    return Contents(str(path), kind, version, size, tuple(problems), rows, spans)


def open_checked(config: Config, tenure: Tenure) -> Store:
    """The state, for an agent or a tick that holds it, after the check of `penstock db check`.

    Raises StateRefused when that finds anything, or the file is another user's, and like `Store`.
    """
    path = config.agent.state_dir / DATABASE
    try:
        # An older one is checked before it is brought up to date, whoever opens it.
        if is_readable(path) and (found := inspect(path)).compatible == "same":
            _must_be_whole(found)
        return open_store(config, tenure)
    except NotPermitted as e:  # will be so again, whoever starts this process again
        raise StateRefused(f"{e}; its owner or root can hand it over (`chown`), or move it away") from e


def _must_be_whole(found: Contents) -> None:
    if found.problems:
        raise StateRefused(f"{found.path} is damaged: {found.problems[0]}. {way_out(found.path)}")


def keep_before(path: Path) -> Path:
    """Before a file of an older release is brought up to date: check it, and copy it beside itself; the copy's name.

    A copy of the same content is not made again. The caller keeps others from writing. Raises StateRefused when the
    file is damaged, StoreError when there is no copy.
    """
    for left in path.parent.glob(f".{path.name}.before-*"):  # of somebody who was killed here
        left.unlink(missing_ok=True)
    _must_be_whole(inspect(path))
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.before-{VERSION}" + (f".{number}" if number > 1 else ""))
        try:
            backup(path, copy, replace=False)
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


def describe(path: Path) -> str:
    """Which version the state file is of, and what will become of it. Raises StoreError when it cannot be used."""
    if not is_readable(path):
        return "there is no state yet; it is made at the first start"
    with reading(path) as db:
        have = int(db.execute("PRAGMA user_version").fetchone()[0])
    if have > VERSION:
        raise StateRefused(too_new(path, have))
    if have < VERSION:
        return f"{path} is of version {have}; the agent brings it to version {VERSION} when it starts"
    return f"{path}, version {have}"


def backup(source: Path, target: Path, *, replace: bool, kind: Kind = STATE) -> Contents:
    """Copy a file to a new one, also beside a running agent; what is in the copy. The copy is one file, readable
    by its owner only, and is there whole or not at all.

    Raises UserError where `target` is there already and is not to be replaced, StoreError when it cannot be read,
    written or checked, NotPermitted where it is another's.
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
        found = inspect(fresh, kind)
        if found.problems:
            raise StateRefused(f"{source} is damaged, nothing was kept: {found.problems[0]}. {way_out(source)}")
        publish(fresh, target, replace=replace)
    except OSError as e:
        if isinstance(e, FileExistsError) and not replace:
            raise UserError(f"{target} is there already: name another file, or use --force to replace it") from None
        raise StoreError(f"{target} cannot be written: {e.strerror}") from e
    except SAID as e:
        raise failed(source, f"{source} cannot be copied to {target}", e) from e
    finally:
        fresh.unlink(missing_ok=True)
    return Contents(str(target), kind, found.version, found.size, (), found.rows, found.spans)


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


def vacuum(path: Path) -> tuple[int, int]:
    """Write the file anew without the room that old rows have left; its size in bytes before and after.

    The caller sees to it that nobody uses it. Raises StoreError.
    """
    before = sum(part.stat().st_size for part in _parts(path))
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except SAID as e:
        raise failed(path, str(path), e) from e
    return before, sum(part.stat().st_size for part in _parts(path))


def _parts(path: Path) -> list[Path]:
    return [part for part in (path, log_of(path)) if part.exists()]
