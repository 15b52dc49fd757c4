"""Reads task and resource files: YAML or JSON, with the files that they include."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.errors import UserError
from penstock.values.documents import MAX_BYTES, flat, parse_json, show
from penstock.values.yaml12 import parse_yaml

__all__ = ["Entry", "entries", "read"]

_MAX_JSON: Final = 200_000_000
_MAX_FILES: Final = 1000

Entry = tuple[str, object, Path]
"""Where it stands, for messages; what is there; and the folder of its file."""


def read(path: Path, what: str) -> object:
    """What is in a file; `what` it should be, for messages. UserError names the file, and the line where it can."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_JSON + 1)
    except OSError as e:
        raise UserError(f"{path}: cannot be read: {e.strerror or e}") from None
    start = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    try:
        if start in (b"{", b"["):
            try:
                return parse_json(data.decode("utf-8-sig"))
            except (ValueError, RecursionError) as e:
                # YAML may be written with braces, too.
                if len(data) > MAX_BYTES or path.suffix == ".json":
                    raise UserError(f"is not valid JSON: {flat(e)}") from None
        return parse_yaml(data, what)
    except UserError as e:
        raise UserError(f"{path}: {e}") from None


def entries(path: Path, key: str, what: str) -> Iterator[Entry]:
    """The entries of a file and of those that it includes, in order.

    A file is a map with a list (or a map by name) under `key`, a list, or one entry; `include:` names other files,
    beside it. UserError for files that include one another, and what `read` raises.
    """
    yield from _entries(path, key, what, ())


def _entries(path: Path, key: str, what: str, above: tuple[Path, ...]) -> Iterator[Entry]:
    real = path.resolve()
    if real in above:
        chain = " -> ".join(str(one.name) for one in (*above[above.index(real) :], real))
        raise UserError(f"{path}: includes itself ({chain})")
    if len(above) > _MAX_FILES:
        raise UserError(f"{path}: more than {_MAX_FILES} files include one another")
    document = read(path, what)
    if isinstance(document, dict) and "include" in document:
        document = dict(document)
        for other in _included(path, document.pop("include")):
            if not (path.parent / other).is_file():
                raise UserError(f"{path}: include: there is no file {path.parent / other}")
            yield from _entries(path.parent / other, key, what, (*above, real))
        if not document:
            return
    if isinstance(document, dict) and key in document:
        unknown = [name for name in document if name != key]
        if unknown:
            raise UserError(f"{path}: unknown key {show(unknown[0])} beside {key!r} (known: {key}, include)")
        document = document[key]
        if isinstance(document, dict):
            document = [_named(path, f"{key}.{name}", name, one) for name, one in document.items()]
        elif not isinstance(document, list):
            raise UserError(f"{path}: {key}: must be a list, not {show(document)}")
    if isinstance(document, list):
        for number, one in enumerate(document):
            yield f"{path}: {key}[{number}]", one, path.parent
    elif isinstance(document, dict):
        yield str(path), document, path.parent
    else:
        raise UserError(f"{path}: must be a map or a list, not {show(document)}")


def _named(path: Path, where: str, name: object, entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UserError(f"{path}: {where}: must be a map, not {show(entry)}")
    return {"name": name, **entry}


def _included(path: Path, value: object) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise UserError(f"{path}: include: must be the name of a file, or a list of names, not {show(value)}")
    return names
