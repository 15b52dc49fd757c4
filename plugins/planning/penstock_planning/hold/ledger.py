"""The ledger: holds and runs as they stand, service units per account (budgets, charges, refunds), and how long data
took between sites. SQLite.

A hold's entries have one row per kind, so nothing is charged twice however often it is entered; a hold is stored before
its acts are done, so after a kill in between the next pass finds what came into being, and charges it then.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.config import Config
from penstock.errors import Infeasible, NotFound, StateRefused, StoreError
from penstock.state.birth import there_or_made
from penstock.state.leadership import is_shared
from penstock.state.ownership import check_root, denied, is_readable, ledger_path
from penstock.state.reading import reading
from penstock.state.schema import too_old
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.state import WorkflowRun
from penstock_planning.plan.holding import Hold, LedgerEntry
from penstock_planning.plan.transfers import Measured

__all__ = ["MIGRATIONS", "VERSION", "Account", "Ledger", "Line", "open_ledger"]

_SCHEMA: Final = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, budget REAL);
CREATE TABLE holds (id INTEGER PRIMARY KEY, user TEXT NOT NULL, account TEXT NOT NULL, final INTEGER NOT NULL,
    state TEXT NOT NULL);
CREATE TABLE entries (hold INTEGER NOT NULL, kind TEXT NOT NULL, account TEXT NOT NULL, at REAL NOT NULL,
    amount REAL NOT NULL, PRIMARY KEY (hold, kind));
CREATE TABLE runs (name TEXT PRIMARY KEY, final INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE transfers (id INTEGER PRIMARY KEY, source TEXT NOT NULL, target TEXT NOT NULL, at REAL NOT NULL,
    bytes REAL NOT NULL, predicted REAL NOT NULL, seconds REAL NOT NULL);
"""
OLDEST: Final = 4
"""The first version of the ledger that this release goes on from: that of `penstock.values.oldest.FIRST`."""
# Append only: the number of entries is the file's user_version.
MIGRATIONS: Final = (*[""] * (OLDEST - 1), _SCHEMA)
VERSION: Final = len(MIGRATIONS)


@dataclass(frozen=True, slots=True)
class Account:
    """`budget` None: not limited. `spent` is what all entries add up to, `promised` what open holds may still cost."""

    name: str
    budget: float | None
    spent: float
    promised: float

    @property
    def left(self) -> float | None:
        """What may still be spent."""
        return None if self.budget is None else self.budget - self.spent - self.promised


@dataclass(frozen=True, slots=True)
class Line:
    """An entry as it was made."""

    hold: int
    kind: str
    account: str
    at: float
    amount: float


class Ledger:
    """One SQLite file, or ":memory:". Every method is one durable transaction; StoreError if it fails, `StateRefused`
    where the file is too old.

    `shared`: other hosts see the file, too. `may_write` is called before each transaction that writes, and raises what
    is in its way.
    """

    def __init__(self, path: Path | str, *, shared: bool = False, may_write: Callable[[], None] = lambda: None) -> None:
        self._path = str(path)
        self._may_write = may_write
        try:
            if self._path != ":memory:":
                there_or_made(Path(path), MIGRATIONS, f"cannot open the ledger {path}")
            self._db = sqlite3.connect(self._path, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._version()  # nothing is written to what is refused
            # A write-ahead log is for processes that share memory.
            journal = "TRUNCATE" if shared else "WAL"
            for pragma in ("busy_timeout=5000", f"journal_mode={journal}", "synchronous=FULL"):
                self._db.execute(f"PRAGMA {pragma}")
            self._migrate()
        except OSError as error:
            raise denied(Path(path), error, f"cannot open the ledger {path}") from error
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the ledger {self._path}: {error}") from error

    @classmethod
    def copy_of(cls, path: Path) -> Ledger:
        """A ledger to be looked at, in memory, as it stands now: empty where there is none, and none is made.

        Raises StoreError if it cannot be read, NotPermitted where it is another's.
        """
        copy = cls(":memory:")
        if is_readable(path):
            try:
                with reading(path) as db:
                    db.backup(copy._db)
                copy._path = str(path)
                copy._migrate()
            except sqlite3.Error as error:
                raise StoreError(f"cannot read the ledger {path}: {error}") from error
        return copy

    def _version(self) -> int:
        """Of the file; 0: there is nothing in it yet. Raises StoreError for a newer one, StateRefused for one that is
        too old."""
        have = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if have > VERSION:
            raise StoreError(f"{self._path} is of version {have}, this release of Penstock reads {VERSION}")
        if old := too_old(self._path, have, OLDEST):
            raise StateRefused(old)
        return have

    def _migrate(self) -> None:
        have = self._version()
        if have < VERSION:
            missing = " ".join(MIGRATIONS[have:])
            self._db.executescript(f"BEGIN; {missing} PRAGMA user_version={VERSION}; COMMIT;")

    def close(self) -> None:
        """The ledger is not used afterwards."""
        self._db.close()

    def open_hold(self, hold: Hold) -> int:
        """Store a new hold; its number. Raises Infeasible if the account's budget does not cover what it may cost."""
        wanted, most = hold.wanted, worst_case(hold)
        with self._transaction():
            account = self._account(wanted.account)
            if account.left is not None and most > account.left + 1e-9:
                raise Infeasible(
                    f"account {wanted.account} has {max(account.left, 0):g} left, and this may cost {most:g}: "
                    f"a budget of {account.spent + account.promised + most:g} would be enough"
                )
            found = self._db.execute(
                "INSERT INTO holds (user, account, final, state) VALUES (?, ?, 0, ?)",
                (wanted.user, wanted.account, json.dumps(hold.to_dict())),
            )
        number = found.lastrowid
        assert number is not None
        return number

    def store(self, number: int, hold: Hold, entries: Iterable[LedgerEntry], at: float) -> None:
        """The hold's new state and its entries, together or not at all. An entry that is there already stays."""
        with self._transaction():
            self._db.execute(
                "UPDATE holds SET final = ?, state = ? WHERE id = ?",
                (hold.settled, json.dumps(hold.to_dict()), number),
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO entries (hold, kind, account, at, amount) VALUES (?, ?, ?, ?, ?)",
                [(number, e.kind, hold.wanted.account, at, e.amount) for e in entries],
            )

    def hold(self, number: int) -> Hold:
        """A hold as it stands. Raises NotFound."""
        row = self._execute("SELECT state FROM holds WHERE id = ?", number) if abs(number) < 2**63 else []
        if not row:
            raise NotFound(f"there is no hold {number}")
        return Hold.from_dict(json.loads(row[0]["state"]))

    def holds(self, final: bool = False) -> dict[int, Hold]:
        """The holds that are not settled yet, or all, by number."""
        rows = self._execute("SELECT id, state FROM holds WHERE final = 0 OR ? ORDER BY id", final)
        return {row["id"]: Hold.from_dict(json.loads(row["state"])) for row in rows}

    def store_run(self, run: WorkflowRun) -> None:
        """The state of a workflow in its slots, new or not."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO runs (name, final, state) VALUES (?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET final = excluded.final, state = excluded.state",
                (run.name, run.phase.final, json.dumps(run_to_dict(run))),
            )

    def runs(self, final: bool = False) -> list[WorkflowRun]:
        """The workflows that are not over, or all, by name."""
        rows = self._execute("SELECT state FROM runs WHERE final = 0 OR ? ORDER BY name", final)
        return [run_from_dict(json.loads(row[0])) for row in rows]

    def run(self, name: str) -> WorkflowRun | None:
        """One of them, over or not; None: there is none of this name."""
        rows = list(self._execute("SELECT state FROM runs WHERE name = ?", name))
        return run_from_dict(json.loads(rows[0][0])) if rows else None

    def add_transfer(self, source: str, target: str, at: float, size: float, moved: Measured) -> None:
        """Data of `size` bytes went from one site to another."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO transfers (source, target, at, bytes, predicted, seconds) VALUES (?, ?, ?, ?, ?, ?)",
                (source, target, at, size, moved.predicted, moved.seconds),
            )

    def transfers(self) -> dict[tuple[str, str], list[Measured]]:
        """By source and target, in the order in which they were made."""
        found: dict[tuple[str, str], list[Measured]] = {}
        for row in self._execute("SELECT source, target, predicted, seconds FROM transfers ORDER BY id"):
            found.setdefault((row["source"], row["target"]), []).append(Measured(row["predicted"], row["seconds"]))
        return found

    def set_budget(self, account: str, budget: float | None) -> None:
        """What an account may spend in all; None: as much as it likes."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO accounts (name, budget) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET budget = ?",
                (account, budget, budget),
            )

    def account(self, name: str) -> Account:
        """An account; one that was never heard of has no budget and no entries."""
        return self._account(name)

    def accounts(self) -> list[Account]:
        """All that have a budget, an entry or a hold, by name."""
        rows = self._execute(
            "SELECT name FROM accounts UNION SELECT account FROM entries UNION SELECT account FROM holds ORDER BY 1"
        )
        return [self._account(row[0]) for row in rows]

    def lines(self, account: str | None = None) -> list[Line]:
        """The entries, the oldest first."""
        rows = self._execute(
            "SELECT * FROM entries WHERE ? IS NULL OR account = ? ORDER BY at, hold, kind", account, account
        )
        return [Line(**dict(row)) for row in rows]

    def _account(self, name: str) -> Account:
        budget = self._execute("SELECT budget FROM accounts WHERE name = ?", name)
        spent = self._execute("SELECT TOTAL(amount) FROM entries WHERE account = ?", name)[0][0]
        promised = 0.0
        for row in self._execute("SELECT id, state FROM holds WHERE account = ? AND final = 0", name):
            hold = Hold.from_dict(json.loads(row["state"]))
            if not hold.phase.final:
                paid = self._execute("SELECT TOTAL(amount) FROM entries WHERE hold = ?", row["id"])[0][0]
                promised += max(0.0, worst_case(hold) - paid)
        return Account(name, budget[0][0] if budget else None, spent, promised)

    def _execute(self, sql: str, *args: object) -> Sequence[sqlite3.Row]:
        try:
            return self._db.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"the ledger {self._path}: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """What is read and written inside is one transaction; StoreError, and no change, where that cannot be."""
        self._may_write()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself takes back what a full disk kept from being written
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(f"the ledger {self._path}: {error}") from error


def worst_case(hold: Hold) -> float:
    """The most that a hold may cost: its price, or that of idling from the submission on, whichever it may come to."""
    wanted = hold.wanted
    if wanted.method == "var":
        submitted = wanted.start if wanted.submit_at is None else wanted.submit_at
        return wanted.base + (wanted.start - submitted) * wanted.nodes * wanted.node_second
    return wanted.base + wanted.f


def open_ledger(config: Config, may_write: Callable[[], None] = lambda: None) -> Ledger:
    """The ledger, to be written; made where there is none. Raises StoreError if it cannot be opened, and NotPermitted
    where it is another's, to root, too. `may_write` is as for `Ledger`."""
    path = ledger_path(config)
    check_root(config, path)
    if config.provision.ledger is None:
        try:
            path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        except OSError as error:
            raise denied(path.parent, error, f"{path.parent} cannot be made") from error
    return Ledger(path, shared=is_shared(config, path.parent), may_write=may_write)
