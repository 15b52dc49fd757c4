"""The runs of workflows, each with its state as a document."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.state.connection import StateTable
from penstock.state.reading import SAID

__all__ = ["RunTable"]

_READ_AT_ONCE: Final = 50  # runs


class RunTable(StateTable):
    """By their numbers."""

    def add(self, uid: int, state: Mapping[str, Any], now: float, submitter: str = "agent") -> int:
        """A new run of a workflow; its number. `submitter`: who submits its jobs (`workflow.phases.Submitter`)."""
        cursor = self._file.execute(
            "INSERT INTO runs (uid, created, state, submitter) VALUES (?, ?, ?, ?)",
            (uid, now, json.dumps(dict(state)), submitter),
        )
        return int(cursor.lastrowid or 0)

    def save(self, run: int, state: Mapping[str, Any], finished: float | None = None) -> None:
        """Replace a run's state."""
        self._file.execute("UPDATE runs SET state=?, finished=? WHERE id=?", (json.dumps(dict(state)), finished, run))

    def latest(
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
        found = self.texts(live_only=live_only, limit=limit, submitter=submitter, uid=uid, most_text=most_text)
        return [(number, owner, self._file.load(text, f"workflow {number}")) for number, owner, text in found]

    def texts(
        self,
        *,
        live_only: bool = False,
        limit: int = -1,
        submitter: str | None = None,
        uid: int | None = None,
        most_text: int | None = None,
    ) -> list[tuple[int, int, str]]:
        """The same with the states as the JSON that they are stored as, which takes long to read where it is long."""
        cursor = self._file.execute(
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
            raise self._file.refused(e) from e
        finally:
            cursor.close()  # as long as it is open nobody may be able to write
        return [(row["id"], row["uid"], row["state"]) for row in reversed(found)]

    def since(self, since: float) -> Iterator[dict[str, Any]]:
        """The states of the runs that go on or have ended since then, oldest first, one after the other.

        They are read some at a time: without a write-ahead log nobody can write while somebody reads."""
        sql = "SELECT id, state FROM runs WHERE id BETWEEN ? AND ? AND (finished IS NULL OR finished > ?) ORDER BY id"
        first, last = self._file.rows("SELECT min(id), max(id) FROM runs")[0]
        for number in range(first or 0, (last or 0) + 1, _READ_AT_ONCE):
            for row in self._file.rows(sql, number, number + _READ_AT_ONCE - 1, since):
                yield self._file.load(row["state"], f"workflow {row['id']}")

    def owner(self, run: int) -> int | None:
        """Whose a run is; None: there is none of this number."""
        rows = self._file.rows("SELECT uid FROM runs WHERE id=?", run)
        return int(rows[0]["uid"]) if rows else None
