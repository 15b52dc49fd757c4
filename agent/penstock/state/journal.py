"""What the agent is about to do, and what it has decided: the intents, and the decisions with their reasons."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.api import Decision
from penstock.state.connection import StateTable

__all__ = ["DecisionTable", "Intent", "IntentTable"]


@dataclass(frozen=True, slots=True)
class Intent:
    """A journaled act: `state` is open, done, failed, or unknown (sent, answer lost)."""

    id: int
    verb: str
    subject: str
    payload: Mapping[str, Any]
    state: str
    opened: float


class IntentTable(StateTable):
    """Written before every act that cannot be undone, so that after a kill the agent knows what it may have done."""

    def intend(self, verb: str, subject: str, payload: Mapping[str, Any], now: float) -> int:
        """Write down what is about to be done; its number."""
        cursor = self._file.execute(
            "INSERT INTO intents (verb, subject, payload, opened) VALUES (?, ?, ?, ?)",
            (verb, subject, json.dumps(dict(payload)), now),
        )
        return int(cursor.lastrowid or 0)

    def settle(self, intent: int, state: str, outcome: str, now: float) -> None:
        """Write down how it went: done, failed or unknown."""
        self._file.execute("UPDATE intents SET state=?, outcome=?, closed=? WHERE id=?", (state, outcome, now, intent))

    def unsettled(self) -> list[Intent]:
        """What may have been done when the agent died, oldest first."""
        rows = self._file.rows("SELECT * FROM intents WHERE state IN ('open', 'unknown') ORDER BY id")
        return [
            Intent(
                r["id"],
                r["verb"],
                r["subject"],
                self._file.load(r["payload"], f"intent {r['id']}"),
                r["state"],
                r["opened"],
            )
            for r in rows
        ]


class DecisionTable(StateTable):
    """Decisions by their subjects, each with its reasons."""

    def record(self, decision: Decision, now: float) -> bool:
        """Keep a decision unless the last one about this subject said the same; whether it was new."""
        reasons = json.dumps([[r.code, r.text] for r in decision.reasons])
        codes = [r.code for r in decision.reasons]
        last = self._file.rows(
            "SELECT verb, reasons FROM decisions WHERE subject=? ORDER BY id DESC LIMIT 1", decision.subject
        )
        if last and last[0]["verb"] == decision.verb and self._codes(last[0]["reasons"], decision.subject) == codes:
            return False
        self._file.execute(
            "INSERT INTO decisions (at, verb, subject, reasons, details) VALUES (?, ?, ?, ?, ?)",
            (now, decision.verb, decision.subject, reasons, json.dumps(dict(decision.details))),
        )
        return True

    def _codes(self, reasons: str, subject: str) -> list[str]:
        what = f"a decision about {subject}"
        try:
            return [code for code, _text in self._file.load(reasons, what)]
        except (TypeError, ValueError) as e:
            raise self._file.unreadable(what) from e

    def _decision(self, row: sqlite3.Row) -> dict[str, Any]:
        what = f"decision {row['id']}"
        reasons, details = self._file.load(row["reasons"], what), self._file.load(row["details"], what)
        if not (isinstance(details, dict) and isinstance(reasons, list) and all(map(_is_reason, reasons))):
            raise self._file.unreadable(what)
        return {
            "at": row["at"], "verb": row["verb"], "subject": row["subject"], "reasons": reasons, "details": details
        }  # fmt: skip

    def of(self, subject: str, limit: int = 50) -> list[dict[str, Any]]:
        """The latest decisions about a subject and what is below it ("workflow 3" has "workflow 3/align"), in order."""
        rows = self._file.rows(
            "SELECT * FROM (SELECT * FROM decisions WHERE subject=? OR substr(subject, 1, ?)=? "
            "ORDER BY id DESC LIMIT ?) ORDER BY id",
            subject,
            len(subject) + 1,
            subject + "/",
            limit,
        )
        return [self._decision(r) for r in rows]

    def last(self) -> int:
        """The number of the latest decision; 0 when there is none."""
        return int(self._file.rows("SELECT max(id) AS id FROM decisions")[0]["id"] or 0)

    def since(self, number: int) -> list[dict[str, Any]]:
        """The decisions after that number, in order."""
        return [self._decision(r) for r in self._file.rows("SELECT * FROM decisions WHERE id>? ORDER BY id", number)]

    def latest(self, after: int, limit: int) -> list[dict[str, Any]]:
        """The latest decisions of all after that number, in order, each with its number as `id`."""
        rows = self._file.rows("SELECT * FROM decisions WHERE id>? ORDER BY id DESC LIMIT ?", after, limit)
        return [{"id": r["id"], **self._decision(r)} for r in reversed(rows)]


def _is_reason(value: object) -> bool:
    """A code and a text."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
