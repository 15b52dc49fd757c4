"""A report of measurements: chapters of tables, goals and pictures, for a terminal, as Markdown and as HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock_lab.intervals import Interval

__all__ = ["Chapter", "Goal", "Table", "as_html", "as_markdown"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose cells are texts already."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured figure (`where` it was measured, `what` it is) and what it should be at most. `low` and `high` are the
    ends of its 95 % interval, where it has one."""

    where: str
    what: str
    value: float
    at_most: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, where: str, what: str, measured: Interval, at_most: float) -> Goal:
        """A figure with its interval."""
        return cls(where, what, measured.value, at_most, measured.low, measured.high)

    @property
    def reached(self) -> bool:
        """Whether it is: with an interval, whether all of it is."""
        return (self.value if self.high is None else self.high) <= self.at_most

    @property
    def verdict(self) -> str:
        """Whether it is, in words. An interval with the goal in it does not tell."""
        if self.reached:
            return "yes"
        return "not decided" if self.low is not None and self.low <= self.at_most else "NO"

    @property
    def measured(self) -> str:
        """The figure in words."""
        return f"{self.value:.3f}" + ("" if self.low is None else f" ({self.low:.3f} to {self.high:.3f})")


@dataclass(frozen=True, slots=True)
class Chapter:
    """One part of a report. `rows` are its data for programs, `pictures` files beside the report."""

    name: str
    title: str
    text: str
    rows: Sequence[dict[str, Any]]
    tables: Sequence[Table] = ()
    goals: Sequence[Goal] = ()
    pictures: Sequence[Path] = field(default_factory=tuple)

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Its tables, that of the goals first."""
        if not self.goals:
            return tuple(self.tables)
        cells = [(g.where, g.what, g.measured, f"{g.at_most:g}", g.verdict) for g in self.goals]
        return (Table("Goals", ("where", "what", "measured", "at most", "reached"), cells), *self.tables)

    def told(self) -> dict[str, Any]:
        """For a file that `read` reads."""
        return {**asdict(self), "pictures": [str(picture) for picture in self.pictures]}

    @classmethod
    def read(cls, told: dict[str, Any]) -> Chapter:
        """What `told` gave. KeyError or TypeError: it is of something else."""
        tables, goals = [Table(**table) for table in told["tables"]], [Goal(**goal) for goal in told["goals"]]
        pictures = tuple(map(Path, told["pictures"]))
        return cls(told["name"], told["title"], told["text"], told["rows"], tables, goals, pictures)


def as_markdown(title: str, chapters: Iterable[Chapter]) -> str:
    """The report as Markdown; pictures are named relative to it."""
    lines = [f"# {title}", ""]
    for chapter in chapters:
        lines += [f"## {chapter.title}", "", chapter.text, ""]
        for table in chapter.all_tables:
            lines += [f"### {table.title}", "", _line(table.columns), _line(["---"] * len(table.columns))]
            lines += [*(_line(row) for row in table.rows), ""]
        for picture in chapter.pictures:
            lines += [f"![{picture.stem}]({picture.name})", ""]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}th,td{padding:.15rem .7rem;border-bottom:1px solid #ddd;"
    "text-align:right}th:first-child,td:first-child{text-align:left}img{max-width:100%}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}th,td{border-color:#444}img{background:#fff}}"
)


def as_html(title: str, chapters: Iterable[Chapter]) -> str:
    """The report as one HTML page; pictures are named relative to it."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>",
    ]
    for chapter in chapters:
        parts.append(f"<h2>{html.escape(chapter.title)}</h2><p>{html.escape(chapter.text)}</p>")
        for table in chapter.all_tables:
            parts.append(
                f"<h3>{html.escape(table.title)}</h3><table><thead>{_cells('th', table.columns)}</thead><tbody>"
            )
            parts += [_cells("td", row) for row in table.rows]
            parts.append("</tbody></table>")
        parts += [
            f'<p><img src="{html.escape(p.name)}" alt="{html.escape(p.stem)}" loading="lazy"></p>'
            for p in chapter.pictures
        ]
    return "\n".join([*parts, "</body></html>", ""])


def _cells(tag: str, row: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
