"""A configuration that is plainly right, read without what checks one: in a tenth of the time.

Only what `checking` would take, with the same result; of the rest, right or wrong, None, and that has the last word.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from penstock.config import sections, words
from penstock.config.sections import Config

__all__ = ["plainly"]

_NAME: Final = re.compile(words.NAME)
_OR_NONE: Final = " | None"


def plainly(data: Mapping[str, Any]) -> Config | None:
    """The configuration that these values make, by section and key; None where only the whole check can tell.

    Raises ConfigError where a default is not known, such as the home of a user who has none.
    """
    try:
        return Config(**{name: _section(str(type_), keys) for name, type_, keys in _sections(data)})
    except ValueError:
        return None


def _sections(data: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    types = {one.name: str(one.type) for one in fields(Config)}
    if not data.keys() <= types.keys():
        raise ValueError("an unknown section")
    return [(name, types[name], keys) for name, keys in data.items()]


def _section(name: str, keys: Mapping[str, Any]) -> Any:  # noqa: ANN401
    section = getattr(sections, name)
    known = {one.name: one for one in fields(section)}
    if not isinstance(keys, dict) or not keys.keys() <= known.keys():
        raise ValueError("not a section, or an unknown key")
    return section(**{key: _value(said, str(known[key].type), known[key].metadata) for key, said in keys.items()})


def _value(said: object, form: str, bounds: Mapping[str, Any]) -> object:
    if form.endswith(_OR_NONE):
        if said is None:
            return None
        form = form.removesuffix(_OR_NONE)
    if form.startswith("Literal["):
        if type(said) is not str or said not in ast.literal_eval(f"({form.removeprefix('Literal[')[:-1]},)"):
            raise ValueError("none of the words")
        return said
    if (take := _TAKE.get(form)) is None:
        raise ValueError("a form that only the whole check knows")
    value = take(said)
    for bound, holds in _BOUNDS.items():
        if bound in bounds and not holds(value, bounds[bound]):
            raise ValueError("out of bounds")
    return value


def _text(said: object) -> str:
    if type(said) is not str or not said.isascii():
        raise ValueError("no plain text")
    return said


def _whole(said: object) -> int:
    if isinstance(said, str) and said.isascii() and said.isdecimal():
        return int(said)
    if not isinstance(said, int) or isinstance(said, bool):
        raise ValueError("no whole number")
    return int(said)


def _number(said: object) -> float:
    if not isinstance(said, int | float) or isinstance(said, bool) or not math.isfinite(said):
        raise ValueError("no number")
    return float(said)


def _at_least_none(value: float) -> float:
    if value < 0:
        raise ValueError("below 0")
    return value


def _truth(said: object) -> bool:
    if not isinstance(said, bool):
        raise ValueError("neither true nor false")
    return said


def _name(said: object) -> str:
    text = _text(said)
    if len(text) > words.NAME_LENGTH or not _NAME.fullmatch(text):
        raise ValueError("no name")
    return text


def _yes_or_no(said: object) -> object:
    if said not in ("auto", "yes", "no"):
        raise ValueError("none of the words")
    return said


def _file(said: object) -> Path:
    return words.at_home(said if isinstance(said, Path) else Path(_text(said)))


_TAKE: Final[Mapping[str, Callable[[object], Any]]] = {
    "str": _text,
    "int": _whole,
    "bool": _truth,
    "Finite": _number,
    "Seconds": lambda said: _at_least_none(_number(words.duration(said))),
    "Bytes": lambda said: _at_least_none(_whole(words.bytes_of(said))),
    "Name": _name,
    "Address": lambda said: words.address(_text(said)),
    "View": lambda said: words.view(_text(said)),
    "YesOrNo": _yes_or_no,
    "File": _file,
    "Anchored": lambda said: words.absolute(_file(said)),
}
_BOUNDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "gt": lambda value, bound: value > bound,
    "ge": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "le": lambda value, bound: value <= bound,
}
