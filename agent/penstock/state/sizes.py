"""Jobs whose size changes: those that are malleable, their resizes, and those that are moldable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.state.connection import StateTable
from penstock.state.schema import UNREADABLE

__all__ = ["FinishedResize", "MalleableTable", "MoldableTable", "ResizeTable"]


@dataclass(frozen=True, slots=True)
class FinishedResize:
    """From one of `sizes` to the other, with the instants of its parts as `marks`; `nodes` were moved."""

    job: int
    epoch: int
    kind: str
    sizes: tuple[int, int]
    outcome: str
    marks: Mapping[str, float]
    uid: int | None = None
    nodes: int | None = None


class MalleableTable(StateTable):
    """The state of each malleable job, by its number."""

    def save(self, job: int, state: Mapping[str, Any], ended: float | None = None) -> None:
        """Replace a malleable job's state."""
        self._file.execute(
            "INSERT INTO malleable (job, ended, state) VALUES (?, ?, ?) "
            "ON CONFLICT (job) DO UPDATE SET ended=excluded.ended, state=excluded.state",
            (job, ended, json.dumps(dict(state))),
        )

    def owner(self, job: int) -> int | None:
        """Whose a malleable job is, or was; None: there was none of this number."""
        rows = self._file.rows("SELECT state FROM malleable WHERE job=?", job)
        if not rows:
            return None
        try:
            return int(self._file.load(rows[0]["state"], f"malleable job {job}")["uid"])
        except UNREADABLE as e:
            raise self._file.unreadable(f"malleable job {job}") from e

    def live(self) -> list[dict[str, Any]]:
        """States of the malleable jobs that have not ended."""
        rows = self._file.rows("SELECT job, state FROM malleable WHERE ended IS NULL")
        return [self._file.load(r["state"], f"malleable job {r['job']}") for r in rows]

    def ended(self, since: float, limit: int) -> list[tuple[dict[str, Any], float]]:
        """(state, when it ended) of the latest malleable jobs that ended since that instant, oldest first."""
        sql = "SELECT job, state, ended FROM malleable WHERE ended>=? ORDER BY ended DESC LIMIT ?"
        rows = reversed(self._file.rows(sql, since, limit))
        return [(self._file.load(r["state"], f"malleable job {r['job']}"), float(r["ended"])) for r in rows]


class MoldableTable(StateTable):
    """The state of each moldable job, by its number."""

    def save(self, job: int, uid: int, state: Mapping[str, Any], ended: float | None = None) -> None:
        """Replace a moldable job's state. A number that Slurm has given again is another job's from now on."""
        self._file.execute(
            "INSERT INTO moldable (job, uid, ended, state) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (job) DO UPDATE SET uid=excluded.uid, ended=excluded.ended, state=excluded.state",
            (job, uid, ended, json.dumps(dict(state))),
        )

    def owner(self, job: int) -> int | None:
        """Whose a moldable job is, or was; None: there was none of this number."""
        rows = self._file.rows("SELECT uid FROM moldable WHERE job=?", job)
        return int(rows[0]["uid"]) if rows else None

    def live(self) -> list[dict[str, Any]]:
        """States of the moldable jobs that have not ended."""
        rows = self._file.rows("SELECT job, state FROM moldable WHERE ended IS NULL")
        return [self._file.load(r["state"], f"moldable job {r['job']}") for r in rows]


class ResizeTable(StateTable):
    """Resizes that are over."""

    def add(self, resize: FinishedResize, now: float) -> None:
        """Keep one."""
        self._file.execute(
            "INSERT INTO resizes (job, epoch, kind, old_size, new_size, outcome, finished, marks, uid, nodes) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                resize.job,
                resize.epoch,
                resize.kind,
                *resize.sizes,
                resize.outcome,
                now,
                json.dumps(dict(resize.marks)),
                resize.uid,
                resize.nodes,
            ),
        )

    def moves(self, since: float) -> list[tuple[float, int, int]]:
        """(when, user, nodes) of the resizes that have moved nodes since then, oldest first."""
        rows = self._file.rows(
            "SELECT finished, uid, nodes FROM resizes WHERE finished > ? AND nodes > 0 ORDER BY id", since
        )
        return [(r["finished"], r["uid"], r["nodes"]) for r in rows]

    def latest(self, job: int | None = None, limit: int = 1000) -> list[dict[str, Any]]:
        """Finished resizes, oldest first."""
        rows = self._file.rows(
            "SELECT * FROM (SELECT * FROM resizes WHERE ? IS NULL OR job=? ORDER BY id DESC LIMIT ?) ORDER BY id",
            job,
            job,
            limit,
        )
        return [{**dict(r), "marks": self._file.load(r["marks"], f"resize {r['id']}")} for r in rows]

    def within(self, since: float, until: float) -> list[dict[str, Any]]:
        """Resizes that were over within that time (after `since`, up to `until`), oldest first, without instants."""
        columns = "job, kind, outcome, uid, nodes"
        where = "finished > ? AND finished <= ? ORDER BY id"
        return [dict(r) for r in self._file.rows(f"SELECT {columns} FROM resizes WHERE {where}", since, until)]  # noqa: S608
