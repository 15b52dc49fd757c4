"""From a damaged state file or ledger to a new one with all that can be read. The damaged file is only ever copied."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import NotNow, StateRefused, StoreError, UserError
from penstock.host.files import open_locked
from penstock.state.birth import HEADER, LOGS, log_there, publish
from penstock.state.filekind import FileKind
from penstock.state.ownership import is_readable
from penstock.state.reading import SAID
from penstock.state.schema import statements, too_new, too_old
from penstock.statefile.pages import PAGE, FoundTable, Pages, Value
from penstock.statefile.statecheck import Column, columns_of, flaw
from penstock.statefile.statefile import STATE, Contents, inspect

__all__ = ["Salvaged", "SavedRows", "salvage"]

_SMALLEST: Final = 512
# A request that is carried out twice is worse than one that is lost, and its page may be an old one.
_NEVER_STRAY: Final = frozenset({"inbox"})


@dataclass(slots=True)
class SavedRows:
    """What became of a table: rows `kept`, those `left_out` with why, pages and rows on them that are not readable."""

    kept: int = 0
    left_out: list[str] = field(default_factory=list)
    pages: int = 0
    cells: int = 0

    @property
    def whole(self) -> bool:
        """Whether nothing of it was lost."""
        return not (self.left_out or self.pages or self.cells)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The new file, and what was made of each table of the old one, whose version was `version`."""

    contents: Contents
    version: int
    parts: Mapping[str, SavedRows]

    @property
    def whole(self) -> bool:
        """Whether nothing was lost."""
        return all(part.whole for part in self.parts.values())


def salvage(source: Path, target: Path, kind: FileKind = STATE) -> Salvaged:
    """Write all that can be read of `source` to the new file `target`, brought up to date.

    Raises UserError where `target` is there, NotNow while somebody works on `source`, StoreError where nothing can be
    read or the new file cannot be written, StateRefused for a file of a newer release or one that is too old.
    """
    if not is_readable(source):
        raise StoreError(f"there is no file {source}")
    if target.exists():
        raise UserError(f"{target} is there already: name a file that is not")
    try:
        with _nobody_there(source), tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            data = _all_of(source, Path(folder))
            fresh = Path(folder) / "fresh.db"
            version, parts = _rescue(source, data, fresh, kind)
            kind.update(fresh)
            with closing(sqlite3.connect(fresh)) as db:
                db.execute("PRAGMA journal_mode=DELETE")
            found = inspect(fresh, kind)
            if found.problems:
                raise StoreError(f"nothing was written: {found.problems[0]}")
            publish(fresh, target, replace=False)
    except FileExistsError:
        raise UserError(f"{target} is there already: name a file that is not") from None
    except OSError as e:
        raise StoreError(f"{target} cannot be written: {e.strerror}") from e
    except SAID as e:
        raise StoreError(f"{target} cannot be written: {e}") from e
    contents = Contents(str(target), kind, found.version, found.size, (), found.rows, found.spans)
    return Salvaged(contents, version, parts)


@contextmanager
def _nobody_there(source: Path) -> Iterator[None]:
    """No agent or tick of this host writes meanwhile."""
    try:
        lock = open_locked(source.parent / "agent.lock", os.O_RDONLY, shared=True)
    except BlockingIOError as e:
        raise NotNow(f"an agent works on {source}: stop it first") from e
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.close(lock)


def _all_of(source: Path, folder: Path) -> bytes:
    """The file with what its log has, from copies of both. Raises OSError."""
    copy = folder / "damaged.db"
    shutil.copyfile(source, copy)
    data = bytearray(copy.read_bytes())
    logs = [end for end in LOGS if log_there(source, end)]
    if len(data) < _SMALLEST:
        if not logs:
            raise StoreError(f"{source} has {len(data)} bytes: there is nothing to be read")
        data = bytearray(PAGE)  # with a page that says nothing SQLite takes the log for what it is
        data[56:60] = (1).to_bytes(4, "big")
        data[100] = 13
    # Only what every file of ours has alike, so that SQLite and we can read on.
    data[:16] = HEADER
    if len(data) % (int.from_bytes(data[16:18], "big") or len(data) + 1):
        data[16:18] = PAGE.to_bytes(2, "big")
    data[18:24] = bytes([2, 2] if "-wal" in logs else [1, 1]) + bytes([0, 64, 32, 32])
    if logs:
        copy.write_bytes(data)
        for end in logs:
            shutil.copyfile(f"{source}{end}", f"{copy}{end}")
        with suppress(*SAID), closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=OFF")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes in the log, at the latest when it ends
        data = bytearray(copy.read_bytes())
    return bytes(data)


def _rescue(source: Path, data: bytes, fresh: Path, kind: FileKind) -> tuple[int, dict[str, SavedRows]]:
    pages = Pages(data)
    roots = pages.schema()
    version = _version(source, data, roots, kind)
    scripts = kind.scripts[:version]
    os.close(os.open(fresh, os.O_CREAT | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(fresh, isolation_level=None)) as db:
        db.execute("BEGIN")
        for script in scripts:
            for statement in statements(script):
                db.execute(statement)
        db.execute(f"PRAGMA user_version={version}")
        names = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")]
        columns = {name: columns_of(db, name) for name in names}
        found = {name: pages.table(roots[name]) if name in roots else FoundTable(pages=[0]) for name in names}
        _add_strays(pages, found, columns, kind)
        parts = {name: _keep(db, name, found[name], columns[name], kind) for name in names}
        db.execute("COMMIT")
    if not any(part.kept for part in parts.values()):
        raise StoreError(f"nothing of {source} can be read")
    return version, parts


def _version(source: Path, data: bytes, roots: Mapping[str, int], kind: FileKind) -> int:
    """The one that its header says, or the latest one where it cannot be that."""
    version = int.from_bytes(data[60:64], "big")
    if kind.oldest <= version <= kind.version:
        return version
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        for script in kind.scripts:
            for statement in statements(script):
                model.execute(statement)
        known = {str(row[0]) for row in model.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    # A newer release would have said more in its tables, an older one less, or a damaged header says what is not so.
    if version == kind.version + 1 or roots.keys() - known - {"lease", "sqlite_stat1"}:
        raise StateRefused(too_new(source, version, kind.version))
    if known - roots.keys() and (old := too_old(source, version, kind.oldest)):
        raise StateRefused(old)
    return kind.version


def _add_strays(
    pages: Pages, found: dict[str, FoundTable], columns: Mapping[str, Sequence[Column]], kind: FileKind
) -> None:
    """Pages that nothing leads to any more go to the table, of those that lack some, that their rows fit best."""
    lacking = [name for name, table in found.items() if table.pages and name not in _NEVER_STRAY]
    if not lacking:
        return
    for stray in pages.strays():
        fits = {
            name: sum(_unusable(name, n, values, columns[name], kind) is None for n, values in stray.rows.items())
            for name in lacking
        }
        best = max(fits, key=lambda name: fits[name])
        if fits[best]:
            table = found[best]
            for number, values in stray.rows.items():
                table.rows.setdefault(number, values)
            table.cells += stray.cells


def _keep(db: sqlite3.Connection, name: str, table: FoundTable, columns: Sequence[Column], kind: FileKind) -> SavedRows:
    part = SavedRows(pages=len(table.pages), cells=table.cells)
    names, marks = ", ".join(f'"{c.name}"' for c in columns), ", ".join("?" * len(columns))
    for number, values in sorted(table.rows.items()):
        if (why := _unusable(name, number, values, columns, kind)) is not None:
            part.left_out.append(f"{name} {number}: {why}")
            continue
        row = _row(number, values, columns)
        plain = [_text(row[c.name]) for c in columns]
        try:
            db.execute(f'INSERT INTO "{name}" ({names}) VALUES ({marks})', plain)  # noqa: S608 (names of the schema)
            part.kept += 1
        except sqlite3.IntegrityError:
            part.left_out.append(f"{name} {number}: there is another one of the same key")
    return part


def _text(value: Any) -> Any:  # noqa: ANN401
    return value.decode() if isinstance(value, bytes) else value


def _unusable(name: str, number: int, values: Sequence[Value], columns: Sequence[Column], kind: FileKind) -> str | None:
    if len(values) > len(columns):
        return f"it has {len(values)} values, not {len(columns)}"
    return flaw(name, _row(number, values, columns), columns, kind.documents.get(name, {}))


def _row(number: int, values: Sequence[Value], columns: Sequence[Column]) -> dict[str, Any]:
    """By column; what was added to the table after the row was written has its default."""
    row: dict[str, Any] = {}
    for i, column in enumerate(columns):
        if i < len(values):
            row[column.name] = values[i]
        else:
            row[column.name] = None if column.default is None else _default(column)
        if column.key and column.kind == "INTEGER" and row[column.name] is None:
            row[column.name] = number
    return row


def _default(column: Column) -> Value:
    text = (column.default or "").strip("'")
    return text.encode() if column.kind == "TEXT" else float(text) if column.kind == "REAL" else int(text)
