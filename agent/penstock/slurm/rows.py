"""An answer of a Slurm command as rows. Part of `records`.

A user can put any text, newlines and separators included, into a job's name, and into its account where accounting is
not enforced (tried on 22.05). So the fields and rows are separated by a mark that is drawn anew for every request: who
does not know it cannot forge a field. The number of fields and rows is checked all the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from penstock.slurm.hostlist import ParseError
from penstock.values.lines import split_lines

__all__ = ["draw_mark", "lines_of", "long_format", "split_rows"]


def draw_mark() -> str:
    """A separator that nobody can guess."""
    return f"@{secrets.token_hex(8)}@"


def long_format(fields: Iterable[str], mark: str) -> str:
    """A format for `squeue -O` in which every field ends with the mark."""
    return ",".join(f"{field}:{mark}" for field in fields)


def split_rows(text: str, fields: Sequence[str], mark: str) -> list[list[str]]:
    """The rows below the heading of an answer in which every field ends with the mark and every row with a newline.

    The heading shows that Slurm answered, and what was asked: a text without one is not an empty queue. What stands
    before it and on lines after the last row is not Slurm's (a site's wrapper greets its users) and is skipped. The
    first field is a number in every row, so a line after the rows that begins with a digit is a row that was cut off.
    ParseError then, and when the fields do not make whole rows: half a picture is none.
    """
    *cells, rest = text.split(mark)
    if not cells or cells[0].rpartition("\n")[2].strip(" ").upper() != fields[0].upper():
        raise ParseError(f"no heading that begins with {fields[0]}", text[:80])
    cut = rest[:1] not in ("", "\n") or any(line[:1].isdigit() for line in split_lines(rest))
    if cut or len(cells) % len(fields):
        raise ParseError(f"rows that do not have {len(fields)} fields each", text[-80:])
    rows = [cells[i : i + len(fields)] for i in range(len(fields), len(cells), len(fields))]
    for row in rows:
        if not row[0].startswith("\n"):
            raise ParseError("a row that does not begin on a line of its own", row[0])
        row[0] = row[0].removeprefix("\n")
    return [[cell.strip(" ") for cell in row] for row in rows]


def lines_of(text: str, key: str, none: str) -> list[str]:
    """The lines of `scontrol -o` that begin with the key; ParseError if there are none and it does not say `none`."""
    lines = [line for line in split_lines(text) if line.startswith(f"{key}=")]
    if not lines and none not in text:
        raise ParseError(f"neither {key}= nor {none!r}", text[:80])
    return lines
