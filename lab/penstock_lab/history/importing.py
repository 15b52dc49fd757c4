"""Sources become a history: dumps, logs, or accounting asked now, read as a stream and written in one go."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final

from penstock.errors import UserError
from penstock.slurm.parse import ParseError
from penstock_lab.history import live
from penstock_lab.history.pseudonyms import Names
from penstock_lab.history.records import Broken, records_of
from penstock_lab.history.rows import Reason, Report
from penstock_lab.history.sacct import BadHeading, Parser
from penstock_lab.history.store import Spill
from penstock_lab.history.swfrows import rows_of
from penstock_lab.history.times import Times
from penstock_lab.sim.lines import lines_of
from penstock_lab.sim.swf import SwfReader, header_number, header_procs

__all__ = ["Live", "Options", "import_history"]

_LOG: Final = re.compile(rb"\s*(;|-?[0-9.]+(\s+-?[0-9.eE+-]+){17}(\s|$))")
_MOST_BLANK: Final = 100
_BITS: Final = 40  # of a place: so many for the line, the rest for the source


@dataclass(frozen=True, slots=True)
class Live:
    """Ask sacct for the jobs that ended between two times (s since the epoch): a slice (s) a call, which may take
    `patience` seconds."""

    since: int
    until: int
    slice: int
    patience: float


@dataclass(frozen=True, slots=True)
class Options:
    """`key` None keeps names; `zone` is that of local times (None: this machine's); `machine` is said, not guessed."""

    key: bytes | None = None
    zone: tzinfo | None = None
    cluster: str = ""
    skip_bad: bool = False
    machine: dict[str, int] = field(default_factory=dict)


def import_history(sources: Sequence[Path | Live], target: Path, options: Options) -> Report:
    """Read the sources in order and write the history. UserError for sources that cannot be used: then, and when
    anything else fails, there is no file, or the one that was there before."""
    return _Import(sources, target, options).run()


class _Import:
    def __init__(self, sources: Sequence[Path | Live], target: Path, options: Options) -> None:
        self._sources, self._target, self._options = sources, target, options
        self._report = Report(self._where)
        self._times = Times(options.zone)
        self._parser = Parser(self._times, options.cluster)
        self._machine: dict[str, int] = {}

    def run(self) -> Report:
        report, options = self._report, self._options
        folder = self._target.absolute().parent
        if not folder.is_dir():
            raise UserError(f"{folder}, where {self._target.name} should go, is not a folder")
        job_key = options.key if options.key is not None else os.urandom(32)
        with Spill(folder, Names(options.key, job_key[:64]), report) as spill:
            kinds = set()
            for number, source in enumerate(self._sources):
                kinds.add(self._read(number, source, spill))
            if len(self._parser.clusters) > 1:
                found = ", ".join(f"{name}: {jobs}" for name, jobs in sorted(self._parser.clusters.items()))
                raise UserError(f"these are jobs of several clusters ({found}): choose one by --cluster")
            report.notes += self._parser.notes
            if self._times.local:
                zone = options.zone or "this machine's"
                report.notes.append(f"times are local ones, taken for {zone} zone; --time-zone names another")
            about = {
                "source": sorted(kinds),
                "cluster": "" if options.key else next(iter(self._parser.clusters), ""),
                "anonymous": options.key is not None,
                "imported": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "machine": self._machine | options.machine,
            }
            # Who the jobs belong to is nobody's business but theirs.
            mode = None if options.key is not None else 0o600
            spill.finish(self._target, about, mode)
        return report

    def _where(self, place: int) -> str:
        number, line = place >> _BITS, place & (1 << _BITS) - 1
        return f"{self._named(number)} line {line}"

    def _named(self, number: int) -> str:
        # A path may tell whose it is.
        source = self._sources[number]
        named = "sacct" if isinstance(source, Live) else str(source)
        return f"source {number + 1}" if self._options.key is not None else named

    def _read(self, number: int, source: Path | Live, spill: Spill) -> str:
        if isinstance(source, Live):
            self._read_live(number, source, spill)
            return "sacct"
        if source.is_file() and _is_log(source):
            self._read_log(number, source, spill)
            return "swf"
        with closing(lines_of(source, "a dump of sacct")) as lines:
            self._read_dump(number, lines, spill)
        return "sacct"

    def _read_log(self, number: int, path: Path, spill: Spill) -> None:
        reader, report = SwfReader(path, self._options.skip_bad), self._report
        seen = 0
        for line, row in rows_of(reader):
            seen += 1
            if isinstance(row, str):
                report.leave(row, number << _BITS | line)
            else:
                spill.add(row, number << _BITS | line)
        report.read += seen + reader.bad
        if reader.bad:
            at = re.search(r" line ([0-9]+): ", reader.first_bad)
            said: int | str = number << _BITS | int(at[1]) if at and self._options.key is not None else reader.first_bad
            report.leave(Reason.UNREADABLE, said, reader.bad)
        if header_number(reader.header, "UnixStartTime") is None:
            report.notes.append(f"{self._named(number)} has no UnixStartTime: its times count from 1970")
        procs = header_procs(reader.header)
        if procs:
            self._machine = {"cpus": procs, "nodes": procs, "cpus_per_node": 1}

    def _read_dump(
        self,
        number: int,
        lines: Iterable[tuple[int, bytes]],
        spill: Spill,
        span: range | None = None,
        last: bool = True,
    ) -> None:
        """A dump; of a `span` of time only what ended in it, and what has not ended only if it is the last one."""
        report, parse = self._report, self._parser.row
        base = number << _BITS
        for record in records_of(lines):
            place = base | record.line
            if isinstance(record, Broken):
                report.read += 1
                self._reject(place, record.what, record.final)
                continue
            try:
                row = parse(record.heading, record.cells)
            except BadHeading as error:
                raise UserError(f"{self._where(place)}: {error}") from None
            except ParseError as error:
                report.read += 1
                self._reject(place, _said(error))
                continue
            if isinstance(row, str):
                if last or row != Reason.NOT_ENDED:
                    report.read += 1
                    report.leave(row, place)
                continue
            if span is not None and row.end not in span:
                continue  # another slice's
            report.read += 1
            spill.add(row, place)

    def _read_live(self, number: int, span: Live, spill: Spill) -> None:
        for begin, end in live.slices(span.since, span.until, span.slice):
            with closing(live.told(begin, end, self._options.cluster, span.patience)) as lines:
                self._read_dump(number, lines, spill, range(begin, end), end == span.until)

    def _reject(self, place: int, what: str, final: bool = False) -> None:
        where = self._where(place)
        if final or not self._options.skip_bad:
            raise UserError(f"{where}: {what}" + ("" if final else " (--skip-bad leaves such records out)"))
        self._report.leave(Reason.UNREADABLE, where if self._options.key is not None else f"{where}: {what}")


def _said(error: ParseError) -> str:
    text = str(error)
    return f"{text}; the field is cut off: make the dump with -p or -P" if text.rstrip("'\"").endswith("+") else text


def _is_log(path: Path) -> bool:
    """Whether the first line that says something is one of a workload log."""
    with closing(lines_of(path, "a workload log or a dump of sacct")) as lines:
        for line, raw in lines:
            if raw.strip():
                return _LOG.match(raw) is not None
            if line > _MOST_BLANK:
                break
    return False
