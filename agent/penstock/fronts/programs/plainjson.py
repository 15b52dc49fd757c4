"""JSON by the functions of C behind Python's package, which takes longer to load than the rest of a front program.

Where this Python has other ones, the package does it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["dumps", "loads"]


class _Usual:
    """How values are made, as the package makes them where it is told nothing."""

    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int


def dumps(value: object) -> str:
    """As `json.dumps`."""
    try:
        from _json import encode_basestring_ascii as text

        return _written(value, text)
    except ImportError:
        from json import dumps

        return dumps(value)


def loads(text: str) -> Any:  # noqa: ANN401 (whatever it is)
    """As `json.loads`. Raises ValueError."""
    try:
        from _json import make_scanner

        told = text.strip(" \t\n\r")
        value, end = make_scanner(_Usual)(told, 0)  # type: ignore[arg-type]
        if end == len(told):
            return value
    except (ImportError, TypeError, AttributeError, StopIteration, ValueError):
        pass
    from json import loads  # which says what is wrong

    return loads(text)


def _written(value: object, text: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return str(text(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(key)}: {_written(inner, text)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_written(inner, text) for inner in value) + "]"
    if value is None:
        return "null"
    if type(value) in (int, float) and value - value == 0:  # type: ignore[operator]
        return repr(value)
    from json import dumps

    return dumps(value)
