"""Slurm's own text of a look, as rows. Fields are separated by a word that nobody can know beforehand, so that no name
or comment of a job can pass for a field or a row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Table", "Unreadable", "parse_table"]


class Unreadable(Exception):
    """A look whose text is not what was asked for."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a look in Slurm's order; `header` has what Slurm calls each field, by the name that it was asked by."""

    header: Mapping[str, str]
    rows: tuple[Mapping[str, str], ...]


def parse_table(text: str, separator: str, names: Sequence[str] | None = None) -> Table:
    """The rows of a text in which `separator` follows each field, and a line feed the last one of each row.

    The first row is Slurm's heading. `names` says by what names to keep the fields; None: by those of the heading.
    Raises `Unreadable`.
    """
    first, *rest = text.split(separator + "\n", 1)
    heading = first.split(separator)
    if not rest or (names is not None and len(names) != len(heading)):
        raise Unreadable(f"not the heading that was asked for: {first[:80]!r}")
    names = heading if names is None else names
    return Table(
        dict(zip(names, heading, strict=True)),
        tuple(dict(zip(names, row, strict=True)) for row in _rows(rest[0], len(names), separator)),
    )


def _rows(text: str, width: int, separator: str) -> Iterator[list[str]]:
    *fields, last = text.split(separator)
    known: dict[str, str] = {}  # most values are those of other jobs, too: kept once
    if last not in ("", "\n") or len(fields) % width:
        raise Unreadable(f"{len(fields)} fields, and {last[-60:]!r} after them, are no rows of {width}")
    for at in range(0, len(fields), width):
        row = fields[at : at + width]
        if at:  # the line feed before it
            if not row[0].startswith("\n"):
                raise Unreadable(f"a row does not begin on a line of its own: {row[0][:60]!r}")
            row[0] = row[0][1:]
        yield [known.setdefault(value, value) for value in row]
