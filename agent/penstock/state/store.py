"""The agent's memory: one SQLite file with the journal of intents, the decisions with reasons, and all learned state.

A class for each group of its tables reads and writes these, all over one connection (`connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import StateRefused
from penstock.state.connection import Holder, StateConnection
from penstock.state.facts import FactTable
from penstock.state.inbox import InboxTable
from penstock.state.journal import DecisionTable, IntentTable
from penstock.state.learned import LearnedTables
from penstock.state.messages import MessageTable
from penstock.state.runs import RunTable
from penstock.state.schema import OVER
from penstock.state.sizes import MalleableTable, MoldableTable, ResizeTable

__all__ = ["AT_ONCE", "TICKED", "Store"]

AT_ONCE = 20_000
"""Rows of a table that are forgotten at once: an agent that prunes for the first time shall not stop for minutes."""
TICKED = "tick.at"
"""The fact that holds when `penstock tick` ran last."""


class Store:
    """One SQLite file (or ":memory:"), made where there is none. Raises `StoreError` when it cannot be opened, read or
    written, `StateRefused` when it is none of ours, of a newer release, or seen to be damaged, and `NotPermitted` when
    it is another user's.

    `holder`: who has the lease, where several hosts see the file. `LeaseLost` when it is not the holder's any more.
    `shared`: several hosts see a file that needs none, as any of them may write at any time. `connect` opens the file
    as `StateConnection` does.
    """

    def __init__(
        self,
        path: Path | str,
        holder: Holder | None = None,
        *,
        shared: bool = False,
        connect: Callable[..., StateConnection] = StateConnection,
    ) -> None:
        self._take(connect(path, holder, shared=shared))

    @classmethod
    def read_only(cls, path: Path) -> Store:
        """The file of an agent that does not run, for looking at: nothing is changed, and it must be of this version.
        Raises `StoreError` like the rest."""
        store = cls.__new__(cls)
        store._take(StateConnection.read_only(path))
        return store

    @classmethod
    def copy_of(cls, path: Path) -> Store:
        """The same as a copy in memory: what is written to it does not last."""
        store = cls.__new__(cls)
        store._take(StateConnection.copy_of(path))
        return store

    def _take(self, connection: StateConnection) -> None:
        self.connection = connection
        self.intents = IntentTable(connection)
        self.decisions = DecisionTable(connection)
        self.runs = RunTable(connection)
        self.inbox = InboxTable(connection)
        self.messages = MessageTable(connection)
        self.malleable = MalleableTable(connection)
        self.moldable = MoldableTable(connection)
        self.resizes = ResizeTable(connection)
        self.learning = LearnedTables(connection)
        self.facts = FactTable(connection)

    @property
    def path(self) -> str:
        """Where the file is."""
        return self.connection.path

    @property
    def written(self) -> int:
        """How many rows were written since it was opened."""
        return self.connection.written

    @property
    def errors(self) -> int:
        """How often SQLite refused something since it was opened."""
        return self.connection.errors

    def unreadable(self, what: str) -> StateRefused:
        """The error for a document in it that is not of its kind."""
        return self.connection.unreadable(what)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything written inside becomes durable together or not at all; with it goes the request of the inbox that
        is being taken now."""
        with self.inbox.together():
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is read and written inside is one transaction."""
        with self.connection.transaction():
            yield

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def prune(self, before: float) -> dict[str, int]:
        """Forget what was over before that instant; how many rows of each table went, at most `AT_ONCE` each. Open
        intents, live runs and jobs, requests that wait, and facts stay whatever their age."""
        gone = {}
        with self.together():
            for table, (over, column) in OVER.items():
                found = f"SELECT rowid FROM {table} WHERE {over} AND {column} < ? LIMIT {AT_ONCE}"  # noqa: S608 (its own)
                deleted = self.connection.execute(f"DELETE FROM {table} WHERE rowid IN ({found})", (before,))  # noqa: S608
                if deleted.rowcount:
                    gone[table] = deleted.rowcount
        return gone
