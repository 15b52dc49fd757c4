"""YAML that people write, as its version 1.2 reads scalars: `no` is a text, `1:30` and `010` are no base-60 or octal
numbers, a key that is there twice is refused. Complaints are one line (`UserError`).
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from penstock.errors import UserError
from penstock.values.documents import MAX_BYTES, flat, real, show, whole

__all__ = ["parse_yaml"]

_DEEPEST: Final = 50
_MOST_WRITTEN_OUT: Final = 4 * MAX_BYTES


class _Loader(yaml.SafeLoader):
    """Safe, with the scalars of YAML 1.2's core schema and without doubled keys."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  (PyYAML's own protocol: a copy, filled below)

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:  # noqa: N803 (PyYAML's name)
        # The scanner looks at all open brackets for every token, which takes seconds where there are a thousand.
        if self.flow_level >= _DEEPEST:
            raise yaml.scanner.ScannerError(None, None, "brackets are nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {show(key.value)} is there twice", key.start_mark
                    )
                seen.add(key.value)
        made = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            raise yaml.constructor.ConstructorError(
                None, None, "two keys are the same number: quote those that are names", node.start_mark
            )
        return made


def _resolvers() -> None:
    null, boolean = r"~|null|Null|NULL|", r"true|True|TRUE|false|False|FALSE"
    integer = r"[-+]?[0-9]+"
    real = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    for tag, pattern, first in (
        ("null", null, ["~", "n", "N", ""]),
        ("bool", boolean, list("tTfF")),
        ("int", integer, list("-+0123456789")),
        ("float", real, list("-+.0123456789")),
    ):
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), first)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    return whole(str(loader.construct_scalar(node)))


def _real(loader: _Loader, node: yaml.ScalarNode) -> float:
    return real(str(loader.construct_scalar(node)), loader.construct_yaml_float(node))


_resolvers()
# `010` is ten (PyYAML's own constructor would read it as octal)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _real)


def parse_yaml(data: bytes | str, what: str) -> object:
    """What is in a YAML text; `what` it should be, for messages. Raises UserError."""
    if len(data) > MAX_BYTES:
        raise UserError(f"is larger than {MAX_BYTES // 1000} kB, which no {what} needs")
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"line {line}: must be UTF-8 text, but byte {error.start} is not") from error
    try:
        document = _document(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise UserError(f"{place}is not valid YAML: {flat(error.problem or error.context or 'unknown')}") from error
    except RecursionError as error:
        raise UserError(f"is not a {what}: it is nested too deeply") from error
    # PyYAML lets these through for explicit tags ("!!int x") and unreadable characters
    except (yaml.YAMLError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"is not valid YAML: {flat(error)}") from error
    return document


def _document(text: str) -> object:
    loader = _Loader(text)  # a SafeLoader with fewer types
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if "&" in text and _written_out(node, {}) > _MOST_WRITTEN_OUT:
            raise UserError(f"with its aliases written out is larger than {_MOST_WRITTEN_OUT // 1_000_000} MB")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _written_out(node: yaml.Node, known: dict[yaml.Node, int | None]) -> int:
    """How many characters a node has when what its aliases stand for is written out at each of them."""
    if isinstance(node, yaml.ScalarNode):
        return len(node.value) + 1
    if node in known:
        if (size := known[node]) is None:
            raise yaml.constructor.ConstructorError(
                None, None, "an alias stands in what it stands for", node.start_mark
            )
        return size
    known[node] = None
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    size = 1 + sum(_written_out(part, known) for part in parts)
    known[node] = size
    return size
