"""Dataclasses to JSON and back, led by their type hints; and the Backend's calls as messages.

A request is one line `{"method": …, "params": {…}}`, its answer one line `{"result": …}` or
`{"error": {"class": "NotNow", "text": "…"}}`. Infinity travels as JSON's usual extension of that name.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from penstock import errors
from penstock.slurm.base import Backend, Changer, Reader

__all__ = ["CALLS", "CHANGING", "decode", "decode_error", "decode_params", "encode", "encode_error", "result_type"]

CHANGING = frozenset(name for name, call in vars(Changer).items() if inspect.iscoroutinefunction(call))
CALLS = CHANGING | {name for name, call in vars(Reader).items() if inspect.iscoroutinefunction(call)}


def encode(value: object) -> Any:  # noqa: ANN401 (JSON)
    """Plain JSON values for dataclasses, enums, mappings, sets and sequences of them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(encode(v) for v in value)
    if isinstance(value, Collection):
        return [encode(v) for v in value]
    raise TypeError(f"cannot send a {type(value).__name__}")


def decode(hint: Any, data: Any) -> Any:  # noqa: ANN401 (JSON; one return per kind of type)
    """The value of type `hint` that `encode` made `data` of. ValueError when it does not fit."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if data is None and types.NoneType in arguments:
            return None
        (inner,) = [a for a in arguments if a is not types.NoneType]
        return decode(inner, data)
    if hint in (None, types.NoneType):
        return _expect(data is None, None, hint, data)
    if hint is float:
        return _expect(isinstance(data, int | float) and not isinstance(data, bool), data, hint, data)
    if hint in (str, int, bool):
        return _expect(type(data) is hint, data, hint, data)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), data, hint, data)
        return {_key(arguments[0], k): decode(arguments[1], v) for k, v in data.items()}
    if origin is not None and issubclass(origin, Collection):
        _expect(isinstance(data, list), data, hint, data)
        make = list if origin in (Sequence, Collection) else origin
        return make(decode(arguments[0], v) for v in data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        _expect(isinstance(data, dict) and set(data) <= set(hints), data, hint, data)
        try:
            return hint(**{name: decode(hints[name], v) for name, v in data.items()})
        except TypeError as e:
            raise ValueError(str(e)) from None
    raise TypeError(f"cannot receive a {hint}")


def _key(hint: Any, text: str) -> Any:  # noqa: ANN401 (a type hint)
    """A mapping's key: JSON knows text only."""
    return int(text) if hint is int else decode(hint, text)


def _expect(fits: bool, value: object, hint: object, data: object) -> object:
    if not fits:
        raise ValueError(f"not a {hint}: {data!r}")
    return value


def decode_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the Backend's call `method` by name. ValueError when they do not fit its signature."""
    hints = typing.get_type_hints(getattr(Backend, method))
    unknown = set(params) - set(hints)
    if unknown:
        raise ValueError(f"{method} has no argument {sorted(unknown)}")
    return {name: decode(hints[name], value) for name, value in params.items()}


def result_type(method: str) -> Any:  # noqa: ANN401 (a type hint)
    """What the Backend's call `method` returns."""
    return typing.get_type_hints(getattr(Backend, method))["return"]


def encode_error(error: errors.PenstockError) -> dict[str, str]:
    """An error by the name of its class."""
    return {"class": type(error).__name__, "text": str(error)}


def decode_error(data: Mapping[str, str]) -> errors.PenstockError:
    """The error again; one whose class is not known here becomes SlurmUnavailable (nothing can be trusted then)."""
    name = data.get("class", "")
    kind = getattr(errors, name) if name in errors.__all__ else errors.SlurmUnavailable
    error: errors.PenstockError = kind(data.get("text", ""))
    return error
