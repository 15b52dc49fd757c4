"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.console.answers import Answer, printed

__all__ = [
    "FORMAT",
    "Terminal",
    "ago",
    "build_table",
    "clock",
    "emit_json",
    "in_local_time",
    "json_text",
    "plain",
    "plain_text",
    "say",
    "table",
    "terminal_width",
]

FORMAT: Final = 1
"""Of what --json prints: raised when a key goes or means something else."""
_WIDE: Final = 140
_GAP: Final = 2
_SHORT: Final = 24


class Terminal(Console):
    """What is printed on. rich ends the program with 1 when nobody reads any more; that is for `main` to say."""

    def on_broken_pipe(self) -> None:
        """Called by rich instead of raising."""
        raise BrokenPipeError


def plain(text: str) -> str:
    """A text for a terminal: what others have named a job must not move the cursor or colour the screen."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain_text(text: str, style: str = "") -> Text:
    """The same for rich, which shall find no markup in it."""
    return Text(plain(text), style=style)


def json_text(answer: Mapping[str, Any] | Answer) -> str:
    """What a command answers, as JSON with the number of its format; `cli.schemas` has the schema of each."""
    told = printed(answer) if isinstance(answer, Answer) else answer
    return json.dumps({"format": FORMAT, **told}, indent=2, sort_keys=True, default=printed)


def emit_json(answer: Mapping[str, Any] | Answer) -> None:
    """Print what a command answers as JSON."""
    click.echo(json_text(answer))


def build_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], dispensable: Sequence[str] = ()
) -> Table:
    """A table; empty cells for None. Where it is wider than the terminal, columns that are `dispensable` are left out,
    the first of them first; a column of single words gives way last."""
    cells = [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    kept, room = list(range(len(columns))), terminal_width()
    for name in dispensable:
        if sum(widths[i] + _GAP for i in kept) - _GAP > room:
            kept = [i for i in kept if columns[i] != name]
    out = Table(title=Text(plain(title)), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for i in kept:
        words = not any(" " in row[i] for row in cells)
        out.add_column(columns[i], overflow="fold", no_wrap=words and widths[i] <= _SHORT)
    for row in cells:
        # As a text, not as rich's markup, which has brackets as nodes and jobs have them in their names.
        out.add_row(*(Text(row[i]) for i in kept))
    return out


def terminal_width() -> int:
    """Columns of what is printed on: of a terminal its own, else $COLUMNS, or wide."""
    if sys.stdout.isatty():
        return Terminal().width
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else _WIDE


def say(*parts: RenderableType) -> None:
    """Print tables and texts one below the other."""
    Terminal(width=terminal_width()).print(*parts, sep="\n", highlight=False)


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], dispensable: Sequence[str] = ()
) -> None:
    """Print a table; empty cells for None. See `build_table`."""
    say(build_table(title, columns, rows, dispensable))


def clock(at: float | None) -> str:
    """A time of day, or empty."""
    return "" if at is None else time.strftime("%H:%M:%S", time.localtime(at))


_UTC = re.compile(r"(?:(\d{4}-\d\d-\d\d) )?\b(\d\d:\d\d(:\d\d)?)Z")


def in_local_time(text: str, at: float) -> str:
    """A sentence of the agent, which names instants in UTC, with them as all other times here. One without a date is
    the nearest to `at`, when the sentence was written."""

    def told(found: re.Match[str]) -> str:
        day, hour, seconds = found.groups()
        try:
            near = datetime.fromtimestamp(at, UTC)
            when = datetime.fromisoformat(f"{day or near.date()}T{hour}+00:00")
            if day is None:
                when -= timedelta(days=round((when - near) / timedelta(days=1)))
            local = when.astimezone()
        except (ValueError, OverflowError, OSError):  # no time of day
            return found[0]
        return local.strftime(("" if day is None else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M"))

    return _UTC.sub(told, text)


def ago(seconds: float | None) -> str:
    """A duration as a person would say it, such as 3m20s."""
    if seconds is None:
        return ""
    seconds = round(seconds)
    if abs(seconds) < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 120:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
