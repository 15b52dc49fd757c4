"""Requests that were left while no agent ran."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from penstock.errors import NotNow, StoreError
from penstock.state.connection import StateTable

__all__ = ["InboxTable"]


@dataclass(slots=True)
class _Taking:
    """A request that is being carried out; no number: it is out of the inbox."""

    number: int | None


# Other tasks write meanwhile, which says nothing of this request.
_TAKING: ContextVar[_Taking | None] = ContextVar("taking", default=None)


class InboxTable(StateTable):
    """Oldest first, until each is carried out."""

    def post(self, uid: int, op: str, payload: Mapping[str, Any], now: float) -> int:
        """Leave a request for the agent or the next `penstock tick`; its number."""
        cursor = self._file.execute(
            "INSERT INTO inbox (at, uid, op, payload) VALUES (?, ?, ?, ?)", (now, uid, op, json.dumps(dict(payload)))
        )
        return int(cursor.lastrowid or 0)

    def waiting(self) -> list[tuple[int, float, int, str, dict[str, Any]]]:
        """(number, when, uid, operation, arguments) of what was left, oldest first."""
        rows = self._file.rows("SELECT * FROM inbox ORDER BY id")
        return [
            (r["id"], r["at"], r["uid"], r["op"], self._file.load(r["payload"], f"request {r['id']} of the inbox"))
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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything written inside becomes durable together or not at all; with it goes the request that is `taking`
        now."""
        taking = _TAKING.get()
        with self._file.transaction():
            yield
            if taking is not None and taking.number is not None:
                self._file.execute("DELETE FROM inbox WHERE id=?", (taking.number,))
        if taking is not None:
            taking.number = None

    def _forget(self, taking: _Taking) -> None:
        if taking.number is not None:  # its number may be another request's by now
            self._file.execute("DELETE FROM inbox WHERE id=?", (taking.number,))
