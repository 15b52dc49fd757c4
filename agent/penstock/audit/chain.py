"""The hash chain: what a line of the audit file is, and whether lines are what was written. Pure.

A line is `{"seq":N,"prev":"HASH",…,"hash":"HASH"}`: the record's number, the hash of the line before, the record, and
the SHA-256 of all that stands before `,"hash":`. So every byte of a line is covered by its own hash, its place by the
number, and its being there by the line after it. Who can write the file can compute hashes as well: what was rewritten
or cut off as a whole shows by *anchors*, hashes of the chain that are kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.audit.record import Record, RecordKind, instant

__all__ = [
    "BEGIN",
    "LONGEST",
    "START",
    "TORN",
    "Anchor",
    "Chain",
    "ChainEntry",
    "ChainFault",
    "ChainHead",
    "ChainVerdict",
    "digest",
    "entry_of",
    "line_of",
    "torn",
]

LONGEST: Final = 128 * 1024
"""Bytes that no line has."""
BEGIN: Final = "begin"
"""The verb of a file's first record; its code says why there is a new one."""
TORN: Final = "torn"
"""The verb of the record that says what the bytes before it are, which are no line."""
REMOVED: Final = "removed"
_NEW: Final = frozenset({"first", "rotated"})
_TAIL: Final = re.compile(rb',"hash":"([0-9a-f]{64})"\}\n')
_WHOLE: Final = re.compile(rb',"hash":"[0-9a-f]{64}"\}')
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The last record of a chain: its number and its hash. Written `NUMBER:HASH`."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> ChainHead:
        """Raises ValueError, saying what would be right."""
        number, colon, value = text.strip().partition(":")
        if not colon or not (number.isascii() and number.isdigit()) or len(number) > 18 or not _HASH.fullmatch(value):
            raise ValueError("must be NUMBER:HASH, the hash as 64 of 0-9a-f")
        return cls(int(number), value)


START: Final = ChainHead(0, "0" * 64)
"""What the first record of all follows."""


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """A line that is what its own hash says."""

    head: ChainHead
    prev: str
    fields: dict[str, Any]

    @property
    def verb(self) -> str:
        """Empty where the line has none."""
        return str(self.fields.get("verb", ""))

    @property
    def at(self) -> float | None:
        """When it was written, where that can be told."""
        try:
            return instant(self.fields["at"])
        except (KeyError, ValueError, TypeError):
            return None

    def record(self) -> Record:
        """Raises ValueError where it is none of this program's."""
        return Record.from_dict(self.fields)

    def follows(self, head: ChainHead) -> bool:
        """Whether it is the next line of a chain that ends so."""
        return self.head.seq == head.seq + 1 and self.prev == head.hash


def digest(data: bytes) -> str:
    """SHA-256, as in the files."""
    return hashlib.sha256(data).hexdigest()


def line_of(record: Record, after: ChainHead) -> tuple[bytes, ChainHead]:
    """The line (its end included) of the record that follows, and the head that it makes."""
    body = (_begins(after) + record.encode()[1:-1]).encode()
    head = ChainHead(after.seq + 1, digest(body))
    return body + f',"hash":"{head.hash}"}}\n'.encode(), head


def _begins(after: ChainHead) -> str:
    return f'{{"seq":{after.seq + 1},"prev":"{after.hash}",'


def entry_of(line: bytes) -> ChainEntry:
    """What a line (its end included) says. Raises ValueError where a byte of it is not what was written."""
    tail = _TAIL.fullmatch(line, max(0, len(line) - 76))
    if tail is None:
        raise ValueError("it is no whole line of an audit file")
    body = line[: tail.start()]
    found = tail[1].decode()
    if digest(body) != found:
        raise ValueError("it is not what was written: its hash is another")
    try:
        fields = json.loads(body + b"}")
        seq, prev = fields["seq"], fields["prev"]
        if type(seq) is not int or seq < 1 or not _HASH.fullmatch(prev):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("it has no number, or does not say which line it follows") from None
    return ChainEntry(ChainHead(seq, found), prev, fields)


def torn(data: bytes, head: ChainHead | None) -> bool:
    """Whether bytes after that head can be what a kill (or a full disk) left of writing the next line: a part of it
    from its beginning, or nothing at all; after a power failure with zeros in place of the rest.

    A line that is whole but for a byte of it was not torn, but changed.
    """
    data = data.rstrip(b"\0")
    expected = b'{"seq":' if head is None else _begins(head).encode()
    size = min(len(data), len(expected))
    return data[:size] == expected[:size] and not _WHOLE.search(data)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A head of the chain as it is kept elsewhere; `source` says where ("the journal")."""

    head: ChainHead
    source: str


@dataclass(frozen=True, slots=True)
class ChainFault:
    """What is wrong, where (`line` 0: with the file as a whole; no file: with the chain), and when that happened at the
    latest, as far as records say (`at`, seconds since the epoch)."""

    file: str
    line: int
    text: str
    at: float | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}" if place else self.text


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """What a look at all lines found: the first record and the last, how many there are, what is wrong, and what is
    only worth knowing; `anchored` anchors agree with the chain, `older` are of records that are not here any more."""

    first: ChainEntry | None
    last: ChainEntry | None
    records: int
    findings: tuple[ChainFault, ...]
    notes: tuple[ChainFault, ...]
    anchored: int
    older: int


@dataclass(slots=True)
class Chain:
    """Follows the lines of all files in order; `verdict` tells what it saw."""

    anchors: Sequence[Anchor] = ()
    _first: ChainEntry | None = None
    _last: ChainEntry | None = None
    _records: int = 0
    _findings: list[ChainFault] = field(default_factory=list)
    _notes: list[ChainFault] = field(default_factory=list)
    _aside: list[bytes] = field(default_factory=list)
    _aside_at: tuple[int, str] = (0, "")
    _held: dict[int, list[Anchor]] = field(default_factory=lambda: defaultdict(list))
    _anchored: int = 0

    def __post_init__(self) -> None:
        for anchor in self.anchors:
            self._held[anchor.head.seq].append(anchor)

    def file(self, name: str, lines: Iterable[bytes], *, last: bool) -> None:
        """The lines of the next file, each with its end; the last one of the last file may lack it."""
        number = 0
        for number, line in enumerate(lines, start=1):
            try:
                entry = entry_of(line)
            except ValueError as e:
                if not self._aside:
                    self._aside_at = (number, str(e))
                self._aside.append(line)
                continue
            self._next(name, number, entry)
        if number == 0:
            self._notes.append(ChainFault(name, 0, "it is empty"))
        self._end_of(name, last)

    def damaged(self, name: str, text: str) -> None:
        """Something else that is wrong with a file."""
        self._findings.append(ChainFault(name, 0, text))

    def _next(self, name: str, number: int, entry: ChainEntry) -> None:
        before = self._last
        head = before.head if before is not None else None
        follows = entry.follows(head) if head is not None else True
        if self._aside:
            self._explain_aside(name, number, entry, follows)
        elif entry.verb == TORN and entry.fields.get("kind") == RecordKind.FILE:
            self._findings.append(ChainFault(name, number, "the torn line that it tells of is not before it", entry.at))
        elif head is None:
            self._begins(name, number, entry)
        elif not follows:
            self._findings.append(ChainFault(name, number, _misplaced(entry, head), entry.at))
        elif entry.verb == BEGIN and entry.fields.get("code") not in _NEW:
            self._findings.append(ChainFault(name, number, str(entry.fields.get("text", "")), entry.at))
        self._first = self._first or entry
        self._last = entry
        self._records += 1
        for anchor in self._held.get(entry.head.seq, ()):
            if anchor.head.hash == entry.head.hash:
                self._anchored += 1
            else:
                text = f"record {entry.head.seq} is another than {anchor.source} has: the chain was written anew"
                self._findings.append(ChainFault(name, number, text, entry.at))

    def _begins(self, name: str, number: int, entry: ChainEntry) -> None:
        code = entry.fields.get("code") if entry.verb == BEGIN else None
        if entry.head.seq == 1 and entry.prev != START.hash:
            self._findings.append(ChainFault(name, number, "the first record says that it follows another", entry.at))
        elif code is not None and code not in _NEW:
            self._findings.append(ChainFault(name, number, str(entry.fields.get("text", "")), entry.at))
        elif entry.head.seq > 1:
            when = entry.fields.get("at", "")
            text = f"the chain begins here with record {entry.head.seq} of {when}: files before it are not kept"
            if number > 1 or entry.verb != BEGIN:
                self._findings.append(
                    ChainFault(
                        name, number, f"record {entry.head.seq} is the first, and does not begin a file", entry.at
                    )
                )
            else:
                self._notes.append(ChainFault(name, number, text, entry.at))

    def _explain_aside(self, name: str, number: int, entry: ChainEntry, follows: bool) -> None:
        """Bytes that are no lines came before this one: a torn line that it explains, or damage."""
        aside, (first, why) = b"".join(self._aside), self._aside_at
        lines, self._aside = self._aside, []
        head = self._last.head if self._last is not None else None
        told = (
            entry.fields.get("details") if entry.verb == TORN and entry.fields.get("kind") == RecordKind.FILE else None
        )
        if (
            follows
            and isinstance(told, dict)
            and (told.get("bytes"), told.get("sha256")) == (len(aside), digest(aside))
            and all(torn(line.removesuffix(b"\n"), head) for line in lines)
        ):
            self._notes.append(
                ChainFault(name, first, "a line was torn when its writer was killed; it is kept", entry.at)
            )
            return
        self._findings.append(ChainFault(name, first, why, entry.at))
        # Each changed line was one record; when there are more or less, some are missing or too many.
        expected = (head.seq if head is not None else 0) + len(lines) + 1
        if head is not None and not follows and entry.head.seq != expected:
            self._findings.append(ChainFault(name, number, _misplaced(entry, head), entry.at))

    def _end_of(self, name: str, last: bool) -> None:
        if not self._aside:
            return
        (number, why), lines, self._aside = self._aside_at, self._aside, []
        head = self._last.head if self._last is not None else None
        end = lines[-1]
        if last and not end.endswith(b"\n") and len(lines) == 1:
            try:
                entry = entry_of(end + b"\n")
            except ValueError:
                entry = None
            if entry is not None and (head is None or entry.follows(head)):
                self._next(name, number, entry)
                self._notes.append(ChainFault(name, number, "the end of the last line is missing", entry.at))
                return
        pending = [line.removesuffix(b"\n") for line in lines]
        if last and not end.endswith(b"\n") and all(torn(line, head) for line in pending):
            text = "the last line is torn: its writer was killed, and the next one will say so"
            self._notes.append(ChainFault(name, number, text, self._last.at if self._last else None))
            return
        self._findings.append(ChainFault(name, number, why, self._last.at if self._last else None))

    def verdict(self) -> ChainVerdict:
        """What was found, anchors that nothing was found of included."""
        findings = list(self._findings)
        older = 0
        first = self._first.head.seq if self._first is not None else 0
        end = self._last.head.seq if self._last is not None else 0
        beyond = [a for seq, held in self._held.items() for a in held if seq > end]
        for held in self._held.values():
            older += sum(1 for a in held if 0 < a.head.seq < first)
        for source in dict.fromkeys(a.source for a in beyond):
            furthest = max(a.head.seq for a in beyond if a.source == source)
            text = f"the chain ends with record {end}, but {source} has record {furthest}: the end was cut off"
            findings.append(ChainFault("", 0, text, self._last.at if self._last is not None else None))
        return ChainVerdict(
            self._first, self._last, self._records, tuple(findings), tuple(self._notes), self._anchored, older
        )


def _misplaced(entry: ChainEntry, head: ChainHead) -> str:
    seq = entry.head.seq
    if seq <= head.seq:
        return f"record {seq} comes after record {head.seq}: lines were repeated or put in another order"
    if seq == head.seq + 1:
        return f"record {seq} does not follow the record {head.seq} that is before it: one of them was replaced"
    gap = f"record {head.seq + 1} is" if seq == head.seq + 2 else f"records {head.seq + 1} to {seq - 1} are"
    return f"{gap} missing before record {seq}"
