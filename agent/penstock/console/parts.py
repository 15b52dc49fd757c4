"""What commands print for people, before it is known how: by `output` as it stands, or by `styled`."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TextLine", "TextTable"]


class TextLine(NamedTuple):
    """A text to print, in a style and indented by so many columns."""

    text: str
    style: str = ""
    indent: int = 0


class TextTable(NamedTuple):
    """Columns to print, of texts that are fit for a terminal; see `build_table`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
