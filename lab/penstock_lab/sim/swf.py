"""Reads and filters logs in Standard Workload Format, the form of the Parallel Workloads Archive.

A log is text, often compressed with gzip: comments that begin with `;`, then one line per job with 18 numbers apart by
blanks (Feitelson, https://www.cs.huji.ac.il/labs/parallel/workload/swf.html; Chapin et al., JSSPP 1999). -1 is "not
known". Some programs write more fields, which are left alone, and times with fractions: submit times are rounded down,
run and requested times up, so that none becomes 0. Logs are read as a stream; a line is in memory only while it is
looked at.

Logs have histories. A line that is not what it should be is an error that names the file, the line and the field, or,
with `skip_bad`, is counted and left out. A file that is damaged as a whole (cut off, not gzip after all) is always an
error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import UserError
from penstock_lab.sim.lines import lines_of
from penstock_lab.sim.trace import Trace

__all__ = [
    "ESTIMATES",
    "FIELDS",
    "FILTERS",
    "Log",
    "Record",
    "SwfReader",
    "header_number",
    "header_procs",
    "kept",
    "load",
    "machine_procs",
]

FILTERS: Final = ("strong", "singh")
ESTIMATES: Final = ("actual", "user")

_NAMES: Final = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
FIELDS: Final = len(_NAMES)
"""How many numbers the format has for a job."""
_WHOLE: Final = (0, 4, 7)
"""Fields that a replay uses and that are whole numbers (12.00 counts as one)."""
_TIMES: Final = (1, 3, 8)
"""Fields that a replay uses in whole seconds."""

_WHOLE_NUMBER: Final = rb"(-?[0-9]{1,15})(?:\.0*)?"
_TIME: Final = rb"(-?(?:[0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,2})?)"
_FAR: Final = 10**15
# One way only to read each number: a line of the wrong length would else be tried in all of them.
_NUMBER: Final = rb"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_FORMS: Final = tuple(_WHOLE_NUMBER if i in _WHOLE else _TIME if i in _TIMES else _NUMBER for i in range(FIELDS))
_LINE: Final = re.compile(rb"\s*" + rb"\s+".join(_FORMS) + rb"\s*")
# Not as many more as another job has.
_WIDER: Final = re.compile(rb"\s*" + rb"\s+".join(_FORMS) + rb"(?:\s+\S+){1,%d}\s*" % (FIELDS - 1))
_MAX_HEADER: Final = 10000


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a log: where it stands, as it stands, and the fields that a replay uses (seconds, processors)."""

    line: int
    raw: bytes
    number: int
    submit: int
    run: int
    allocated: int
    requested: int
    limit: int


class SwfReader:
    """Iterates over the records of a log; once through, the counters hold.

    `header` are the comments ahead of the first record, `records` the sound lines, `bad` the lines that were left out
    (0 unless `skip_bad`), `first_bad` what was wrong with the first of them.
    """

    def __init__(self, path: Path, skip_bad: bool = False) -> None:
        self.path = path
        self.skip_bad = skip_bad
        self.header: list[str] = []
        self.records = 0
        self.bad = 0
        self.first_bad = ""

    def __iter__(self) -> Iterator[Record]:
        self.header, self.records, self.bad, self.first_bad = [], 0, 0, ""
        match = _LINE.fullmatch
        width = 0
        for line, raw in lines_of(self.path, "a workload log"):
            found = match(raw)
            if not found and raw[:1] != b";" and (not self.records or len(raw.split()) == width):
                found = _WIDER.fullmatch(raw)
                width = len(raw.split()) if found else width  # the first job says how many fields there are
            if found:
                number, submit, run, allocated, requested, limit = found.groups()
                times = _seconds(submit, math.floor), _seconds(run, math.ceil), _seconds(limit, math.ceil)
                if max(times) >= _FAR:
                    self.reject(line, "a time has more than 15 digits")
                    continue
                self.records += 1
                yield Record(line, raw, int(number), *times[:2], int(allocated), int(requested), times[2])
            elif raw[:1] == b";" and _is_text(raw):
                if not self.records and len(self.header) < _MAX_HEADER:
                    self.header.append(raw.decode().rstrip())
            elif raw.strip():
                cut = "" if raw.endswith(b"\n") else "; the file ends in this line and may be cut off"
                self.reject(line, _what_is_wrong(raw) + cut)

    def read_header(self) -> list[str]:
        """The header, without the records."""
        next(iter(self), None)
        return self.header

    def reject(self, line: int, what: str) -> None:
        """This line cannot be used: count it, or raise UserError."""
        message = f"{self.path} line {line}: {what}"
        if not self.skip_bad:
            raise UserError(f"{message} (--skip-bad leaves such lines out)")
        self.bad += 1
        self.first_bad = self.first_bad or message


def _seconds(text: bytes, rounded: Callable[[float], int]) -> int:
    return int(text) if text.isdigit() else rounded(float(text))


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _what_is_wrong(raw: bytes) -> str:
    if not _is_text(raw):
        return "not UTF-8 text"
    fields = raw.split()
    if len(fields) != FIELDS:
        return f"{len(fields)} fields where a job has {FIELDS}"
    for i, text in enumerate(fields):
        if not re.fullmatch(_FORMS[i], text):
            kind = "a whole number of" if i in _WHOLE else "a number of" if i in _TIMES else "a number"
            kind += " at most 15 digits" if kind.endswith("of") else ""
            return f"field {i + 1} ({_NAMES[i]}) is {text.decode()[:40]!r}, not {kind}"
    return "a character between the fields is not a blank"


@dataclass(slots=True)
class Log:
    """A filtered log: the jobs to replay, and what became of the rest. `records` are the sound lines.

    `preceding` is by job number the one that a job waits for, where that was asked for.
    """

    trace: Trace
    preceding: Mapping[int, int]
    records: int
    dropped: int
    bad: int
    first_bad: str


def load(
    path: Path,
    procs: int,
    keep: str = "strong",
    estimates: str = "user",
    skip_bad: bool = False,
    dependencies: bool = False,
) -> Log:
    """Read a log and filter it for a machine of `procs` processors.

    `keep` is `strong` (drop what is incomplete or does not fit; run := min(run, requested time)) or `singh` (every
    record with run > 0, as in Singh's dissertation; a job wider than the machine is then an error). `estimates` are
    the `user`'s requested times or the `actual` run times; `singh` knows only the latter, for it keeps jobs that have
    no requested time or ran longer. `dependencies`: note what jobs wait for (field 17). UserError for files and lines
    that cannot be used and when nothing is left.
    """
    if keep == "singh" and estimates != "actual":
        raise UserError("--filter singh needs --estimates actual: it keeps jobs without a usable requested time")
    reader = SwfReader(path, skip_bad)
    trace, preceding = Trace(), dict[int, int]()
    last, seen = -1, set[int]()
    for job in kept(reader, procs, keep):
        if job.number <= last:  # most logs are numbered upwards and never pay for the set
            seen = seen or set(trace.ids)
            if job.number in seen:
                reader.records -= 1
                reader.reject(job.line, f"job number {job.number} was there before")
                continue
        last = max(last, job.number)
        if seen:
            seen.add(job.number)
        trace.append(job.number, job.submit, job.run, job.allocated, job.run if estimates == "actual" else job.limit)
        if dependencies and (before := _preceding(job.raw)) > 0:
            preceding[job.number] = before
    if not trace:
        what = f"{reader.records} records, {reader.bad} bad lines, filter {keep} for {procs} processors"
        raise UserError(f"{path}: no job to replay ({what}){_hint(path, procs, keep)}")
    trace.sort()
    dropped = reader.records - len(trace)
    return Log(trace, preceding, reader.records, dropped, reader.bad, reader.first_bad)


def _hint(path: Path, procs: int, keep: str) -> str:
    """What would replay a log that has jobs, but none with a requested time."""
    if keep != "strong" or not path.is_file():
        return ""
    ran = [job for job in SwfReader(path, skip_bad=True) if job.run > 0 and job.submit >= 0]
    if not ran:
        return ""
    if all(job.limit <= 0 for job in ran):
        return ": its jobs have no requested times; --estimates actual --filter singh takes their run times"
    fewest = min(max(job.allocated, job.requested) for job in ran)
    return f": each needs more processors, {fewest} or more" if fewest > procs else ""


def _preceding(raw: bytes) -> int:
    found = re.fullmatch(_WHOLE_NUMBER, raw.split()[16])
    return int(found[1]) if found else 0


def kept(reader: SwfReader, procs: int, keep: str) -> Iterator[Record]:
    """The records that pass the filter, with run, allocated and requested as they are replayed."""
    strong = keep == "strong"
    for job in reader:
        if job.run <= 0:
            continue
        allocated = job.allocated if job.allocated > 0 else job.requested
        requested = job.requested if job.requested > 0 else job.allocated
        run = job.run
        if strong:
            if allocated <= 0 or max(allocated, requested) > procs or job.limit <= 0 or job.submit < 0:
                continue
            run = min(run, job.limit)
        elif allocated <= 0 or job.submit < 0:
            reader.records -= 1
            reader.reject(job.line, f"job {job.number} has no number of processors or no submit time")
            continue
        elif allocated > procs:
            raise UserError(
                f"{reader.path} line {job.line}: job {job.number} needs {allocated} processors, the machine "
                f"has {procs} (--filter strong leaves such jobs out)"
            )
        yield Record(job.line, job.raw, job.number, job.submit, run, allocated, requested, job.limit)


def machine_procs(path: Path) -> int:
    """How many processors the log's machine has, by its header. UserError when it does not say."""
    if path.is_fifo():
        raise UserError(f"{path} can be read only once: give --procs")
    procs = header_procs(SwfReader(path, skip_bad=True).read_header())
    if procs is None:
        raise UserError(f"{path} does not say how many processors its machine has (; MaxProcs:): give --procs")
    return procs


def header_procs(header: Iterable[str]) -> int | None:
    """The processors of the machine by the header of its log: MaxProcs, else MaxNodes; None where it has neither."""
    found = [header_number(header, key) for key in ("MaxProcs", "MaxNodes")]
    return next((procs for procs in found if procs), None)


def header_number(header: Iterable[str], key: str) -> int | None:
    """A whole number of a log's header; None where it does not say."""
    for text in header:
        found = re.match(rf";\s*{key}:\s*([0-9]{{1,15}})(?=\s|$)", text)
        if found:
            return int(found[1])
    return None
