"""Values from files that people write (`yaml12`), and what to say of what is wrong in them, on one line.

A number keeps its text, for where a text is meant (`as_written`): `1.10` is not `1.1` there.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["MAX_BYTES", "as_written", "brief", "flat", "parse_json", "real", "show", "whole"]

MAX_BYTES: Final = 1_000_000
_BRIEF: Final = reprlib.Repr()
_BRIEF.maxother = _BRIEF.maxstring = 200


class _Int(int):
    """A whole number that stands in a file otherwise than Python writes it."""

    written: str


class _Float(float):
    """As `_Int`."""

    written: str


def whole(text: str) -> int:
    """The number of this text, which it keeps."""
    number = int(text)
    if str(number) == text:
        return number
    made = _Int(number)
    made.written = text
    return made


def real(text: str, number: float) -> float:
    """The same of a number of this text."""
    if str(number) == text:
        return number
    made = _Float(number)
    made.written = text
    return made


def as_written(value: object) -> str | None:
    """A text, or a number as it stands in its file (`1.10`, `007`, `1e3`); None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value.written if isinstance(value, _Int | _Float) else str(value)


def parse_json(text: str) -> Any:  # noqa: ANN401 (whatever it is)
    """As `json.loads`, with numbers that keep their text. Raises ValueError and RecursionError."""
    return json.loads(text, parse_int=whole, parse_float=lambda number: real(number, float(number)))


def flat(error: object) -> str:
    """A message on one line."""
    return " ".join(str(error).split())[:200]


def brief(error: BaseException) -> str:
    """An error that nobody foresaw, as `repr` has it, whatever foreign value is in it: short, on one line."""
    try:
        return _BRIEF.repr(error)
    except Exception:  # its arguments may be anything
        return type(error).__name__


def show(value: object) -> str:
    """A value as an error message shows it: short, on one line."""
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, _Int | _Float):
        return value.written[:40]
    from decimal import Decimal  # slow to load

    if isinstance(value, Decimal):
        return str(value)[:40]
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer with too many digits to print
        return "a huge number"
