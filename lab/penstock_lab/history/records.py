"""The records of an accounting dump, from its lines: cells by the heading, names with newlines in them put together.

A user can put any text into a job's name, newlines and separators included. Where the fields are apart by a mark that
nobody can guess (`penstock history command` draws one) that changes nothing; with a plain separator such a record has
too many fields, or too few, and is refused. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Broken", "Heading", "Record", "records_of"]

_HEADING: Final = re.compile(r"([A-Za-z]{2,20})(@[0-9a-f]{4,64}@|[^A-Za-z0-9\s_%]{1,8}|\t)(?=[A-Za-z])")
_FIRST: Final = ("jobidraw", "jobid")
_MOST_BEFORE: Final = 50
_MOST_LINES: Final = 40


@dataclass(frozen=True, slots=True)
class Heading:
    """The names of the fields (lower case), what is between them, and whether it is behind the last one, too."""

    fields: tuple[str, ...]
    separator: str
    closed: bool

    @property
    def marks(self) -> int:
        """How many separators a record has."""
        return len(self.fields) - (not self.closed)

    @classmethod
    def of(cls, line: str) -> Heading | None:
        """None where the line is no heading with a JobIDRaw or JobID and a separator."""
        found = _HEADING.match(line)
        if found is None:
            return None
        fields = [field.partition("%")[0].strip().lower() for field in line.rstrip("\r\n").split(found[2])]
        closed = fields[-1] == ""
        if closed:
            del fields[-1]
        known = all(field.isascii() and field.replace("/", "").isalpha() for field in fields)
        if not known or len(fields) < 2 or not set(_FIRST) & set(fields):
            return None
        return cls(tuple(fields), found[2], closed)


@dataclass(frozen=True, slots=True)
class Record:
    """One record: the line in which it begins, the heading that it stands under, and its cells."""

    line: int
    heading: Heading
    cells: list[str]


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is no record, and what is wrong with it. `final`: nothing of the dump can be read."""

    line: int
    what: str
    final: bool = False


def records_of(lines: Iterable[tuple[int, bytes]]) -> Iterator[Record | Broken]:
    """The records of a dump. Dumps may stand one behind the other, each with a heading of its own."""
    heading: Heading | None = None
    source = iter(lines)
    again: list[tuple[int, str]] = []  # lines that were looked at in vain as the rest of a record
    before = 0
    while True:
        if again:
            number, text = again.pop(0)
        else:
            following = next(source, None)
            if following is None:
                break
            number, text = following[0], _text(following[1])
        if heading is None or text[:5].lower() == "jobid":
            fresh = Heading.of(text)
            if fresh is not None:
                heading = fresh
                continue
            if heading is None:
                before += bool(text.strip())
                if before >= _MOST_BEFORE or _is_columns(text):
                    yield Broken(number, _no_heading(text), final=True)
                    return
                continue
        if not text.strip():
            continue
        separator, marks = heading.separator, heading.marks
        count = text.count(separator)
        if count == marks:
            yield Record(number, heading, text.rstrip("\r\n").split(separator))
            continue
        rest: list[tuple[int, str]] = []
        while count < marks and len(rest) < _MOST_LINES:
            if again:
                rest.append(again.pop(0))
            elif (following := next(source, None)) is not None:
                rest.append((following[0], _text(following[1])))
            else:
                break
            count += rest[-1][1].count(separator)
        if count == marks:
            whole = text + "".join(each for _, each in rest)
            yield Record(number, heading, whole.rstrip("\r\n").split(separator))
            continue
        again[:0] = rest
        yield Broken(number, _what_is_wrong(text, heading, last=not again))
    if heading is None:
        yield Broken(0, _no_heading(""), final=True)


def _text(raw: bytes) -> str:
    # Names may be in any code; only whether they are equal matters.
    return raw.decode("utf-8", "surrogateescape")


def _is_columns(text: str) -> bool:
    """The heading of a table for people, whose cells are cut off."""
    return "JobID" in text.split()[:3]


def _no_heading(text: str) -> str:
    if _is_columns(text):
        return "sacct's table for people, in which fields are cut off: make the dump by `penstock history command`"
    return "no heading of sacct (JobIDRaw|...): make the dump by the line that `penstock history command` prints"


def _what_is_wrong(text: str, heading: Heading, last: bool) -> str:
    found, wanted = text.count(heading.separator) + (not heading.closed), len(heading.fields)
    what = f"{found} fields where the heading has {wanted}"
    if last and found < wanted:
        return f"{what}; the dump ends here and may be cut off"
    if heading.separator.startswith("@"):
        return what
    return f"{what} ({heading.separator!r} or a newline in a name? `penstock history command` is safe from both)"
