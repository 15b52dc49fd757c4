"""What several said of the same waits, and how long those were: kept so that they can be compared on the same jobs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.waits.learners.states import expect, reading

__all__ = ["Judged"]

_VERSION = 1


class Judged:
    """The newest `keep` exact waits (s) and what each of `names` said of them (s), as far as it said anything."""

    def __init__(self, names: Sequence[str], keep: int) -> None:
        self.names = tuple(names)
        self._rows: deque[tuple[float | None, ...]] = deque(maxlen=keep)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, wait: float, said: Mapping[str, float | None]) -> None:
        """A job has started after `wait` seconds. Other names are left out."""
        self._rows.append((wait, *(said.get(name) for name in self.names)))

    def rows(self) -> list[dict[str, float | None]]:
        """Oldest first: `wait`, and each name with what it said."""
        return [dict(zip(("wait", *self.names), row, strict=True)) for row in tuple(self._rows)]

    def to_state(self) -> dict[str, Any]:
        """JSON-able; to tenths of a second."""
        rows = [[None if x is None else round(x, 1) for x in row] for row in self._rows]
        return {"version": _VERSION, "names": list(self.names), "rows": rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged, newer, or of other names."""
        with reading("judged waits"):
            expect(state, "version", _VERSION)
            expect(state, "names", list(self.names))
            rows = [tuple(None if x is None else float(x) for x in row) for row in state["rows"]]
            for row in rows:
                if len(row) != 1 + len(self.names) or row[0] is None:
                    raise ValueError("not a wait and what was said of it")
                if row[0] < 0 or not all(x is None or math.isfinite(x) for x in row):
                    raise ValueError("not seconds")
        self._rows.clear()
        self._rows.extend(rows)
