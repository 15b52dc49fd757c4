"""Typed values of a consumable's form: numbers, texts, versions and booleans, equal only to their own kind.

Ha et al., section III-B1: the operator that decides whether two values are equal depends on their type.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.values.documents import show

__all__ = ["Value", "ValueKind", "value_of"]


class ValueKind(StrEnum):
    """What a value is."""

    NUMBER = "number"
    TEXT = "text"
    VERSION = "version"
    BOOLEAN = "boolean"


_VERSION: Final = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){1,5})", re.ASCII | re.IGNORECASE)
_COMPARISON: Final = re.compile(r"(>=|<=|!=|>|<)\s*(\S.*)")
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Value:
    """A value in the form that is compared: texts in lower case, versions as numbers without zeros at their end.

    `comparison` (">=", "<", "!=" …) makes it one side of a requirement that many values meet; "" is the value itself.
    """

    kind: ValueKind
    content: float | str | bool | tuple[int, ...]
    comparison: str = ""

    def meets(self, wanted: Value) -> bool:
        """Whether this value of a capability is what a requirement wants; values of two kinds never meet."""
        if self.kind is not wanted.kind:
            return False
        if not wanted.comparison:
            return self.content == wanted.content
        return bool(_OPERATORS[wanted.comparison](self.content, wanted.content))

    def __str__(self) -> str:
        if self.kind is ValueKind.VERSION:
            assert isinstance(self.content, tuple)
            text = ".".join(map(str, self.content if len(self.content) > 1 else (*self.content, 0)))
        elif self.kind is ValueKind.NUMBER:
            text = f"{self.content:g}"
        elif self.kind is ValueKind.BOOLEAN:
            text = "true" if self.content else "false"
        else:
            text = str(self.content)
        return f"{self.comparison}{text}"


def value_of(raw: bool | float | str) -> Value:
    """The typed value of what a file says: `2` and `2.0` are one number, `"4.1"` and `"4.1.0"` one version, `"4.1"` and
    `"4.10"` two; texts compare without regard to case. `">=2.17"` is met by versions from 2.17 on, `">=8"` by numbers.

    Raises ValueError for what is none of these (nan, infinity, an empty text, a comparison of texts by size).
    """
    if isinstance(raw, bool):
        return Value(ValueKind.BOOLEAN, raw)
    if isinstance(raw, int | float):
        if not math.isfinite(raw):
            raise ValueError(f"{raw} is no number to compare with")
        return Value(ValueKind.NUMBER, float(raw))
    text = raw.strip()
    if not text:
        raise ValueError("an empty text is no value")
    compared = _COMPARISON.fullmatch(text)
    if compared is None:
        return _plain(text)
    operand = _plain(compared[2])
    if operand.kind is ValueKind.TEXT:
        operand = _number(compared[2]) or operand
    if operand.kind is ValueKind.TEXT and compared[1] != "!=":
        raise ValueError(f"{show(text)}: only numbers and versions are smaller or larger than others")
    return Value(operand.kind, operand.content, compared[1])


def _plain(text: str) -> Value:
    version = _VERSION.fullmatch(text)
    if version is None:
        return Value(ValueKind.TEXT, text.lower())
    parts = [int(part) for part in version[1].split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return Value(ValueKind.VERSION, tuple(parts))


def _number(text: str) -> Value | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return Value(ValueKind.NUMBER, number) if math.isfinite(number) else None
