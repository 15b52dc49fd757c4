"""The file of a history: one row a job, in order of submission, as columns of numbers.

A zip archive (readable by `python -m zipfile`, numpy and every other tool for these) with

    history.json        the form and its version, the number of jobs, where they are from, the machine, names by number
    columns/NAME.npy    one array of numpy a column (NPY 1.0), compressed; `COLUMNS` says which there are

Times are seconds since the epoch (`submit`) or after the submission (`eligible`, `start`, `end`); `start` is -1 for a
job that never started, `end` then when it left the queue. `limit` is seconds, 0 where there is none or it is not known;
`memory` MB in all. `user`, `account`, `partition` and `qos` are places in the tables of history.json; jobs of the same
name share the number `name`, `state` a place in its `states`, `flags` a sum of `rows.Flag`.
"""

from __future__ import annotations

import json
import struct
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.api import JobState
from penstock.errors import UserError
from penstock.host.files import replacing
from penstock_lab.history.joining import join_components, join_sizes
from penstock_lab.history.machine import busiest
from penstock_lab.history.numbering import numbered
from penstock_lab.history.pseudonyms import KINDS, Names
from penstock_lab.history.rows import NEVER, Flag, Reason, Report, Row

__all__ = ["COLUMNS", "FORM", "VERSION", "Spill"]

FORM: Final = "penstock history"
VERSION: Final = 1
COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "id": "<i8", "submit": "<i8", "eligible": "<i4", "start": "<i4", "end": "<i4", "limit": "<i4", "nodes": "<i4",
        "cpus": "<i4", "memory": "<i4", "user": "<i4", "account": "<i4", "partition": "<i4", "qos": "<i4",
        "name": "<i4", "state": "u1", "flags": "u1",
    }
)  # fmt: skip
_SPILLED: Final = dict(COLUMNS) | {"name": "<i8", "place": "<i8", "part_of": "<i8"}
_PACK: Final = struct.Struct("<qq" + "i" * 11 + "qBBqq")
_RECORD: Final = np.dtype(list(_SPILLED.items()))
_CHUNK: Final = 1 << 16
_FAR: Final = 2**31 - 1
_STATES: Final = {state: number for number, state in enumerate(JobState)}
_Join = Callable[[NDArray[Any], Report], NDArray[np.bool_]]


class Spill:
    """Takes jobs one by one and keeps them in files without names, which are gone with this process; `finish` writes
    the history. Memory does not grow with the jobs until then, and then by some columns at a time. A context manager.
    """

    def __init__(self, folder: Path, names: Names, report: Report) -> None:
        self._names = names
        self._report = report
        self._stack = ExitStack()
        self._rows = bytearray()
        self._ascending = True
        self._last = -1
        self._parts = self._sizes = False
        self.jobs = 0
        self._files: dict[str, IO[bytes]] = {}
        try:
            for name in _SPILLED:
                self._files[name] = self._stack.enter_context(_unnamed(folder))
        except OSError as e:
            self._stack.close()
            raise UserError(f"{folder}: no file can be written here: {e.strerror or e}") from None

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, row: Row, place: int) -> None:
        """One more job; its place is kept only to say where it came from."""
        submit = row.submit
        delays = (
            row.eligible - submit,
            row.start - submit if row.start != NEVER else NEVER,
            row.end - submit,
        )
        who = self._names.numbers((row.user, row.account, row.partition, row.qos))
        try:
            self._rows += _PACK.pack(
                row.id, submit, *delays, min(row.limit, _FAR), row.nodes, row.cpus, min(row.memory, _FAR), *who,
                self._names.digest(row.name), _STATES[row.state], row.flags, place, row.part_of,
            )  # fmt: skip
        except struct.error:
            self._report.leave(Reason.TOO_FAR, place)
            return
        self._ascending = self._ascending and row.id > self._last
        self._last = row.id
        self._parts = self._parts or row.part_of > 0
        self._sizes = self._sizes or row.state is JobState.RESIZING or bool(row.flags & Flag.EARLY)
        self.jobs += 1
        if len(self._rows) >= _CHUNK * _PACK.size:
            self._flush()

    def _flush(self) -> None:
        rows = np.frombuffer(self._rows, _RECORD)
        for name, file in self._files.items():
            file.write(np.ascontiguousarray(rows[name]).data)
        del rows
        self._rows = bytearray()

    def _column(self, name: str) -> NDArray[Any]:
        file = self._files[name]
        file.seek(0)
        return np.fromfile(file, _SPILLED[name])

    def finish(self, target: Path, about: Mapping[str, Any], mode: int | None) -> None:
        """Write the history under its name, whole or not at all.

        UserError when it cannot be written, and when there is no job.
        """
        self._flush()
        for file in self._files.values():
            file.flush()
        kept = self._distinct()
        if self._sizes:
            self._join_sizes(kept)
        if self._parts:
            self._join(kept, kept & (self._column("part_of") > 0), join_components)
        if not kept.any():
            raise UserError("no job is left to keep" + _why(self._report))
        submit = self._column("submit")
        order = np.argsort(submit, kind="stable")
        order = order if kept.all() else order[kept[order]]
        first, last = int(submit[order[0]]), int(submit[order[-1]])
        start = self._column("start")
        self._report.kept = len(order)
        self._report.never_ran = int((start[kept] == NEVER).sum())
        said = dict(about.get("machine", {}))
        machine = self._machine(submit - first, start, kept & (start != NEVER)) | said
        if "nodes" in said and "cpus" not in said:
            machine["cpus"] = machine["nodes"] * machine["cpus_per_node"]
        del submit, start, kept
        document = {
            "form": FORM,
            "version": VERSION,
            "jobs": len(order),
            "first_submit": first,
            "last_submit": last,
            **about,
            "machine": machine,
            "states": [state.value for state in JobState],
            "names": {kind: self._names.table(kind) for kind in KINDS},
            "report": self._report.told(),
        }
        try:
            with replacing(target, mode, durable=False) as file, zipfile.ZipFile(file, "w") as archive:
                self._write(archive, document, order)
        except OSError as e:
            raise UserError(f"{target} cannot be written: {e.strerror or e}") from None

    def _machine(self, at: NDArray[Any], start: NDArray[Any], ran: NDArray[np.bool_]) -> dict[str, int]:
        """The machine as far as the jobs that ran tell; `at` is when each was submitted, s after the first."""
        # In 32 bits, if they suffice: of ten million jobs each column is 40 MB less.
        end = self._column("end")
        kind = np.int32 if int(at.max()) + int(end.max()) <= _FAR else np.int64
        begun, ended = (at + start)[ran].astype(kind), (at + end)[ran].astype(kind)
        del end
        found = {name: busiest(begun, ended, self._column(name)[ran]) for name in ("cpus", "nodes")}
        del begun, ended
        return found | {"cpus_per_node": _cpus_per_node(self._column("cpus")[ran], self._column("nodes")[ran])}

    def _write(self, archive: zipfile.ZipFile, document: Mapping[str, Any], order: NDArray[np.int64]) -> None:
        with archive.open(_member("history.json"), "w") as out:
            out.write(json.dumps(document, indent=1).encode())
        for name, kind in COLUMNS.items():
            column = self._column(name)
            if name == "name" or (name == "id" and document["anonymous"]):
                column = numbered(column)
            with archive.open(_member(f"columns/{name}.npy"), "w", force_zip64=True) as out:
                shape = {"descr": kind, "fortran_order": False, "shape": (len(order),)}
                np.lib.format.write_array_header_1_0(out, shape)
                for at in range(0, len(order), _CHUNK):
                    out.write(column[order[at : at + _CHUNK]].astype(kind).tobytes())

    def _distinct(self) -> NDArray[np.bool_]:
        """Which records count: each run once."""
        number = self._column("id")
        kept = np.ones(len(number), bool)
        if self._ascending:  # no number came twice
            return kept
        # The sizes of a job that were over within a second differ in their ends alone.
        size = np.where(self._column("state") == _STATES[JobState.RESIZING], self._column("end"), NEVER)
        keys = _mixed(number, self._column("submit"), self._column("start"), size)
        by_key = np.argsort(keys, kind="stable")
        keys = keys[by_key]
        kept[by_key[1:][keys[1:] == keys[:-1]]] = False
        if not kept.all():
            first = int(self._column("place")[~kept].min())
            self._report.leave(Reason.TWICE, first, int((~kept).sum()))
        return kept

    def _join_sizes(self, kept: NDArray[np.bool_]) -> None:
        number = self._column("id")
        parts = (self._column("state") == _STATES[JobState.RESIZING]) | (self._column("flags") & Flag.EARLY > 0)
        self._join(kept, kept & np.isin(number, number[parts]), join_sizes)

    def _join(self, kept: NDArray[np.bool_], these: NDArray[np.bool_], join: _Join) -> None:
        """Have records joined, and note in `kept` which of them still count."""
        where = np.flatnonzero(these)
        records = np.empty(len(where), _RECORD)
        for name in _SPILLED:
            records[name] = self._column(name)[where]
        kept[where] = join(records, self._report)
        for name, file in self._files.items():
            column = self._column(name)
            column[where] = records[name]
            file.seek(0)
            file.write(column.data)
            file.flush()


def _unnamed(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


def _mixed(number: NDArray[Any], *parts: NDArray[Any]) -> NDArray[np.uint64]:
    """64 bits of each run, alike only for the same one (that two others agree has a chance of 1 in 10^5 of 10 million).

    The mixing is the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    mixed = number.astype(np.uint64)
    for part in parts:
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + part.astype(np.int64).astype(np.uint64)
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def _cpus_per_node(cpus: NDArray[np.int32], nodes: NDArray[np.int32]) -> int:
    """What the fullest node had, as far as jobs tell."""
    return int(-(-cpus // np.maximum(nodes, 1)).max()) if len(cpus) else 1


def _member(name: str) -> zipfile.ZipInfo:
    """Without a time in it, so that equal histories are equal files."""
    member = zipfile.ZipInfo(name)
    member.compress_type = zipfile.ZIP_DEFLATED
    member._compresslevel = 1  # type: ignore[attr-defined]  # open() takes it from here alone
    return member


def _why(report: Report) -> str:
    if not report.left:
        return ": there are no records"
    reason, left = max(report.left.items(), key=lambda item: item[1].count)
    return f": of {report.read} records {left.count} are left out as {reason!r} (the first: {left.first})"
