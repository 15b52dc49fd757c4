"""Scalars of slurmrestd's JSON, by whatever data version they were written. Pure.

A number is plain in some versions and fields, and in others an object that can say "not set" and "infinite"; a state is
a word or a list of words. One reader takes all of these forms, so that the data versions differ in little else.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

from penstock.slurm.parse import ParseError

__all__ = ["amount", "count", "flags", "items", "limit", "member", "moment", "state", "text"]

_UNSET = frozenset({0xFFFE, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE})
_INFINITE = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


def member(value: Any, *path: str) -> Any:  # noqa: ANN401 (JSON)
    """What lies under these keys, one below the other; None where a key is not there."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def amount(value: object) -> float | None:
    """A number; None: not set; infinite as such. `ParseError` for anything else."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return math.inf
        return amount(value.get("number")) if value.get("set") else None
    if value is None or isinstance(value, bool):
        return None
    if value == "Infinity":
        return math.inf
    if not isinstance(value, int | float):
        raise ParseError("not a number", reprlib.repr(value))
    if value in _UNSET:
        return None
    return math.inf if value in _INFINITE else float(value)


def count(value: object, unset: int = 0) -> int:
    """A whole number; `unset` where it is not set or infinite."""
    found = amount(value)
    return unset if found is None or not math.isfinite(found) else int(found)


def moment(value: object) -> float | None:
    """Seconds since the epoch; None for never, not yet and not known, which 0 stands for."""
    found = amount(value)
    return None if found is None or found <= 0 or not math.isfinite(found) else found


def limit(value: object, unset: float | None) -> float | None:
    """A limit in minutes as seconds; None unlimited; `unset` where none is given."""
    found = amount(value)
    if found is None:
        return unset
    return None if math.isinf(found) else 60.0 * found


def text(value: object) -> str:
    """A text; empty for none. `ParseError` for what is no text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ParseError("not a text", reprlib.repr(value))
    return "" if value in ("(null)", "N/A", "None assigned") else value


def flags(value: object) -> tuple[str, ...]:
    """Words: a list of them, or one."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(word for word in value.split(",") if word)
    if not isinstance(value, list):
        raise ParseError("not a list of words", reprlib.repr(value))
    return tuple(str(word) for word in value)


def state(value: object) -> str:
    """A state as squeue would write it, of several words with `+`."""
    return "+".join(flags(value))


def items(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of an answer. `ParseError` where they are not there: that is not "none"."""
    found = document.get(name)
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise ParseError(f"an answer without {name}", reprlib.repr(document))
    return found
