"""Kinds of state files: what each has to have in it, for who checks, copies and salvages them (`penstock db`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.config import Config

__all__ = ["Documents", "FileKind", "Row", "same", "stored_json", "stored_map"]

Row = Mapping[str, Any]
"""A row by column."""
Documents = Mapping[str, Mapping[str, Callable[[Row], object]]]
"""By table and column: what reads it, and raises one of `UNREADABLE` where it cannot."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a file should be: what made it (one script a version, empty for those that are too old), what is in its
    documents, a table that it must have, by table the column that says when a row was written, where it is, and what
    brings an older one up to date; the mark in its header (0: none). `text` is the help of the option that chooses
    it."""

    name: str
    scripts: Sequence[str]
    documents: Documents
    table: str
    when: Mapping[str, str]
    path: Callable[[Config], Path]
    update: Callable[[Path], None]
    mark: int = 0
    text: str = ""

    @property
    def version(self) -> int:
        """The one that this release writes."""
        return len(self.scripts)

    @property
    def oldest(self) -> int:
        """The first one that this release goes on from."""
        return next(i for i, script in enumerate(self.scripts, 1) if script)


_PAIR: Final = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}", re.IGNORECASE)


def stored_json(text: str) -> Any:  # noqa: ANN401
    """What a stored text says. Raises ValueError where it is no JSON, or has half a character."""
    found = json.loads(text)
    halves = text.count("\\ud") + text.count("\\uD")
    if halves and halves != 2 * len(_PAIR.findall(text)):
        # Perhaps half of a pair, which no text that is written or shown can have.
        json.dumps(found, ensure_ascii=False).encode()
    return found


def stored_map(value: object) -> Mapping[str, Any]:
    """That value, which has to be a map. Raises TypeError."""
    if not isinstance(value, dict):
        raise TypeError("it is no map")
    return value


def same(said: object, row: object) -> None:
    """Raises ValueError where a document says that it is another one than its row."""
    if said != row:
        raise ValueError(f"it says that it is {said!r}")
