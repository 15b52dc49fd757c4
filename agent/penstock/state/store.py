"""The agent's memory: one SQLite file with the journal of intents, the decisions with reasons, and all learned state.

Written before every act that cannot be undone (`intend`), so that after a kill the agent knows what it may have done.
Calls are synchronous: each is one small transaction, durable when it returns (synchronous=FULL). With a write-ahead log
where one host sees the file; where several do (`penstock.state.lease`) with a rollback journal, and every transaction
that writes looks first whether the lease's number is still its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from penstock.api import Decision
from penstock.errors import LeaseLost, NotNow, StateRefused, StoreError
from penstock.state.birth import refuse_other, there_or_made, version_in
from penstock.state.copies import keep_before
from penstock.state.lease.fence import PATIENCE, number_in, set_journal
from penstock.state.lease.files import in_use
from penstock.state.reading import SAID, failed
from penstock.state.schema import MIGRATIONS, OVER, VERSION, statements, way_out
from penstock.values.tally import Tally

__all__ = ["AT_ONCE", "TICKED", "Holder", "Intent", "Store"]

AT_ONCE = 20_000
"""Rows of a table that are forgotten at once: an agent that prunes for the first time shall not stop for minutes."""
TICKED = "tick.at"
"""The fact that holds when `penstock tick` ran last."""


@dataclass(slots=True)
class _Taking:
    """A request that is being carried out; no number: it is out of the inbox."""

    number: int | None


# Other tasks write meanwhile, which says nothing of this request.
_TAKING: ContextVar[_Taking | None] = ContextVar("taking", default=None)

_READ_AT_ONCE = 50  # runs
_ERRORS = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Intent:
    """A journaled act: `state` is open, done, failed, or unknown (sent, answer lost)."""

    id: int
    verb: str
    subject: str
    payload: Mapping[str, Any]
    state: str
    opened: float


class Holder(Protocol):
    """Who holds the state among several hosts (`penstock.state.lease.Lease`)."""

    number: int

    def lose(self, why: str) -> None:
        """The database says that somebody else has taken over."""
        ...


class Store:
    """One SQLite file (or ":memory:"), made where there is none. Raises `StoreError` when it cannot be opened, read or
    written, `StateRefused` when it is none of ours, of a newer release, or seen to be damaged, and `NotPermitted` when
    it is another user's.

    `holder`: who has the lease, where several hosts see the file. `LeaseLost` when it is not the holder's any more.
    `shared`: several hosts see a file that needs none, as any of them may write at any time.

    For the metrics, since it was opened: `written` counts rows, `errors` what SQLite refused; `wait_errors` are the
    differences (s) between predicted waits and real ones, by which was "longer" or "shorter", and `bounds_held`
    whether the bound that was predicted held ("yes", "no").
    """

    def __init__(self, path: Path | str, holder: Holder | None = None, *, shared: bool = False) -> None:
        self.path = str(path)
        self._holder = holder
        self._looks_only = False
        self.written = self.errors = 0
        self.wait_errors = {"longer": Tally(_ERRORS), "shorter": Tally(_ERRORS)}
        self.bounds_held: Counter[str] = Counter()
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
    def read_only(cls, path: Path) -> Store:
        """The file of an agent that does not run, for looking at: nothing is changed, and it must be of this version.
        Raises `StoreError` like the rest."""
        store = cls.__new__(cls)
        store.path, store._looks_only, store._holder = str(path), True, None
        store.written = store.errors = 0
        if not refuse_other(path):
            raise StoreError(f"there is no state file {path}")
        try:
            # query_only keeps it from being written. Not a journal from being played back, which on another host may
            # be that of a living agent: where several see the file, it is opened for reading only.
            only = "?mode=ro" if in_use(path.parent) else ""
            store._db = sqlite3.connect(f"file:{quote(str(path.absolute()))}{only}", uri=True, isolation_level=None)
            with store._closed_on_failure():
                store._db.execute(f"PRAGMA busy_timeout={1000 * PATIENCE:.0f}")
                store._db.row_factory = sqlite3.Row
                store._db.execute("PRAGMA query_only=ON")
                have = store._version()
        except SAID as e:
            if getattr(e, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
                why = "somebody is writing, or was killed in doing so: the next agent or tick puts it right"
                raise StoreError(f"cannot open the state file {path}: {why}") from e
            raise failed(path, f"cannot open the state file {path}", e) from e
        if have < VERSION:
            store.close()
            raise StoreError(
                f"{path} was written by an older Penstock (state version {have}, this one reads {VERSION}); "
                "an agent or `penstock tick` of this release brings it up to date when it starts"
            )
        return store

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

    def _execute(self, sql: str, args: Sequence[str | float | None] = ()) -> sqlite3.Cursor:
        # Outside of `together` each statement is a transaction of its own, durable when it returns.
        if self._holder is not None and not self._db.in_transaction and not sql.startswith(("SELECT", "BEGIN")):
            with self.transaction():
                return self._execute(sql, args)
        try:
            cursor = self._db.execute(sql, args)
            self.written = self._db.total_changes
            return cursor
        except SAID as e:
            self.errors += 1
            raise failed(self.path, f"the state file {self.path}", e) from e

    def _rows(self, sql: str, *args: str | float | None) -> list[sqlite3.Row]:
        cursor = self._execute(sql, args)
        try:
            return cursor.fetchall()
        except SAID as e:
            self.errors += 1
            raise failed(self.path, f"the state file {self.path}", e) from e

    def _load(self, text: str, what: str) -> Any:  # noqa: ANN401
        """A stored document; `what` it is of. Raises `StateRefused` where it is none any more."""
        try:
            return json.loads(text)
        except (ValueError, TypeError, RecursionError) as e:
            raise self.unreadable(what) from e

    def unreadable(self, what: str) -> StateRefused:
        """The error for a document in it that is not of its kind."""
        return StateRefused(f"{self.path} is damaged: {what} cannot be read. {way_out(self.path)}")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything written inside becomes durable together or not at all; with it goes the request that is `taking`
        now."""
        taking = _TAKING.get()
        with self.transaction():
            yield
            if taking is not None and taking.number is not None:
                self._execute("DELETE FROM inbox WHERE id=?", (taking.number,))
        if taking is not None:
            taking.number = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is read and written inside is one transaction."""
        self._execute("BEGIN IMMEDIATE")
        try:
            self._still_ours()
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._execute("ROLLBACK")
            raise

    def _still_ours(self) -> None:
        """In the transaction that is about to write: nobody can take over before it ends. Raises LeaseLost."""
        if self._holder is None:
            return
        try:
            found = number_in(self._db)
        except SAID as e:
            self.errors += 1
            raise failed(self.path, f"the state file {self.path}", e) from e
        if found != self._holder.number:
            self._holder.lose(f"another host has taken over the state file {self.path}")
            raise LeaseLost(f"the state file {self.path}: another host has taken over (lease {found})")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # -- the journal -------------------------------------------------------------------------------------------------

    def intend(self, verb: str, subject: str, payload: Mapping[str, Any], now: float) -> int:
        """Write down what is about to be done; its number."""
        cursor = self._execute(
            "INSERT INTO intents (verb, subject, payload, opened) VALUES (?, ?, ?, ?)",
            (verb, subject, json.dumps(dict(payload)), now),
        )
        return int(cursor.lastrowid or 0)

    def settle(self, intent: int, state: str, outcome: str, now: float) -> None:
        """Write down how it went: done, failed or unknown."""
        self._execute("UPDATE intents SET state=?, outcome=?, closed=? WHERE id=?", (state, outcome, now, intent))

    def open_intents(self) -> list[Intent]:
        """What may have been done when the agent died, oldest first."""
        rows = self._rows("SELECT * FROM intents WHERE state IN ('open', 'unknown') ORDER BY id")
        return [
            Intent(
                r["id"], r["verb"], r["subject"], self._load(r["payload"], f"intent {r['id']}"), r["state"], r["opened"]
            )
            for r in rows
        ]

    # -- decisions ---------------------------------------------------------------------------------------------------

    def record(self, decision: Decision, now: float) -> bool:
        """Keep a decision unless the last one about this subject said the same; whether it was new."""
        reasons = json.dumps([[r.code, r.text] for r in decision.reasons])
        codes = [r.code for r in decision.reasons]
        last = self._rows(
            "SELECT verb, reasons FROM decisions WHERE subject=? ORDER BY id DESC LIMIT 1", decision.subject
        )
        if last and last[0]["verb"] == decision.verb and self._codes(last[0]["reasons"], decision.subject) == codes:
            return False
        self._execute(
            "INSERT INTO decisions (at, verb, subject, reasons, details) VALUES (?, ?, ?, ?, ?)",
            (now, decision.verb, decision.subject, reasons, json.dumps(dict(decision.details))),
        )
        return True

    def _codes(self, reasons: str, subject: str) -> list[str]:
        what = f"a decision about {subject}"
        try:
            return [code for code, _text in self._load(reasons, what)]
        except (TypeError, ValueError) as e:
            raise self.unreadable(what) from e

    def _decision(self, row: sqlite3.Row) -> dict[str, Any]:
        what = f"decision {row['id']}"
        reasons, details = self._load(row["reasons"], what), self._load(row["details"], what)
        if not (isinstance(details, dict) and isinstance(reasons, list) and all(map(_is_reason, reasons))):
            raise self.unreadable(what)
        return {
            "at": row["at"], "verb": row["verb"], "subject": row["subject"], "reasons": reasons, "details": details
        }  # fmt: skip

    def decisions(self, subject: str, limit: int = 50) -> list[dict[str, Any]]:
        """The latest decisions about a subject and what is below it ("workflow 3" has "workflow 3/align"), in order."""
        rows = self._rows(
            "SELECT * FROM (SELECT * FROM decisions WHERE subject=? OR substr(subject, 1, ?)=? "
            "ORDER BY id DESC LIMIT ?) ORDER BY id",
            subject,
            len(subject) + 1,
            subject + "/",
            limit,
        )
        return [self._decision(r) for r in rows]

    def last_decision(self) -> int:
        """The number of the latest decision; 0 when there is none."""
        return int(self._rows("SELECT max(id) AS id FROM decisions")[0]["id"] or 0)

    def decisions_since(self, number: int) -> list[dict[str, Any]]:
        """The decisions after that number, in order."""
        return [self._decision(r) for r in self._rows("SELECT * FROM decisions WHERE id>? ORDER BY id", number)]

    def latest_decisions(self, after: int, limit: int) -> list[dict[str, Any]]:
        """The latest decisions of all after that number, in order, each with its number as `id`."""
        rows = self._rows("SELECT * FROM decisions WHERE id>? ORDER BY id DESC LIMIT ?", after, limit)
        return [{"id": r["id"], **self._decision(r)} for r in reversed(rows)]

    # -- workflows ---------------------------------------------------------------------------------------------------

    def add_run(self, uid: int, state: Mapping[str, Any], now: float, submitter: str = "agent") -> int:
        """A new run of a workflow; its number. `submitter`: who submits its jobs (`workflow.state.Submitter`)."""
        cursor = self._execute(
            "INSERT INTO runs (uid, created, state, submitter) VALUES (?, ?, ?, ?)",
            (uid, now, json.dumps(dict(state)), submitter),
        )
        return int(cursor.lastrowid or 0)

    def save_run(self, run: int, state: Mapping[str, Any], finished: float | None = None) -> None:
        """Replace a run's state."""
        self._execute("UPDATE runs SET state=?, finished=? WHERE id=?", (json.dumps(dict(state)), finished, run))

    def runs(
        self,
        *,
        live_only: bool = False,
        limit: int = -1,
        submitter: str | None = None,
        uid: int | None = None,
        most_text: int | None = None,
    ) -> list[tuple[int, int, dict[str, Any]]]:
        """(number, uid, state) of the latest runs (all, unless limited, or of one submitter or user), newest last.

        `most_text`: no more of them than have so many characters together, but one at least."""
        found = self.run_texts(live_only=live_only, limit=limit, submitter=submitter, uid=uid, most_text=most_text)
        return [(number, owner, self._load(text, f"workflow {number}")) for number, owner, text in found]

    def run_texts(
        self,
        *,
        live_only: bool = False,
        limit: int = -1,
        submitter: str | None = None,
        uid: int | None = None,
        most_text: int | None = None,
    ) -> list[tuple[int, int, str]]:
        """The same with the states as the JSON that they are stored as, which takes long to read where it is long."""
        cursor = self._execute(
            "SELECT id, uid, state FROM runs WHERE (? IS NULL OR submitter=?) AND (? IS NULL OR uid=?) "
            "AND (NOT ? OR finished IS NULL) ORDER BY id DESC LIMIT ?",
            (submitter, submitter, uid, uid, live_only, limit),
        )
        found: list[sqlite3.Row] = []
        text = 0
        try:
            for row in cursor:
                text += len(row["state"])
                if found and most_text is not None and text > most_text:
                    break
                found.append(row)
        except SAID as e:
            self.errors += 1
            raise failed(self.path, f"the state file {self.path}", e) from e
        finally:
            cursor.close()  # as long as it is open nobody may be able to write
        return [(row["id"], row["uid"], row["state"]) for row in reversed(found)]

    def runs_in(self, since: float) -> Iterator[dict[str, Any]]:
        """The states of the runs that go on or have ended since then, oldest first, one after the other.

        They are read some at a time: without a write-ahead log nobody can write while somebody reads."""
        sql = "SELECT id, state FROM runs WHERE id BETWEEN ? AND ? AND (finished IS NULL OR finished > ?) ORDER BY id"
        first, last = self._rows("SELECT min(id), max(id) FROM runs")[0]
        for number in range(first or 0, (last or 0) + 1, _READ_AT_ONCE):
            for row in self._rows(sql, number, number + _READ_AT_ONCE - 1, since):
                yield self._load(row["state"], f"workflow {row['id']}")

    def owner(self, run: int) -> int | None:
        """Whose a run is; None: there is none of this number."""
        rows = self._rows("SELECT uid FROM runs WHERE id=?", run)
        return int(rows[0]["uid"]) if rows else None

    # -- what was asked for while no agent ran -----------------------------------------------------------------------

    def post(self, uid: int, op: str, payload: Mapping[str, Any], now: float) -> int:
        """Leave a request for the agent or the next `penstock tick`; its number."""
        cursor = self._execute(
            "INSERT INTO inbox (at, uid, op, payload) VALUES (?, ?, ?, ?)", (now, uid, op, json.dumps(dict(payload)))
        )
        return int(cursor.lastrowid or 0)

    def inbox(self) -> list[tuple[int, float, int, str, dict[str, Any]]]:
        """(number, when, uid, operation, arguments) of what was left, oldest first."""
        rows = self._rows("SELECT * FROM inbox ORDER BY id")
        return [
            (r["id"], r["at"], r["uid"], r["op"], self._load(r["payload"], f"request {r['id']} of the inbox"))
            for r in rows
        ]

    @contextmanager
    def taking(self, number: int) -> Iterator[None]:
        """This task carries out a request that was left: what it first makes durable `together` takes it out of the
        inbox, so that a kill finds both or neither; else that is done at the end. It stays where it must wait
        (`NotNow`, `StoreError`) and nothing was made durable."""
        taking = _Taking(number)
        token = _TAKING.set(taking)
        try:
            yield
        except (NotNow, StoreError):
            raise
        except Exception:
            self._forget(taking)
            raise
        else:
            self._forget(taking)
        finally:
            _TAKING.reset(token)

    def _forget(self, taking: _Taking) -> None:
        if taking.number is not None:  # its number may be another request's by now
            self._execute("DELETE FROM inbox WHERE id=?", (taking.number,))

    # -- messages to people ------------------------------------------------------------------------------------------

    def add_message(self, key: str, channel: str, event: Mapping[str, Any], now: float) -> int | None:
        """A message that is to be sent; its number, or None if there was one of this key and channel before."""
        cursor = self._execute(
            "INSERT OR IGNORE INTO messages (key, channel, at, event, due) VALUES (?, ?, ?, ?, ?)",
            (key, channel, now, json.dumps(dict(event)), now),
        )
        return int(cursor.lastrowid or 0) if cursor.rowcount else None

    def settle_message(self, number: int, state: str, tries: int, due: float, outcome: str, now: float) -> bool:
        """Write down how far a message is (see `messages.outbox.State`), and why; false if there is none such."""
        sql = "UPDATE messages SET state=?, tries=?, due=?, outcome=?, closed=? WHERE id=?"
        return self._execute(sql, (state, tries, due, outcome, now, number)).rowcount == 1

    def _event(self, row: sqlite3.Row) -> dict[str, Any]:
        what = f"message {row['id']}"
        event = self._load(row["event"], what)
        if not isinstance(event, dict) or not {"user", "title"} <= set(event):
            raise self.unreadable(what)
        return event

    def messages_since(self, since: float) -> list[tuple[int, str, str, float, int, float, dict[str, Any]]]:
        """(number, channel, state, when it changed, tries, due, event) of those that are not over or have ended since
        then, oldest first."""
        rows = self._rows("SELECT * FROM messages WHERE state IN ('open', 'sending') OR closed > ? ORDER BY id", since)
        keys = ("id", "channel", "state", "closed", "tries", "due")
        return [(*(r[key] for key in keys), self._event(r)) for r in rows]

    def messages(self, limit: int = 50) -> list[dict[str, Any]]:
        """The latest messages, oldest first."""
        rows = self._rows("SELECT * FROM (SELECT * FROM messages ORDER BY id DESC LIMIT ?) ORDER BY id", limit)
        return [{**dict(r), "event": self._event(r)} for r in rows]

    # -- malleable jobs ----------------------------------------------------------------------------------------------

    def save_malleable(self, job: int, state: Mapping[str, Any], ended: float | None = None) -> None:
        """Replace a malleable job's state."""
        self._execute(
            "INSERT INTO malleable (job, ended, state) VALUES (?, ?, ?) "
            "ON CONFLICT (job) DO UPDATE SET ended=excluded.ended, state=excluded.state",
            (job, ended, json.dumps(dict(state))),
        )

    def malleable_owner(self, job: int) -> int | None:
        """Whose a malleable job is, or was; None: there was none of this number."""
        rows = self._rows("SELECT state FROM malleable WHERE job=?", job)
        if not rows:
            return None
        try:
            return int(self._load(rows[0]["state"], f"malleable job {job}")["uid"])
        except (KeyError, TypeError, ValueError) as e:
            raise self.unreadable(f"malleable job {job}") from e

    def malleable(self) -> list[dict[str, Any]]:
        """States of the malleable jobs that have not ended."""
        rows = self._rows("SELECT job, state FROM malleable WHERE ended IS NULL")
        return [self._load(r["state"], f"malleable job {r['job']}") for r in rows]

    def ended_malleable(self, since: float, limit: int) -> list[tuple[dict[str, Any], float]]:
        """(state, when it ended) of the latest malleable jobs that ended since that instant, oldest first."""
        sql = "SELECT job, state, ended FROM malleable WHERE ended>=? ORDER BY ended DESC LIMIT ?"
        rows = reversed(self._rows(sql, since, limit))
        return [(self._load(r["state"], f"malleable job {r['job']}"), float(r["ended"])) for r in rows]

    # -- moldable jobs -----------------------------------------------------------------------------------------------

    def save_moldable(self, job: int, uid: int, state: Mapping[str, Any], ended: float | None = None) -> None:
        """Replace a moldable job's state. A number that Slurm has given again is another job's from now on."""
        self._execute(
            "INSERT INTO moldable (job, uid, ended, state) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (job) DO UPDATE SET uid=excluded.uid, ended=excluded.ended, state=excluded.state",
            (job, uid, ended, json.dumps(dict(state))),
        )

    def moldable_owner(self, job: int) -> int | None:
        """Whose a moldable job is, or was; None: there was none of this number."""
        rows = self._rows("SELECT uid FROM moldable WHERE job=?", job)
        return int(rows[0]["uid"]) if rows else None

    def moldable(self) -> list[dict[str, Any]]:
        """States of the moldable jobs that have not ended."""
        rows = self._rows("SELECT job, state FROM moldable WHERE ended IS NULL")
        return [self._load(r["state"], f"moldable job {r['job']}") for r in rows]

    # -- resizes -----------------------------------------------------------------------------------------------------

    def add_resize(
        self,
        job: int,
        epoch: int,
        kind: str,
        sizes: tuple[int, int],
        outcome: str,
        marks: Mapping[str, float],
        now: float,
        *,
        uid: int | None = None,
        nodes: int | None = None,
    ) -> None:
        """Keep a finished resize with the instants of its parts; `nodes` were moved."""
        self._execute(
            "INSERT INTO resizes (job, epoch, kind, old_size, new_size, outcome, finished, marks, uid, nodes) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (job, epoch, kind, *sizes, outcome, now, json.dumps(dict(marks)), uid, nodes),
        )

    def moves(self, since: float) -> list[tuple[float, int, int]]:
        """(when, user, nodes) of the resizes that have moved nodes since then, oldest first."""
        rows = self._rows(
            "SELECT finished, uid, nodes FROM resizes WHERE finished > ? AND nodes > 0 ORDER BY id", since
        )
        return [(r["finished"], r["uid"], r["nodes"]) for r in rows]

    def resizes(self, job: int | None = None, limit: int = 1000) -> list[dict[str, Any]]:
        """Finished resizes, oldest first."""
        rows = self._rows(
            "SELECT * FROM (SELECT * FROM resizes WHERE ? IS NULL OR job=? ORDER BY id DESC LIMIT ?) ORDER BY id",
            job,
            job,
            limit,
        )
        return [{**dict(r), "marks": self._load(r["marks"], f"resize {r['id']}")} for r in rows]

    def resizes_in(self, since: float, until: float) -> list[dict[str, Any]]:
        """Resizes that were over within that time (after `since`, up to `until`), oldest first, without instants."""
        columns = "job, kind, outcome, uid, nodes"
        where = "finished > ? AND finished <= ? ORDER BY id"
        return [dict(r) for r in self._rows(f"SELECT {columns} FROM resizes WHERE {where}", since, until)]  # noqa: S608

    # -- what was learned --------------------------------------------------------------------------------------------

    def learned(self, key: str) -> dict[str, Any] | None:
        """A predictor's state. ValueError when it is damaged."""
        rows = self._rows("SELECT state FROM learned WHERE key=?", key)
        return json.loads(rows[0]["state"]) if rows else None

    def save_learned(self, key: str, state: Mapping[str, Any], now: float) -> None:
        """Replace a predictor's state."""
        self._execute(
            "INSERT INTO learned (key, updated, state) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET updated=excluded.updated, state=excluded.state",
            (key, now, json.dumps(dict(state), separators=(",", ":"))),
        )

    def learned_under(self, prefix: str) -> dict[str, dict[str, Any] | None]:
        """What was learned under keys that begin so, by key; None where it cannot be read."""
        found: dict[str, dict[str, Any] | None] = {}
        for row in self._rows("SELECT key, state FROM learned WHERE substr(key, 1, ?)=?", len(prefix), prefix):
            try:
                state = json.loads(row["state"])
            except (ValueError, TypeError, RecursionError):
                state = None
            found[str(row["key"])] = state if isinstance(state, dict) else None
        return found

    def forget_learned(self, key: str) -> None:
        """Forget what was learned under that key."""
        self._execute("DELETE FROM learned WHERE key=?", (key,))

    def set_aside(self, key: str, now: float) -> None:
        """Keep a predictor's state under another key, where nobody looks for it but a person."""
        if self._looks_only:
            return
        self._execute("UPDATE OR REPLACE learned SET key=? WHERE key=?", (f"aside {now:.0f} {key}", key))

    def add_wait(
        self,
        key: str,
        estimate: float | None,
        wait: float,
        censored: int,
        now: float,
        bound: float | None = None,
    ) -> None:
        """Keep an observed wait (seconds); `censored` is 0: exactly so long, 1: at most, 2: more than that. `estimate`
        and `bound`, which 95 of 100 waits should not exceed, are what was predicted."""
        self._execute(
            "INSERT INTO waits (at, key, estimate, wait, censored, bound) VALUES (?, ?, ?, ?, ?, ?)",
            (now, key, estimate, wait, censored, bound),
        )
        if censored == 0 and estimate is not None:
            self.wait_errors["longer" if estimate > wait else "shorter"].add(abs(estimate - wait))
        if censored == 0 and bound is not None:
            self.bounds_held["yes" if wait <= bound else "no"] += 1

    def wait_keys(self) -> list[str]:
        """The keys that waits were observed of."""
        return [str(r["key"]) for r in self._rows("SELECT DISTINCT key FROM waits")]

    def waits(self, key: str | None = None, limit: int = 1000) -> Sequence[dict[str, Any]]:
        """Observed waits, oldest first."""
        rows = self._rows(
            "SELECT * FROM (SELECT * FROM waits WHERE ? IS NULL OR key=? ORDER BY id DESC LIMIT ?) ORDER BY id",
            key,
            key,
            limit,
        )
        return [dict(r) for r in rows]

    # -- what is old -------------------------------------------------------------------------------------------------

    def prune(self, before: float) -> dict[str, int]:
        """Forget what was over before that instant; how many rows of each table went, at most `AT_ONCE` each. Open
        intents, live runs and jobs, requests that wait, and facts stay whatever their age."""
        gone = {}
        with self.together():
            for table, (over, column) in OVER.items():
                found = f"SELECT rowid FROM {table} WHERE {over} AND {column} < ? LIMIT {AT_ONCE}"  # noqa: S608 (its own)
                deleted = self._execute(f"DELETE FROM {table} WHERE rowid IN ({found})", (before,))  # noqa: S608
                if deleted.rowcount:
                    gone[table] = deleted.rowcount
        return gone

    # -- small facts -------------------------------------------------------------------------------------------------

    def fact(self, key: str) -> str | None:
        """A small remembered value, such as the port last listened on."""
        rows = self._rows("SELECT value FROM facts WHERE key=?", key)
        return str(rows[0]["value"]) if rows else None

    def facts_from(self, first: str, last: str) -> dict[str, str]:
        """The small values whose keys lie between these two, both included, in their order."""
        rows = self._rows("SELECT key, value FROM facts WHERE key BETWEEN ? AND ? ORDER BY key", first, last)
        return {str(row["key"]): str(row["value"]) for row in rows}

    def forget_facts(self, first: str, last: str) -> None:
        """Forget these."""
        self._execute("DELETE FROM facts WHERE key BETWEEN ? AND ?", (first, last))

    def instant(self, key: str) -> float:
        """The same where it is a time; 0 when it is not known."""
        value = self.fact(key)
        try:
            return float(value or 0.0)
        except ValueError as e:
            raise self.unreadable(f"the fact {key}") from e

    def remember(self, key: str, value: str) -> None:
        """Remember a small value."""
        self._execute(
            "INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value=excluded.value",
            (key, value),
        )


def _is_reason(value: object) -> bool:
    """A code and a text."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
