"""Messages to people, and how far each is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from penstock.state.connection import StateTable

__all__ = ["MessageTable"]


class MessageTable(StateTable):
    """By key and channel."""

    def add(self, key: str, channel: str, event: Mapping[str, Any], now: float) -> int | None:
        """A message that is to be sent; its number, or None if there was one of this key and channel before."""
        cursor = self._file.execute(
            "INSERT OR IGNORE INTO messages (key, channel, at, event, due) VALUES (?, ?, ?, ?, ?)",
            (key, channel, now, json.dumps(dict(event)), now),
        )
        return int(cursor.lastrowid or 0) if cursor.rowcount else None

    def settle(self, number: int, state: str, tries: int, due: float, outcome: str, now: float) -> bool:
        """Write down how far a message is (`values.messages.MessageState`), and why; false if there is none such."""
        sql = "UPDATE messages SET state=?, tries=?, due=?, outcome=?, closed=? WHERE id=?"
        return self._file.execute(sql, (state, tries, due, outcome, now, number)).rowcount == 1

    def _event(self, row: sqlite3.Row) -> dict[str, Any]:
        what = f"message {row['id']}"
        event = self._file.load(row["event"], what)
        if not isinstance(event, dict) or not {"user", "title"} <= set(event):
            raise self._file.unreadable(what)
        return event

    def since(self, since: float) -> list[tuple[int, str, str, float, int, float, dict[str, Any]]]:
        """(number, channel, state, when it changed, tries, due, event) of those that are not over or have ended since
        then, oldest first."""
        rows = self._file.rows(
            "SELECT * FROM messages WHERE state IN ('open', 'sending') OR closed > ? ORDER BY id", since
        )
        keys = ("id", "channel", "state", "closed", "tries", "due")
        return [(*(r[key] for key in keys), self._event(r)) for r in rows]

    def latest(self, limit: int = 50) -> list[dict[str, Any]]:
        """The latest messages, oldest first."""
        rows = self._file.rows("SELECT * FROM (SELECT * FROM messages ORDER BY id DESC LIMIT ?) ORDER BY id", limit)
        return [{**dict(r), "event": self._event(r)} for r in rows]
