"""penstock bench: the papers' experiments and measurements on real logs, run again here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.output import emit_json, table
from penstock.errors import UserError

__all__ = ["bench"]

Rows = list[dict[str, Any]]


@click.group()
def bench() -> None:
    """Run the papers' experiments again."""


def _figure5(out: Path | None, quiet: bool) -> Rows:
    from penstock.bench import fig5
    from penstock.bench.plotting import prepare

    if out is not None:
        prepare(out)
    outcomes = fig5.run()
    rows: Rows = [dict(outcome.row()) for outcome in outcomes]
    if out is not None:
        from penstock.bench.fig5_plot import draw

        for path in draw(out, outcomes):
            click.echo(f"wrote {path}", err=True)
    if not quiet:
        title = f"Figure 5: {fig5.ITERATIONS} waits on changing levels, {fig5.SEEDS} seeds"
        columns = ("noise", "predictor", "0/1 loss", "sd", "|log10 error|")
        shown = (("noise", "g"), ("predictor", ""), ("loss_mean", ".1f"), ("loss_sd", ".1f"), ("log10_error", ".4f"))
        table(title, columns, [[format(row[key], form) for key, form in shown] for row in rows])
    return rows


def _logs(out: Path | None, quiet: bool) -> Rows:
    from penstock.bench import logs
    from penstock.waits.report import FLOOR

    folder = os.environ.get("PENSTOCK_TRACES")
    if not folder:
        raise UserError("PENSTOCK_TRACES must name a folder with logs in Standard Workload Format (*.swf, *.swf.gz)")
    measured = [row for path in logs.find(Path(folder)) for row in logs.measure(path)]
    if not quiet:
        columns = ("log", "processors", "predictor", "jobs", "mean error", "median", "ratio", "covered")
        title = f"|log10(estimate / wait)|, both at least {FLOOR:g} s; ratio to the better of last and median"
        table(title, columns, [_log_cells(row, logs.ratio(measured, row)) for row in measured])
    return [dict(row.row()) for row in measured]


def _log_cells(row: Any, ratio: float) -> Sequence[object]:  # noqa: ANN401
    covered = "" if row.coverage is None else f"{100 * row.coverage:.1f} %"
    return row.log, row.sizes, row.predictor, row.jobs, f"{row.mean:.3f}", f"{row.median:.3f}", f"{ratio:.2f}", covered


_PARTS: dict[str, Callable[[Path | None, bool], Rows]] = {"fig5": _figure5, "logs": _logs}


@bench.command()
@click.option("--part", "parts", metavar="|".join(_PARTS), multiple=True, help="Only this part; may be repeated.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Write the rows and the pictures here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def asa(parts: Sequence[str], out: Path | None, as_json: bool) -> None:
    """Measure how well waits are predicted (paper 002).

    \b
    fig5  1000 waits whose level changes five times, without and with noise: who follows how fast
    logs  real logs from the folder PENSTOCK_TRACES: every job predicted at its submission, by what was known then

    With --json one part prints {"rows": [...]}, several print {"PART": {"rows": [...]}, ...}. The pictures need
    matplotlib: pip install 'penstock[plot]'.
    """
    for part in parts:
        if part not in _PARTS:
            raise UserError(f"--part must be one of {', '.join(_PARTS)}, not {part!r}")
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UserError(f"--out: {out} is not a folder that can be made: {e.strerror}") from None
    results = {}
    for part in dict.fromkeys(parts or _PARTS):
        results[part] = {"rows": _PARTS[part](out, as_json)}
        if out is not None:
            _write(out / f"{part}.json", results[part])
    if as_json:
        emit_json(next(iter(results.values())) if len(results) == 1 else results)


def _write(path: Path, value: object) -> None:
    try:
        path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    except OSError as e:
        raise UserError(f"--out: {path} cannot be written: {e.strerror}") from None
