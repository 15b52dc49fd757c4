"""What was learned: the states of predictors, and the waits that were observed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.state.connection import StateConnection, StateTable
from penstock.values.tally import Tally

__all__ = ["LearnedTables"]

_ERRORS: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0)


class LearnedTables(StateTable):
    """By the keys of the predictors and of the waits.

    For the metrics, since the file was opened: `wait_errors` are the differences (s) between predicted waits and real
    ones, by which was "longer" or "shorter", and `bounds_held` whether the bound that was predicted held ("yes", "no").
    """

    def __init__(self, file: StateConnection) -> None:
        super().__init__(file)
        self.wait_errors = {"longer": Tally(_ERRORS), "shorter": Tally(_ERRORS)}
        self.bounds_held: Counter[str] = Counter()

    def learned(self, key: str) -> dict[str, Any] | None:
        """A predictor's state. ValueError when it is damaged."""
        rows = self._file.rows("SELECT state FROM learned WHERE key=?", key)
        return json.loads(rows[0]["state"]) if rows else None

    def save_learned(self, key: str, state: Mapping[str, Any], now: float) -> None:
        """Replace a predictor's state."""
        self._file.execute(
            "INSERT INTO learned (key, updated, state) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET updated=excluded.updated, state=excluded.state",
            (key, now, json.dumps(dict(state), separators=(",", ":"))),
        )

    def learned_under(self, prefix: str) -> dict[str, dict[str, Any] | None]:
        """What was learned under keys that begin so, by key; None where it cannot be read."""
        found: dict[str, dict[str, Any] | None] = {}
        for row in self._file.rows("SELECT key, state FROM learned WHERE substr(key, 1, ?)=?", len(prefix), prefix):
            try:
                state = json.loads(row["state"])
            except (ValueError, TypeError, RecursionError):
                state = None
            found[str(row["key"])] = state if isinstance(state, dict) else None
        return found

    def forget_learned(self, key: str) -> None:
        """Forget what was learned under that key."""
        self._file.execute("DELETE FROM learned WHERE key=?", (key,))

    def set_aside(self, key: str, now: float) -> None:
        """Keep a predictor's state under another key, where nobody looks for it but a person."""
        if self._file.looks_only:
            return
        self._file.execute("UPDATE OR REPLACE learned SET key=? WHERE key=?", (f"aside {now:.0f} {key}", key))

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
        self._file.execute(
            "INSERT INTO waits (at, key, estimate, wait, censored, bound) VALUES (?, ?, ?, ?, ?, ?)",
            (now, key, estimate, wait, censored, bound),
        )
        if censored == 0 and estimate is not None:
            self.wait_errors["longer" if estimate > wait else "shorter"].add(abs(estimate - wait))
        if censored == 0 and bound is not None:
            self.bounds_held["yes" if wait <= bound else "no"] += 1

    def wait_keys(self) -> list[str]:
        """The keys that waits were observed of."""
        return [str(r["key"]) for r in self._file.rows("SELECT DISTINCT key FROM waits")]

    def waits(self, key: str | None = None, limit: int = 1000) -> Sequence[dict[str, Any]]:
        """Observed waits, oldest first."""
        rows = self._file.rows(
            "SELECT * FROM (SELECT * FROM waits WHERE ? IS NULL OR key=? ORDER BY id DESC LIMIT ?) ORDER BY id",
            key,
            key,
            limit,
        )
        return [dict(r) for r in rows]
