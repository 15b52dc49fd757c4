"""Values of `penstock.api` as tables of JSON, and back. Pure.

A table has its columns by name, each with the value of every row: `{"id": [7, 8], "uid": [1000, 1000], ...}`. Columns
that the reader does not know are left out, and those that the writer did not know have their defaults, so that the
releases of the two may differ. It is read column by column, as a queue has tens of thousands of jobs.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.api import Job, JobState, License, Node, Partition, Reservation

__all__ = ["Row", "TableError", "from_table", "to_table"]

Row = TypeVar("Row", Job, Node, Partition, Reservation, License)
Values = Sequence[Any]

_PLAIN: Final[Mapping[Any, frozenset[type]]] = {
    str: frozenset({str}),
    int: frozenset({int}),
    bool: frozenset({bool}),
    float: frozenset({float, int}),
}


class TableError(ValueError):
    """What was read is no table of these values."""


class _Column(NamedTuple):
    """How the values of one field are written and read. `read` raises ValueError or TypeError; `default` gives that of
    a row without it, None where there is none."""

    write: Callable[[Values], Values]
    read: Callable[[Values], Values]
    default: Callable[[], Any] | None


def to_table(kind: type[Row], items: Iterable[Row]) -> dict[str, Any]:
    """The table of these values."""
    items = list(items)
    return {name: column.write([getattr(item, name) for item in items]) for name, column in _COLUMNS[kind].items()}


def from_table(kind: type[Row], table: object) -> list[Row]:
    """The values of a table. Raises TableError."""
    what = f"the table of {kind.__name__.lower()}s"
    if not isinstance(table, dict) or not all(isinstance(values, list) for values in table.values()):
        raise TableError(f"{what} is none")
    sizes = {len(values) for values in table.values()}
    if len(sizes) != 1:
        raise TableError(f"the columns of {what} differ in length")
    given: list[Iterable[Any]] = []
    for name, column in _COLUMNS[kind].items():
        if name in table:
            try:
                given.append(column.read(table[name]))
            except (TypeError, ValueError) as e:
                raise TableError(f"column {name} of {what}: {e}") from e
        elif column.default is not None:
            given.append(repeat(column.default(), *sizes))
        else:
            raise TableError(f"{what} has no column {name}")
    return list(map(kind, *given))


def _columns_of(kind: type[Any]) -> Mapping[str, _Column]:
    """By the names of the fields, in the order of the constructor's arguments."""
    hints, columns = get_type_hints(kind), {}
    for field in fields(kind):
        default: Callable[[], Any] | None = None
        if field.default is not MISSING:
            default = _always(field.default)
        elif field.default_factory is not MISSING:
            default = field.default_factory
        columns[field.name] = _Column(*_ways(hints[field.name]), default)
    return columns


def _always(value: Any) -> Callable[[], Any]:  # noqa: ANN401
    return lambda: value


def _ways(hint: Any) -> tuple[Callable[[Values], Values], Callable[[Values], Values]]:  # noqa: ANN401
    """How a column of this type is written and read."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in arguments if one is not types.NoneType)
        return list, _plain(_PLAIN[inner] | {types.NoneType}, as_float=inner is float)
    if hint in _PLAIN:
        return list, _plain(_PLAIN[hint], as_float=hint is float)
    if hint is JobState:
        return _each(str), _each(JobState)
    if origin is tuple and arguments == (str, ...):
        return _each(list), _names(tuple)
    if origin is frozenset and arguments == (str,):
        return _each(sorted), _names(frozenset)
    if origin is Mapping and arguments == (str, float):
        return _each(dict), _each(_numbers)
    raise TypeError(f"no way to write {hint}")


def _each(change: Callable[[Any], Any]) -> Callable[[Values], Values]:
    return lambda values: list(map(change, values))


def _plain(accepted: frozenset[type], *, as_float: bool) -> Callable[[Values], Values]:
    def read(values: Values) -> Values:
        found = set(map(type, values))
        if not found <= accepted:
            raise TypeError(f"{', '.join(sorted(one.__name__ for one in found - accepted))} does not belong there")
        if as_float and int in found:
            return [float(value) if type(value) is int else value for value in values]
        return values

    return read


def _names(kind: Callable[[Iterable[str]], Any]) -> Callable[[Values], Values]:
    def read(values: Values) -> Values:
        if not set(map(type, values)) <= {list} or not {type(one) for value in values for one in value} <= {str}:
            raise TypeError("lists of names belong there")
        return list(map(kind, values))

    return read


def _numbers(value: Any) -> Mapping[str, float]:  # noqa: ANN401
    if type(value) is not dict or not all(type(one) in (float, int) for one in value.values()):
        raise TypeError("numbers by name belong there")
    return types.MappingProxyType({str(name): float(one) for name, one in value.items()})


_COLUMNS: Final[Mapping[type[Any], Mapping[str, _Column]]] = {
    kind: _columns_of(kind) for kind in (Job, Node, Partition, Reservation, License)
}
