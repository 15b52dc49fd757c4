"""Generic resources as Slurm writes them of nodes, and as people ask for them.

Of a node: name[:type][:no_consume]:number[K|M|G|T|P](S:sockets), by commas. In a request: name[[:type]:number], where
`=` may stand before the number and `gres:` or `gres/` before the name. K is 1024, KB 1000 (so Slurm's source has it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

__all__ = ["Gres", "asked_gres", "count_of", "counts", "node_gres"]

_NUMBER: Final = re.compile(r"([0-9]{1,20})(?:([kmgtp])(i?b)?)?", re.ASCII | re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z0-9_.+-]+", re.ASCII)
_BRACKETS: Final = re.compile(r"\([^()]*\)?")
_UNCONSUMED: Final = "no_consume"


class Gres(NamedTuple):
    """So many of a resource, of one type ("": any). `consumed`: whoever has some leaves less for others."""

    name: str
    type: str
    number: int
    consumed: bool = True


def node_gres(text: str) -> list[Gres]:
    """What a node has. What Slurm does not write is left out."""
    found = []
    for item in _items(_BRACKETS.sub("", text)):
        name, *rest = item.split(":")
        count = count_of(rest[-1]) if rest else None
        if count is not None:
            rest.pop()
        consumed = not rest or rest[-1].lower() != _UNCONSUMED
        if not consumed:
            rest.pop()
        if len(rest) <= 1 and all(map(_WORD.fullmatch, (name, *rest))):
            found.append(Gres(name, "".join(rest), 1 if count is None else count, consumed))
    return found


def asked_gres(text: str) -> list[Gres]:
    """What a request asks for; ValueError with the item for what is none. What is asked for 0 times is left out."""
    found = []
    for item in _items(text):
        name, *rest = re.sub("^gres[:/]", "", item).split(":")
        word, equals, number = ":".join((name, *rest)).partition("=")
        if equals:
            name, *rest = word.split(":")
        elif rest and count_of(rest[-1]) is not None:
            number = rest.pop()
        count = count_of(number or "1")
        if count is None or len(rest) > 1 or not all(map(_WORD.fullmatch, (name, *rest))):
            raise ValueError(item)
        if count:
            found.append(Gres(name, "".join(rest), count))
    return found


def counts(items: Iterable[Gres]) -> Mapping[str, int]:
    """How many of each name, and of each name with its type: "gpu:a100:2,nvme" -> gpu 2, gpu:a100 2, nvme 1."""
    found: dict[str, int] = {}
    for item in items:
        for name in (item.name, f"{item.name}:{item.type}") if item.type else (item.name,):
            found[name] = found.get(name, 0) + item.number
    return found


def count_of(text: str) -> int | None:
    """The number that a count with its unit stands for; None: it is none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    base = 1000 if (match[3] or "").lower() == "b" else 1024
    power = 1 + "kmgtp".index(match[2].lower()) if match[2] else 0
    return int(int(match[1]) * base**power)


def _items(text: str) -> Iterable[str]:
    return filter(None, (item.strip() for item in text.split(",")))
