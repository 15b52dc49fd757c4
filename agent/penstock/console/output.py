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

from penstock.console.answers import Answer, printed
from penstock.console.parts import TextLine, TextTable

__all__ = [
    "FORMAT",
    "GAP",
    "ago",
    "build_table",
    "clock",
    "emit_json",
    "in_local_time",
    "json_text",
    "plain",
    "say",
    "table",
    "terminal_width",
]

FORMAT: Final = 1
"""Of what --json prints: raised when a key goes or means something else."""
_WIDE: Final = 140
GAP: Final = 2
"""Columns between those of a table."""
_STYLED: Final = ("FORCE_COLOR", "TTY_COMPATIBLE", "JUPYTER_COLUMNS")
"""Variables by which rich takes for a terminal what is none."""


def plain(text: str) -> str:
    """A text for a terminal: what others have named a job must not move the cursor or colour the screen."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def json_text(answer: Mapping[str, Any] | Answer) -> str:
    """What a command answers, as JSON with the number of its format; `cli.schemas` has the schema of each."""
    told = printed(answer) if isinstance(answer, Answer) else answer
    return json.dumps({"format": FORMAT, **told}, indent=2, sort_keys=True, default=printed)


def emit_json(answer: Mapping[str, Any] | Answer) -> None:
    """Print what a command answers as JSON."""
    click.echo(json_text(answer))


def build_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], dispensable: Sequence[str] = ()
) -> TextTable:
    """A table; empty cells for None. Where it is wider than the terminal, columns that are `dispensable` are left out,
    the first of them first."""
    cells = [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]
    widths = [max(map(_cells, column)) for column in zip(columns, *cells, strict=True)]
    kept, room = list(range(len(columns))), terminal_width()
    for name in dispensable:
        if sum(widths[i] + GAP for i in kept) - GAP > room:
            kept = [i for i in kept if columns[i] != name]

    def of(row: Sequence[str]) -> tuple[str, ...]:
        return tuple(row[i] for i in kept)

    return TextTable(plain(title), of(columns), tuple(map(of, cells)), tuple(widths[i] for i in kept))


def _cells(text: str) -> int:
    """How many columns of a terminal it takes."""
    if _simple(text):
        return len(text)
    from rich.cells import cell_len  # slow to load

    return cell_len(text)


def _simple(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _marked(text: str) -> bool:
    """Whether rich may find markup in it: brackets, or a word between colons, which names a picture."""
    between = text.split(":")[1:-1]
    return "[" in text or any(" " not in word and not (len(word) == 2 and word.isdecimal()) for word in between)


def terminal_width() -> int:
    """Columns of what is printed on: of a terminal its own, else $COLUMNS, or wide."""
    if sys.stdout.isatty():
        from penstock.console.styled import Terminal  # slow to load

        return Terminal().width
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else _WIDE


def say(*parts: str | TextLine | TextTable, width: int | None = None, highlight: bool = False) -> None:
    """Print tables and texts one below the other; a mere text is rich's markup. `width`: where it is no terminal;
    `highlight`: numbers where it is one."""
    room = width if width is not None and not sys.stdout.isatty() else terminal_width()
    lines = None if sys.stdout.isatty() or any(map(os.environ.get, _STYLED)) else _lines(parts, room)
    if lines is None:
        from penstock.console.styled import Terminal, styled  # slow to load

        Terminal(width=room).print(*styled(parts), sep="\n", highlight=highlight)
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


def _lines(parts: Sequence[str | TextLine | TextTable], room: int) -> list[str] | None:
    """What rich makes of these where it need not break a line nor read markup; None where it has to."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts, markup = [part], [part]
            lines.append(part)
        elif isinstance(part, TextLine):
            texts, markup = [part.text], []
            lines.append(f"{' ' * part.indent}{part.text}".ljust(room if part.indent else 0))
        else:
            width = sum(part.widths) + GAP * (len(part.widths) - 1)
            texts = [part.title, *part.columns, *(cell for row in part.rows for cell in row)]
            markup = [*part.columns]
            if not part.widths or not all(part.widths) or len(part.title) > width:
                return None
            lines += [part.title.ljust(width)] if part.title else []
            for row in (part.columns, *part.rows):
                lines.append((" " * GAP).join(map(str.ljust, row, part.widths)))
        if not all(map(_simple, texts)) or any(map(_marked, markup)):
            return None
    return lines if all(len(line) <= room for line in lines) else None


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], dispensable: Sequence[str] = ()
) -> None:
    """Print a table; empty cells for None. See `build_table`."""
    say(build_table(title, columns, rows, dispensable))


def clock(at: float | None) -> str:
    """A time of day, or empty."""
    return "" if at is None else time.strftime("%H:%M:%S", time.localtime(at))


_UTC: Final = r"(?:(\d{4}-\d\d-\d\d) )?\b(\d\d:\d\d(:\d\d)?)Z"


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

    return re.sub(_UTC, told, text)


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
