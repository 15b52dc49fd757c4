"""What is said over the socket of the shared look. Pure.

One request, one line of JSON: `{"v": 1, "have": {"jobs": TAG, ...}}`, where `have` are the parts that the asker has
already. The answer is one line, too, a `LookHead` or a `LookRefusal`, and then the parts that it names with a size,
each a table (`rows`) as JSON, compressed by zlib. A part's tag is made of what is in it: two looks in which nothing has
changed have the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.api import Job, License, Node, Partition, Reservation
from penstock.site.look.rows import Row, TableError, from_table, to_table

__all__ = [
    "LONGEST_HEAD",
    "LONGEST_REQUEST",
    "PARTS",
    "VERSION",
    "LookHead",
    "LookPart",
    "LookRefusal",
    "PackedPart",
    "WireError",
    "decode_head",
    "decode_request",
    "encode_request",
    "packed",
    "unpacked",
]

VERSION: Final = 1
LONGEST_REQUEST: Final = 4096
LONGEST_HEAD: Final = 16384
_LARGEST: Final = 1 << 30  # bytes of a part, as it is when it is no longer compressed
PARTS: Final[Mapping[str, type]] = {
    "jobs": Job,
    "nodes": Node,
    "partitions": Partition,
    "reservations": Reservation,
    "licenses": License,
}
"""The parts of a look, each with what is in it."""


class WireError(ValueError):
    """What was read is not of this protocol, or is cut off."""


@dataclass(frozen=True, slots=True)
class PackedPart:
    """A part as it is sent."""

    tag: str
    data: bytes


@dataclass(frozen=True, slots=True)
class LookPart:
    """What an answer says of one part; `size` in bytes, 0 where the asker has it."""

    name: str
    tag: str
    size: int


@dataclass(frozen=True, slots=True)
class LookHead:
    """A look of the cluster that Slurm calls `cluster`, begun at `taken_at` (the controller's clock, which says `now`),
    `age` seconds ago. `instance` and `number` tell the service's run and its look; no look is handed out that is older
    than `promise` seconds."""

    cluster: str
    instance: str
    number: int
    taken_at: float
    now: float
    age: float
    promise: float
    parts: tuple[LookPart, ...]

    def encode(self) -> bytes:
        """The line."""
        said = {name: getattr(self, name) for name in _HEAD}
        return _line({"ok": True, **said, "parts": [[part.name, part.tag, part.size] for part in self.parts]})


@dataclass(frozen=True, slots=True)
class LookRefusal:
    """Why there is no look, by `error`: "slurm" (it gives no answer at present, ask again in `again_in` seconds),
    "private" (this user is to ask Slurm, which knows what they may see), "busy" (this user has asked too often),
    "request" (not understood)."""

    error: str
    message: str
    again_in: float = 0.0

    def encode(self) -> bytes:
        """The line."""
        said = {"ok": False, "error": self.error, "message": self.message, "again_in": self.again_in}
        return _line(said)


_HEAD: Final[Mapping[str, type]] = {
    "cluster": str,
    "instance": str,
    "number": int,
    "taken_at": float,
    "now": float,
    "age": float,
    "promise": float,
}


def encode_request(have: Mapping[str, str]) -> bytes:
    """The line of a request by somebody who has these parts, by name with their tags."""
    return _line({"have": dict(have)})


def decode_request(line: bytes) -> dict[str, str]:
    """The parts that the asker has. Raises WireError."""
    have = _object(line).get("have", {})
    if not isinstance(have, dict) or not all(isinstance(tag, str) for tag in have.values()):
        raise WireError("`have` must have a tag for each name")
    return have


def decode_head(line: bytes) -> LookHead | LookRefusal:
    """What the first line of an answer says. Raises WireError."""
    said = _object(line)
    if said.get("ok") is False:
        again: Any = said.get("again_in", 0.0)
        if type(again) not in (int, float) or not math.isfinite(again):
            raise WireError("`again_in` must be seconds")
        return LookRefusal(str(said.get("error")), str(said.get("message"))[:500], float(again))
    values: dict[str, Any] = {}
    value: Any
    for name, kind in _HEAD.items():
        value = said.get(name)
        if type(value) is int and kind is float:
            value = float(value)
        fits = type(value) is kind
        if not fits or (kind is float and not math.isfinite(value)):
            raise WireError(f"`{name}` is missing or no {kind.__name__}")
        values[name] = value
    return LookHead(**values, parts=_parts(said.get("parts")))


def _parts(said: object) -> tuple[LookPart, ...]:
    parts = []
    for entry in said if isinstance(said, list) else ():
        match entry:
            case [str(name), str(tag), int(size)] if 0 <= size <= _LARGEST:
                parts.append(LookPart(name, tag, size))
            case _:
                raise WireError("a part is a name, a tag and a size")
    missing = PARTS.keys() - {part.name for part in parts}
    if missing:
        raise WireError(f"the look has no {sorted(missing)[0]}")
    return tuple(parts)


def packed(kind: type[Row], items: list[Row]) -> PackedPart:
    """A part with these values."""
    text = json.dumps(to_table(kind, items), separators=(",", ":")).encode()
    return PackedPart(hashlib.sha256(text).hexdigest()[:24], zlib.compress(text, 1))


def unpacked(name: str, data: bytes) -> list[Any]:
    """What is in a part. Raises WireError."""
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(data, _LARGEST)
        if not opened.eof or opened.unused_data:
            raise WireError(f"the {name} are cut off")
        return list(from_table(PARTS[name], json.loads(text)))
    except (zlib.error, TableError, ValueError, RecursionError) as e:
        raise WireError(f"the {name} cannot be read: {e}") from e


def _object(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise WireError("not a line of JSON") from e
    if not isinstance(said, dict) or said.get("v") != VERSION:
        raise WireError(f"not of version {VERSION} of this protocol")
    return said


def _line(said: Mapping[str, Any]) -> bytes:
    return json.dumps({"v": VERSION, **said}).encode() + b"\n"
