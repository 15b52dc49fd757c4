"""How squeue writes a row: `-o` and `-O` formats, widths, headings. Counted in bytes, as C's printf does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import AnyStr, Final

from penstock_fronts.words import Through

__all__ = ["DEFAULT", "HEADINGS", "LETTERS", "LONG", "TIMES", "Field", "parse_format", "parse_long_format", "write_row"]

# A letter of `-o`, the names of `-O` for the same (| between), and the heading.
_FIELDS: Final = """
a account ACCOUNT, A jobid JOBID, B batchhost EXEC_HOST, c mincpus MIN_CPUS, C numcpus CPUS,
d mintmpdisk MIN_TMP_DISK, D numnodes NODES, e endtime END_TIME, E dependency DEPENDENCY, f feature FEATURES,
F arrayjobid ARRAY_JOB_ID, g groupname GROUP, G groupid GROUP, h oversubscribe|shared OVER_SUBSCRIBE,
H sockets SOCKETS_PER_NODE, i jobarrayid JOBID, I cores CORES_PER_SOCKET, j name NAME,
J threads THREADS_PER_CORE, k comment COMMENT, K arraytaskid ARRAY_TASK_ID, l timelimit TIME_LIMIT,
L timeleft TIME_LEFT, m minmemory MIN_MEMORY, M timeused TIME, n reqnodes REQ_NODES, N nodelist NODELIST,
o command COMMAND, O contiguous CONTIGUOUS, p priority PRIORITY, P partition PARTITION, q qos QOS,
Q prioritylong PRIORITY, r reason REASON, R reasonlist NODELIST(REASON), S starttime START_TIME,
t statecompact ST, T state STATE, u username USER, U userid UID, v reservation RESERVATION,
V submittime SUBMIT_TIME, w wckey WCKEY, W licenses LICENSES, x - EXC_NODES, X corespec CORE_SPEC, y nice NICE,
Y schednodes SCHEDNODES, z sct S:C:T, Z workdir WORK_DIR
"""
_TABLE: Final = [field.split() for field in _FIELDS.split(",")]
LETTERS: Final = "".join(letter for letter, _names, _heading in _TABLE)
"""The letters of `-o` that every release since 22.05 reads alike."""
HEADINGS: Final = {letter: heading for letter, _names, heading in _TABLE}
"""What stands above their fields."""
DEFAULT: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
TIMES: Final = frozenset("eSV")
"""Fields that are written in the caller's time zone."""

_WHOLE: Final = frozenset("lLMNY")  # where a right-justified value is never cut
_WIDEST: Final = 4096
_NO_TEXT: Final = "(null)"  # what printf makes of a missing text, unless fewer bytes are asked for
# The names of `-O` whose field has a letter.
_NAMES: Final = {name: letter for letter, names, _heading in _TABLE for name in names.split("|") if name != "-"}
_SIZE: Final = re.compile(r"(\.?)[ \t\n\v\f\r]*(\d*)(.*)", re.DOTALL | re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """One column: `letter` of the field (empty: only `suffix`, a text), its width in bytes (0: as long as it is)."""

    letter: str
    width: int = 0
    right: bool = False
    suffix: str = ""


def parse_format(text: str, more: Mapping[str, str] | None = None) -> list[Field]:
    """The columns of `-o`; `more`: as in `parse_long_format`, a single letter is one of `-o`. Raises `Through` for
    what squeue complains about, or may read otherwise in some release."""
    if text.lower() == "%all":
        raise Through("%all has other fields in each release")
    prefix, percent, rest = text.partition("%")
    fields = [Field("", suffix=prefix)] if prefix or not percent else []
    return fields + [_field(token, more or {}) for token in rest.split("%") if token]


def _field(token: str, more: Mapping[str, str]) -> Field:
    match = re.match(r"(\.?)([0-9]*)(.)(.*)", token, re.DOTALL)
    letter = None if match is None else match[3] if match[3] in LETTERS else more.get(match[3])
    if match is None or letter is None:
        raise Through(f"a field that is not served: %{token}")
    return Field(letter, _width(match[2]), bool(match[1]), match[4])


def _width(digits: str) -> int:
    width = int(digits or "0") if len(digits) < 8 else _WIDEST + 1
    if width > _WIDEST:
        raise Through(f"a column of {digits} bytes")
    return width


def parse_long_format(text: str, more: Mapping[str, str] | None = None) -> list[Field]:
    """The columns of `-O`; `more`: names besides those of fields with a letter. Raises `Through`."""
    return [_named(token, more or {}) for token in text.split(",") if token]


def _named(token: str, more: Mapping[str, str]) -> Field:
    name, colon, size = token.partition(":")
    letter = _NAMES.get(name.lower()) or more.get(name.lower())
    if letter is None or not name.isascii():
        raise Through(f"a field that is not served: {name}")
    if not colon:
        return Field(letter, 20)
    if re.match(r"\.?[ \t\n\v\f\r]*[+-]", size):
        raise Through(f"a width with a sign: {size}")
    match = _SIZE.fullmatch(size)
    assert match is not None
    if not match[2]:  # strtol takes nothing then, not even the blanks
        return Field(letter, 0, bool(match[1]), size[len(match[1]) :])
    return Field(letter, _width(match[2]), bool(match[1]), match[3])


def write_row(fields: list[Field], values: Mapping[str, str], *, heading: bool = False) -> str:
    """One line, with its line feed."""
    return "".join(_cells(fields, values, heading)) + "\n"


def _cells(fields: list[Field], values: Mapping[str, str], heading: bool) -> Iterator[str]:
    for field in fields:
        if field.letter:
            yield _cell(field, values, heading)
        yield field.suffix


def _cell(field: Field, values: Mapping[str, str], heading: bool) -> str:
    value = values[field.letter]
    if not field.width:
        return value
    width = field.width
    if not field.right and value == _NO_TEXT and width < len(value):
        raise Through("a missing text and a text that looks like one are not told apart")
    cut = not (field.right and _whole(field.letter, value, heading))
    if value.isascii():  # a byte is a letter then
        return _fit(value, width, field.right, cut)
    return _fit(value.encode(errors="surrogateescape"), width, field.right, cut).decode(errors="surrogateescape")


def _fit(value: AnyStr, width: int, right: bool, cut: bool) -> AnyStr:
    filled = value.rjust(width) if right else value.ljust(width)
    return filled[:width] if cut else filled


def _whole(letter: str, value: str, heading: bool) -> bool:
    """Whether squeue lets this value stick out of its column."""
    if heading:
        return letter in "NYR"
    if letter == "R":  # a reason is cut, nodes are not
        return not value.startswith("(")
    if letter == "n" or letter == "x":  # written as lists of nodes, too
        return True
    return letter in _WHOLE and value not in ("UNLIMITED", "NOT_SET")
