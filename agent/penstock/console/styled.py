"""What a terminal is shown with styles and broken lines: by rich, which takes long to load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich import console, padding, table, text
from rich.live import Live

from penstock.console.parts import TextLine, TextTable

__all__ = ["Live", "Terminal", "group", "styled"]

_SHORT: Final = 24


class Terminal(console.Console):
    """What is printed on. rich ends the program with 1 when nobody reads any more; that is for `main` to say."""

    def on_broken_pipe(self) -> None:
        """Called by rich instead of raising."""
        raise BrokenPipeError


def styled(parts: Iterable[str | TextLine | TextTable]) -> list[console.RenderableType]:
    """As rich prints them."""
    return [_one(part) for part in parts]


def _one(part: str | TextLine | TextTable) -> console.RenderableType:
    if isinstance(part, TextLine):
        return _line(part)
    return _table(part) if isinstance(part, TextTable) else part


def group(parts: Iterable[str | TextLine | TextTable]) -> console.Group:
    """All of them, one below the other."""
    return console.Group(*styled(parts))


def _line(line: TextLine) -> console.RenderableType:
    shown = text.Text(line.text, style=line.style)  # which finds no markup in it
    return padding.Padding(shown, (0, 0, 0, line.indent)) if line.indent else shown


def _table(told: TextTable) -> table.Table:
    """A column of single words gives way last."""
    title = text.Text(told.title)
    out = table.Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for i, (name, width) in enumerate(zip(told.columns, told.widths, strict=True)):
        words = not any(" " in row[i] for row in told.rows)
        out.add_column(name, overflow="fold", no_wrap=words and width <= _SHORT)
    for row in told.rows:
        # As a text, not as rich's markup, which has brackets as nodes and jobs have them in their names.
        out.add_row(*map(text.Text, row))
    return out
