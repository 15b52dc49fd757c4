"""penstock backtest: which predictors would have been right on a site's own jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click

from penstock.console.options import whole
from penstock.console.output import ago, emit_json, table
from penstock.errors import UserError
from penstock.workflow.files.formats import load_workflow
from penstock_lab.backtest.plain import runs_of, waits_of
from penstock_lab.backtest.sampled import Sample, sampled_waits
from penstock_lab.backtest.score import Row, verdict
from penstock_lab.backtest.strategies import LENGTH, StrategyRow, chain_of, measured, rows_of, usual_chain
from penstock_lab.history.history import History
from penstock_lab.whatif.simulate import Setup
from penstock_lab.whatif.windows import site_of, windows_of

__all__ = ["backtest", "partition_option"]


def partition_option(history: History, name: str | None) -> int | None:
    """The number of the partition that --partition names. UserError where the history has none of that name."""
    if name is None:
        return None
    known = history.names("partition")
    if name not in known:
        raise UserError(f"--partition must be one of {', '.join(sorted(known)[:20])}, not {name[:40]!r}")
    return known.index(name)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--partition", metavar="NAME", help="Only the jobs of this one.")
@whole("stretches", "Stretches of the log for the slow learners; 0: without them.", least=0, most=1000, default=12)
@whole("strategies", "Strategies for workflows, too, on so many windows.", least=0, most=1000, default=0)
@click.option("--workflow", metavar="FILE", type=click.Path(path_type=Path), help="--strategies: this chain of stages.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def backtest(
    file: Path,
    partition: str | None,
    stretches: int,
    strategies: int,
    workflow: Path | None,
    as_json: bool,
) -> None:
    """Say which predictors would have been right on these jobs.

    FILE is what `penstock history import` made. Each predictor is asked at every submission, and is told only what had
    been seen before: run times of jobs that had ended, waits of jobs that had started.

    \b
    run times
      limit     the user's time limit
      mean      the mean of all jobs so far
      last      the user's last run
      last-two  the mean of the user's last two, at most the limit: what Penstock plans with
      similar   the median of the last 40 of the same user, account and job name; with a bound
    waits, by classes of partition, QOS, size and limit
      last      the last one
      mean      the mean so far
      median    the median of the last eleven
      recent    the median of the last 60; with a bound
    waits on sampled stretches, by the learners that the agent has
      last, median, qbets, share, plan, likely, queue, share-mix: docs/waits-and-strategies.md

    With --strategies the same chain of stages (four of an hour on a 32nd of the machine, or --workflow) is submitted
    into windows of the log on the simulated Slurm, as a plain chain and under each strategy: makespans in pairs.

    Errors are absolute; |log10| is that of the ratio of both, at least a minute each: short waits count there as much
    as long ones. Bounds are meant to cover 95 of 100 jobs. Intervals are of 95 %, over 50 stretches of the log, or the
    sampled ones. The last columns are both errors over those of the plain way (the limit, the last wait), on the same
    jobs.
    """
    history = History(file)
    number = partition_option(history, partition)
    rows = [*runs_of(history, number), *waits_of(history, number)]
    if not rows:
        raise UserError(f"{file}: no job {'of that partition ' if partition else ''}ever started")
    if stretches:
        rows += sampled_waits(history, Sample(stretches), number, _progress if sys.stderr.isatty() else None)
    if workflow is not None and not strategies:
        raise UserError("--workflow is for --strategies N: on how many windows?")
    ways = _strategies(history, number, strategies, workflow) if strategies else []
    verdicts = [verdict(list(some)) for _, some in groupby(rows, key=lambda row: (row.what, row.sampled))]
    if as_json:
        emit_json(
            {
                "file": str(file),
                "partition": partition,
                "jobs": history.jobs,
                "rows": [row.told() for row in rows],
                "strategies": [way.told() for way in ways],
                "verdicts": verdicts,
            }
        )
        return
    for (what, sampled), some in groupby(rows, key=lambda row: (row.what, row.sampled)):
        _table(what, sampled, list(some))
    if stretches and not any(row.sampled for row in rows):
        click.echo(f"no stretch of {Sample().learned + Sample().judged} jobs: the learners of the agent are left out\n")
    if ways:
        _ways_table(ways)
    for line in verdicts:
        click.echo(line)


def _strategies(history: History, partition: int | None, count: int, file: Path | None) -> list[StrategyRow]:
    """The ways to submit a chain, on so many windows. UserError for a workflow that is no chain or does not fit."""
    site = site_of(history, partition)
    chain = usual_chain(site.units) if file is None else chain_of(load_workflow(file), site.units)
    setup = Setup(site.units)
    windows = windows_of(history, count, LENGTH, site, site.units, partition)
    return rows_of([measured(window, setup, chain) for window in windows])


def _ways_table(ways: Sequence[StrategyRow]) -> None:
    columns = ("strategy", "mean makespan", "later waits", "over plain", "median", "node-hours", "took longer")
    cells = [
        (
            way.strategy,
            ago(way.makespan),
            ago(way.later),
            way.ratio.told(".3f"),
            f"{way.median:.3f}",
            way.cost.told(".3f"),
            f"{way.worse} of {way.windows}",
        )
        for way in ways
    ]
    table(f"strategies, in {ways[0].windows} windows", columns, cells)
    click.echo()


def _progress(done: int, of: int) -> None:
    click.echo(f"\rstretch {done} of {of}", err=True, nl=done == of)


def _table(what: str, sampled: bool, rows: Sequence[Row]) -> None:
    where = "on sampled stretches" if sampled else "on every job"
    columns = (
        "predictor",
        "mean error",
        "from",
        "to",
        "median",
        "|log10|",
        "bound covers",
        f"over {rows[0].plain}",
        "its |log10|",
    )
    cells = [
        (
            row.predictor,
            ago(row.mean.value),
            ago(row.mean.low),
            ago(row.mean.high),
            ago(row.median.value),
            f"{row.log10.value:.2f}",
            None if row.coverage is None else row.coverage.told(".3f"),
            row.ratio.told(".2f"),
            row.log_ratio.told(".2f"),
        )
        for row in rows
    ]
    table(f"{what}s, {where}: {rows[0].jobs} jobs", columns, cells)
    click.echo()
