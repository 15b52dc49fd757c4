"""penstock bench: the papers' experiments and measurements on real logs, run again here."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.output import emit_json, table
from penstock.errors import UserError

__all__ = ["bench"]

_PARTS = ("fig5", "tables", "logs")
_TITLE = "ASA: learning the queue and submitting ahead of it"


@click.group()
def bench() -> None:
    """Run the papers' experiments again."""


@bench.command()
@click.option("--part", "parts", metavar="|".join(_PARTS), multiple=True, help="Only this part; may be repeated.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write report.html, report.md, pictures and rows here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def asa(parts: Sequence[str], out: Path | None, as_json: bool) -> None:
    """Measure how well waits are predicted, and what workflows gain by it (paper 002).

    \b
    fig5    1000 waits whose level changes five times, without and with noise: who follows how fast
    tables  three workflows in six sizes under seven strategies and three rules of priority, on a simulated Slurm
    logs    real logs from the folder PENSTOCK_TRACES: every job predicted at its submission, by what was known then

    All of it takes some minutes. With --json one part prints {"rows": [...]}, several print {"PART": {"rows": [...]}}.
    The pictures of --out need matplotlib: pip install 'penstock[plot]'.
    """
    from penstock.bench.chapters import CHAPTERS, traces
    from penstock.bench.plotting import prepare
    from penstock.bench.report import as_html, as_markdown

    for part in parts:
        if part not in CHAPTERS:
            raise UserError(f"--part must be one of {', '.join(CHAPTERS)}, not {part!r}")
    if out is not None:
        prepare(out)
    wanted = list(dict.fromkeys(parts or CHAPTERS))
    if "logs" in wanted:
        traces()  # found missing now, not after minutes of work
    chapters = []
    for part in wanted:
        began = time.monotonic()
        chapter = CHAPTERS[part](out, lambda text: click.echo(text, err=True))
        chapters.append(chapter)
        if not as_json:
            for each in chapter.all_tables:
                table(f"{chapter.title}: {each.title}", each.columns, each.rows)
        click.echo(f"{part}: {time.monotonic() - began:.0f} s", err=True)
        if out is not None:
            _write(out / f"{part}.json", json.dumps({"rows": chapter.rows}, indent=2) + "\n")
    if out is not None:
        _write(out / "report.md", as_markdown(_TITLE, chapters))
        _write(out / "report.html", as_html(_TITLE, chapters))
        click.echo(f"wrote {out / 'report.html'}", err=True)
    if as_json:
        results = {chapter.name: {"rows": chapter.rows} for chapter in chapters}
        emit_json(next(iter(results.values())) if len(results) == 1 else results)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise UserError(f"--out: {path} cannot be written: {e.strerror}") from None
