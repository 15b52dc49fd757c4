"""The state file as a file: what is in it, whether it is whole, a copy to keep, and less of it.

Looking and copying go on beside a running agent: SQLite shows each reader one state of the file, and lets the agent
write meanwhile. Where several hosts see the file (`penstock.state.lease`) it has no log that makes this possible: who
reads keeps the agent from writing, so it is copied in portions. What is old is taken out by the agent itself
(`agent.keep`); making the file smaller is for the time when none runs, as SQLite then writes all of it anew and keeps
everybody else out.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path

from penstock.config import Config
from penstock.errors import NotPermitted, StateRefused
from penstock.state.copies import copied
from penstock.state.filekind import FileKind
from penstock.state.leadership import Leadership, open_acts, open_store
from penstock.state.ownership import acts_path, is_readable, state_path
from penstock.state.reading import PATIENCE, SAID, failed, log_of, reading
from penstock.state.schema import APPLICATION_ID, MIGRATIONS, VERSION, too_old, way_out
from penstock.state.store import Store
from penstock.statefile import statecheck

__all__ = [
    "STATE",
    "Contents",
    "backup",
    "inspect",
    "must_be_whole",
    "open_checked",
    "open_checked_acts",
    "vacuum",
]


STATE = FileKind(
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
    state_path,
    lambda path: Store(path).close(),
    APPLICATION_ID,
)


@dataclass(frozen=True, slots=True)
class Contents:
    """A file: what it is, its schema's version, its size in bytes (that of its log included), what of it is wrong, how
    many rows each table has, and the times (epoch s) of the first and the last row of each that knows them."""

    path: str
    kind: FileKind
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


def inspect(path: Path, kind: FileKind = STATE) -> Contents:
    """Look into a file, beside a running agent or not: through all that is in it, but for one of a newer release.

    Raises StoreError when it cannot be read, StateRefused when it is no such file, too old, or too damaged to be looked
    into.
    """
    with reading(path) as db:
        db.execute("BEGIN")  # one state of it for all that follows
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        tables = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")]
        if kind.table not in tables:
            raise StateRefused(f"{path} is no {kind.name} of Penstock: it has no table `{kind.table}`. {way_out(path)}")
        if old := too_old(path, version, kind.oldest):
            raise StateRefused(old)
        mark = int(db.execute("PRAGMA application_id").fetchone()[0])
        problems = []
        if mark != kind.mark:
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


def open_checked(config: Config, leadership: Leadership) -> Store:
    """The state, for an agent or a tick that holds it, after the check of `penstock db check`.

    Raises StateRefused when that finds anything, or the file is another user's, and like `Store`.
    """
    path = state_path(config)
    try:
        must_be_whole(path)
        return open_store(config, leadership)
    except NotPermitted as e:  # will be so again, whoever starts this process again
        raise StateRefused(f"{e}; its owner or root can hand it over (`chown`), or move it away") from e


def open_checked_acts(config: Config) -> Store:
    """What all processes of a user share (`open_acts`), looked through where it is of an older release. Raises like
    `must_be_whole` and `Store`."""
    must_be_whole(acts_path(config), older=True)
    return open_acts(config)


def must_be_whole(path: Path, *, older: bool = False) -> None:
    """Raises StateRefused where it is not, like `inspect` where it cannot be looked into. `older`: only a file of an
    older release is looked through, which is about to be brought up to date."""
    if not is_readable(path):
        return
    if older:
        with reading(path) as db:
            if not 0 < int(db.execute("PRAGMA user_version").fetchone()[0]) < VERSION:
                return
    found = inspect(path)
    if found.problems:
        raise StateRefused(f"{path} is damaged: {found.problems[0]}. {way_out(path)}")


def backup(source: Path, target: Path, *, replace: bool, kind: FileKind = STATE) -> Contents:
    """Copy a whole file to a new one, also beside a running agent; what is in the copy.

    Raises UserError where `target` is there already and is not to be replaced, StoreError when it cannot be read,
    written or checked, NotPermitted where it is another's.
    """

    def whole(copy: Path) -> Contents:
        found = inspect(copy, kind)
        if found.problems:
            raise StateRefused(f"{source} is damaged, nothing was kept: {found.problems[0]}. {way_out(source)}")
        return found

    return replaced(copied(source, target, replace=replace, check=whole), path=str(target))


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
