"""penstock simulate sweep: many replays, on this machine or as a Slurm job array, merged into one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.console.options import apart, out_option, whole
from penstock.errors import PenstockError, UserError
from penstock_lab.sim.estimates import FORMS
from penstock_lab.sim.replay import POLICIES, TIES
from penstock_lab.sim.sweep.array import share_of, submit_array
from penstock_lab.sim.sweep.grid import Combination, Grid, read_grid
from penstock_lab.sim.sweep.local import compute_all
from penstock_lab.sim.sweep.parts import Parts
from penstock_lab.sim.sweep.table import check_table, write_table
from penstock_lab.sim.swf import FILTERS
from penstock_lab.sim.workloads import KINDS, MODELS

__all__ = ["sweep"]


def _axis(name: str, metavar: str, text: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return click.option(f"--{name}", name.replace("-", "_"), metavar=metavar, multiple=True, help=text)


@click.command()
@click.argument("grid", required=False, type=click.Path(path_type=Path))
@_axis("log", "FILE", "A log in Standard Workload Format.")
@_axis("model", "|".join(MODELS), "A workload model.")
@_axis("procs", "N", "Processors of the machine. [default: what the log's header says]")
@_axis("policy", "|".join(POLICIES), "[default: easy]")
@_axis("estimates", "RULE", f"{FORMS}. [default: user for logs, actual for models]")
@_axis("ties", "|".join(TIES), "[default: pyss]")
@_axis("filter", "|".join(FILTERS), "Logs: which records are replayed. [default: strong]")
@_axis("load", "X", "Offered load, such as 0.8. [default: that of the log or model]")
@_axis("seed", "N", "Of models, and of estimates f:F. [default: 1]")
@_axis("model-jobs", "N", "Models: how many jobs. [default: 5000]")
@_axis("kinds", "|".join(KINDS), "lublin: which classes of jobs. [default: both]")
@click.option("--skip-bad", is_flag=True, help="Logs: count damaged lines and go on.")
@out_option("The table (required): .csv, .csv.gz or .parquet.", "TABLE", required=True)
@whole("processes", "How many processes compute at the same time.", most=4096, default=1)
@whole(
    "slurm-array",
    "Submit a job array of N tasks, each with --processes, and a job that merges.",
    most=100_000,
)
@click.option("--sbatch", "sbatch", metavar="OPTION", multiple=True, help="For sbatch, such as --sbatch=--partition=p.")
@click.option("--merge", is_flag=True, help="Compute nothing; merge what there is.")
@whole("share", "Compute this array task's share of N (by SLURM_ARRAY_TASK_ID); do not merge.", most=100_000)
def sweep(
    grid: Path | None,
    out: Path,
    processes: int,
    slurm_array: int | None,
    sbatch: Sequence[str],
    merge: bool,
    share: int | None,
    skip_bad: bool,
    **axes: tuple[str, ...],
) -> None:
    """Replay every combination of the options, each of which may be repeated, and write one table of the figures.

    GRID is a YAML file with the same names as keys, for example

    \b
        log: [CTC-SP2-1996-3.1-cln.swf.gz, SDSC-SP2-1998-4.2-cln.swf.gz]
        policy: [easy, conservative]
        estimates: [user, actual, "f:4"]

    Options replace what the file has. Every combination has a part file in the folder TABLE.parts: interrupted, the
    same command goes on with what is missing or failed. A combination that fails is a row with its error, and the
    command ends with 1.
    """
    if sum((slurm_array is not None, merge, share is not None)) > 1:
        raise UserError("--slurm-array, --merge and --share exclude one another")
    out = out.absolute()
    check_table(out)
    given = {name.replace("_", "-"): values for name, values in axes.items() if values}
    wanted = _grid(grid, given, skip_bad)
    apart(out, *([grid] if grid is not None else []), *map(Path, wanted.axes.get("log", ())))
    combinations = wanted.combinations()
    if slurm_array is not None:
        tasks = min(slurm_array, len(combinations))
        ids = submit_array(wanted, out, tasks, processes, sbatch)
        click.echo(
            f"{len(combinations)} combinations: job array {ids.array} of {tasks} tasks, then job {ids.merge}: {out}"
        )
        return
    if share is not None:
        combinations = list(share_of(combinations, share, os.environ))
    parts = Parts(out)
    if not merge:
        parts.make()
        missing = parts.missing(combinations)
        click.echo(f"{len(combinations)} combinations, {len(combinations) - len(missing)} of them computed before")
        _compute(missing, out, min(processes, max(1, len(missing))))
    rows = parts.rows(combinations)
    if share is None:
        write_table(out, rows)
        click.echo(f"{len(rows)} rows: {out}")
    failed = [(one, row["error"]) for one, row in zip(combinations, rows, strict=True) if row["error"] is not None]
    if failed:
        raise PenstockError(
            f"{len(failed)} of {len(rows)} combinations failed; the first ({failed[0][0]}): {failed[0][1]}"
        )


def _grid(file: Path | None, given: dict[str, tuple[str, ...]], skip_bad: bool) -> Grid:
    if file is not None:
        return read_grid(file, given, skip_bad)
    return Grid.of(given, skip_bad, lambda name: f"--{name}")


def _compute(combinations: Sequence[Combination], out: Path, processes: int) -> None:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("combinations"), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
            task = bar.add_task("", total=len(combinations))
            compute_all(combinations, out, processes, lambda: bar.advance(task))
    except OSError as e:
        raise UserError(f"{Parts(out).folder}: a part cannot be written: {e.strerror or e}") from None
