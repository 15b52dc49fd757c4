"""Whether what was read into a dataclass is of the kinds that its fields say. Pure.

A document that was damaged, or written by hand, may have a text where a number belongs, which shows only where the
number is used. What a field's annotation says is looked at as far as plain values go; what is unknown here passes.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

__all__ = ["of_their_kinds"]

_PLAIN: Final = (str, bool, int, float)


def of_their_kinds(value: object) -> None:
    """Raises TypeError, with the way to it, where a value in this dataclass is not of its field's kind."""
    for name, kind in _kinds(type(value)):  # type: ignore[arg-type]  # a class is hashable
        _look(getattr(value, name), kind, name)


@lru_cache(256)
def _kinds(made: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(made)
    return tuple((field.name, hints[field.name]) for field in fields(made))


def _look(value: object, kind: Any, where: str) -> None:  # noqa: ANN401 (an annotation)
    origin = get_origin(kind)
    if kind in _PLAIN or kind is None or kind is types.NoneType:
        if not _is(value, kind):
            raise TypeError(f"{where} is {type(value).__name__}, not {getattr(kind, '__name__', kind)}")
    elif origin in (Union, types.UnionType):
        _one_of(value, get_args(kind), where)
    elif isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, kind):
            raise TypeError(f"{where} is no {kind.__name__}")
        for name, inner in _kinds(type(value)):
            _look(getattr(value, name), inner, f"{where}.{name}")
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        _within_map(value, get_args(kind), where)
    elif isinstance(origin, type) and issubclass(origin, Collection):
        _within(value, get_args(kind), where)


def _is(value: object, kind: Any) -> bool:  # noqa: ANN401 (an annotation)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return value is None if kind in (None, types.NoneType) else isinstance(value, kind)


def _one_of(value: object, kinds: tuple[Any, ...], where: str) -> None:
    wrong: list[TypeError] = []
    for kind in kinds:
        try:
            _look(value, kind, where)
        except TypeError as e:
            wrong.append(e)
        else:
            return
    raise wrong[0]


def _within_map(value: object, kinds: tuple[Any, ...], where: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{where} is no map")
    if len(kinds) == 2:
        for key, one in value.items():
            _look(key, kinds[0], f"a key of {where}")
            _look(one, kinds[1], f"{where}[{key!r:.40}]")


def _within(value: object, kinds: tuple[Any, ...], where: str) -> None:
    if isinstance(value, str | bytes) or not isinstance(value, Collection):
        raise TypeError(f"{where} is {type(value).__name__}, not several values")
    inner = [kind for kind in kinds if kind is not Ellipsis]
    if len(inner) == 1:
        inner = inner * len(value)
    if len(inner) != len(value):
        raise TypeError(f"{where} has {len(value)} values, not {len(inner)}")
    for place, (one, kind) in enumerate(zip(value, inner, strict=True)):
        _look(one, kind, f"{where}[{place}]")
