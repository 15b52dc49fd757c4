"""Small facts, such as the port last listened on."""

from __future__ import annotations

from penstock.state.connection import StateTable

__all__ = ["FactTable"]


class FactTable(StateTable):
    """Texts by their keys."""

    def get(self, key: str) -> str | None:
        """A small remembered value, such as the port last listened on."""
        rows = self._file.rows("SELECT value FROM facts WHERE key=?", key)
        return str(rows[0]["value"]) if rows else None

    def between(self, first: str, last: str) -> dict[str, str]:
        """The small values whose keys lie between these two, both included, in their order."""
        rows = self._file.rows("SELECT key, value FROM facts WHERE key BETWEEN ? AND ? ORDER BY key", first, last)
        return {str(row["key"]): str(row["value"]) for row in rows}

    def forget(self, first: str, last: str) -> None:
        """Forget these."""
        self._file.execute("DELETE FROM facts WHERE key BETWEEN ? AND ?", (first, last))

    def instant(self, key: str) -> float:
        """The same where it is a time; 0 when it is not known."""
        value = self.get(key)
        try:
            return float(value or 0.0)
        except ValueError as e:
            raise self._file.unreadable(f"the fact {key}") from e

    def remember(self, key: str, value: str) -> None:
        """Remember a small value."""
        self._file.execute(
            "INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value=excluded.value",
            (key, value),
        )
