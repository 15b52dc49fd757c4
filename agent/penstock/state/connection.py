"""The connection to a state file: opened and brought up to date, its transactions, and what is said where they fail.

Calls are synchronous: each is one small transaction, durable when it returns (synchronous=FULL). With a write-ahead log
where one host sees the file; where several do (`penstock.state.lease`) with a rollback journal, and every transaction
that writes looks first whether the lease's number is still its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote

from penstock.errors import LeaseLost, StateRefused, StoreError
from penstock.state.birth import refuse_other, there_or_made, version_in
from penstock.state.copies import keep_before
from penstock.state.lease.fence import PATIENCE, number_in, set_journal
from penstock.state.lease.files import in_use
from penstock.state.reading import SAID, failed
from penstock.state.schema import MIGRATIONS, VERSION, statements, way_out

__all__ = ["Holder", "StateConnection", "StateTable"]


class Holder(Protocol):
    """Who holds the state among several hosts (`penstock.state.lease.Lease`)."""

    number: int

    def lose(self, why: str) -> None:
        """The database says that somebody else has taken over."""
        ...


class StateConnection:
    """To one file, which is made where there is none; see `Store` for what is raised, `holder` and `shared`.

    For the metrics, since it was opened: `written` counts rows, `errors` what SQLite refused. One that `looks_only`
    writes nothing.
    """

    def __init__(self, path: Path | str, holder: Holder | None = None, *, shared: bool = False) -> None:
        self.path = str(path)
        self._holder = holder
        self.looks_only = False
        self.written = self.errors = 0
        try:
            if self.path != ":memory:":
                there_or_made(Path(self.path), MIGRATIONS)
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            with self._closed_on_failure():
                self._db.row_factory = sqlite3.Row
                self._db.execute(f"PRAGMA busy_timeout={1000 * PATIENCE:.0f}")
                self._version()  # nothing is written to what is not ours
                if holder is None and not shared:
                    self._db.execute("PRAGMA journal_mode=WAL")
                    self._db.execute("PRAGMA synchronous=FULL")
                else:
                    set_journal(self._db)
                self._migrate()
        except SAID as e:
            raise failed(self.path, f"cannot open the state file {self.path}", e) from e
        except OSError as e:
            raise StoreError(f"cannot open the state file {self.path}: {e}") from e

    @classmethod
    def read_only(cls, path: Path) -> Self:
        """The file of an agent that does not run, for looking at: nothing is changed, and it must be of this version.
        Raises `StoreError` like the rest."""
        file = cls.__new__(cls)
        file.path, file.looks_only, file._holder = str(path), True, None
        file.written = file.errors = 0
        if not refuse_other(path):
            raise StoreError(f"there is no state file {path}")
        try:
            # query_only keeps it from being written. Not a journal from being played back, which on another host may
            # be that of a living agent: where several see the file, it is opened for reading only.
            only = "?mode=ro" if in_use(path.parent) else ""
            file._db = sqlite3.connect(f"file:{quote(str(path.absolute()))}{only}", uri=True, isolation_level=None)
            with file._closed_on_failure():
                file._db.execute(f"PRAGMA busy_timeout={1000 * PATIENCE:.0f}")
                file._db.row_factory = sqlite3.Row
                file._db.execute("PRAGMA query_only=ON")
                have = file._version()
        except SAID as e:
            if getattr(e, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
                why = "somebody is writing, or was killed in doing so: the next agent or tick puts it right"
                raise StoreError(f"cannot open the state file {path}: {why}") from e
            raise failed(path, f"cannot open the state file {path}", e) from e
        if have < VERSION:
            file.close()
            raise StoreError(
                f"{path} was written by an older Penstock (state version {have}, this one reads {VERSION}); "
                "an agent or `penstock tick` of this release brings it up to date when it starts"
            )
        return file

    @classmethod
    def copy_of(cls, path: Path) -> Self:
        """A copy in memory of such a file: what is written to it lasts as long as this."""
        there = cls.read_only(path)
        try:
            copy = cls(":memory:")
            with copy._closed_on_failure():
                there._db.backup(copy._db)
            return copy
        except SAID as e:
            raise failed(path, f"cannot read the state file {path}", e) from e
        finally:
            there.close()

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._db.close()
            raise

    def _version(self) -> int:
        return version_in(self._db, self.path)

    def _migrate(self) -> None:
        if self._version() == VERSION:
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            have = self._version()  # somebody else may just have done it
            if have < VERSION:
                self._still_ours()
                if have:
                    keep_before(Path(self.path))
                # All steps in one transaction: a kill leaves the file as it was.
                for script in MIGRATIONS[have:]:
                    for statement in statements(script):
                        self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={VERSION}")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def execute(self, sql: str, args: Sequence[str | float | None] = ()) -> sqlite3.Cursor:
        """Carry out a statement. Raises `StoreError` and `LeaseLost`."""
        # Outside of a transaction each statement is a transaction of its own, durable when it returns.
        if self._holder is not None and not self._db.in_transaction and not sql.startswith(("SELECT", "BEGIN")):
            with self.transaction():
                return self.execute(sql, args)
        try:
            cursor = self._db.execute(sql, args)
            self.written = self._db.total_changes
            return cursor
        except SAID as e:
            raise self.refused(e) from e

    def rows(self, sql: str, *args: str | float | None) -> list[sqlite3.Row]:
        """What a query answers, all of it."""
        cursor = self.execute(sql, args)
        try:
            return cursor.fetchall()
        except SAID as e:
            raise self.refused(e) from e

    def refused(self, error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
        """The error for what SQLite refuses, which is counted."""
        self.errors += 1
        return failed(self.path, f"the state file {self.path}", error)

    def load(self, text: str, what: str) -> Any:  # noqa: ANN401
        """A stored document; `what` it is of. Raises `StateRefused` where it is none any more."""
        try:
            return json.loads(text)
        except (ValueError, TypeError, RecursionError) as e:
            raise self.unreadable(what) from e

    def unreadable(self, what: str) -> StateRefused:
        """The error for a document in it that is not of its kind."""
        return StateRefused(f"{self.path} is damaged: {what} cannot be read. {way_out(self.path)}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is read and written inside is one transaction."""
        self.execute("BEGIN IMMEDIATE")
        try:
            self._still_ours()
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self.execute("ROLLBACK")
            raise

    def _still_ours(self) -> None:
        """In the transaction that is about to write: nobody can take over before it ends. Raises LeaseLost."""
        if self._holder is None:
            return
        try:
            found = number_in(self._db)
        except SAID as e:
            raise self.refused(e) from e
        if found != self._holder.number:
            self._holder.lose(f"another host has taken over the state file {self.path}")
            raise LeaseLost(f"the state file {self.path}: another host has taken over (lease {found})")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class StateTable:
    """What reads and writes one table of a file, or those of one matter."""

    def __init__(self, file: StateConnection) -> None:
        self._file = file
