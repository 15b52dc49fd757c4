"""The commands of a guide, as tests read them: fenced blocks that a comment before them marks.

<!-- try: package pip as root in the source -->     for these ways of installing; as root or as user; in which folder
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from places import PROJECT

GUIDE = PROJECT / "docs" / "install.md"

_BLOCK = re.compile(r"(?:<!-- try: ([a-z ]+) as (root|user)( in the source)? -->\n)?```sh\n(.*?)```\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Commands that are typed one after the other. `ways` is empty where they are not tried."""

    ways: frozenset[str]
    root: bool
    in_source: bool
    text: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """In their order."""
    for found in _BLOCK.finditer(text):
        ways, who, place, commands = found.groups()
        yield Block(
            frozenset((ways or "").split()),
            who == "root",
            bool(place),
            commands,
            text[: found.start(4)].count("\n") + 1,
        )
