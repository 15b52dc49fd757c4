"""The chapters of `penstock bench asa`: each runs its measurement, judges it by its goals, and draws its pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from penstock.waits.learners.learners import DEFAULT
from penstock.waits.learners.report import FLOOR
from penstock_lab.intervals import Interval, ratio_of_means
from penstock_lab.paired.chapter import pairs
from penstock_lab.papers import accuracy, fig5, logs, paper, tables
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.site import MACHINES
from penstock_lab.papers.traces import traces

__all__ = ["CHAPTERS", "PAIRS", "Tell"]

PAIRS: Final = "pairs"
"""Takes most of an hour, so it is run only when it is asked for."""

Tell = Callable[[str], None]


def figure_5(out: Path | None, tell: Tell) -> Chapter:
    """Who follows a wait whose level changes."""
    outcomes = fig5.run()
    rows = [outcome.row() for outcome in outcomes]
    cells = [[f"{o.noise:g}", o.predictor, o.loss.told(".1f"), o.error.told(".4f")] for o in outcomes]
    found = {(o.predictor, o.noise): o for o in outcomes}
    quiet, noisy, median = found[DEFAULT, 0.0], found[DEFAULT, 0.5], found["median", 0.5]
    goals = [
        Goal.of("no noise", f"0/1 loss of {DEFAULT}", quiet.loss, 14.0),
        Goal.of("noise 0.5", f"log error of {DEFAULT}", noisy.error, 0.185),
        Goal.of("noise 0.5", "the same over that of median", ratio_of_means(noisy.errors, median.errors), 1.0),
    ]
    pictures: Sequence[Path] = ()
    if out is not None:
        from penstock_lab.papers.fig5_plot import draw

        pictures = draw(out, outcomes)
    text = (
        f"{fig5.ITERATIONS} waits whose level changes five times, mean of {fig5.SEEDS} seeds with its 95 % interval. "
        "The loss counts estimates that are not nearest to the same alternative as the true wait. With noise Algorithm "
        "1 settles at p ~ 1 / loss rate, not at the best alternative."
    )
    columns = ("noise", "predictor", "0/1 loss", "|log10 error|")
    return Chapter("fig5", "Figure 5", text, rows, [Table("Losses", columns, cells)], goals, pictures)


def tables_1_and_2(out: Path | None, tell: Tell) -> Chapter:
    """The workflows under every strategy, and how right the predictions are."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        judged = [row for rows in pool.map(accuracy.measure, MACHINES) for row in rows]
    protocol = tables.PROTOCOL
    rows = tables.measure(protocol, tell)
    pictures: Sequence[Path] = ()
    if out is not None:
        from penstock_lab.papers.tables_plot import draw

        pictures = draw(out, rows)
    text = (
        "Montage, BLAST and Statistics with the paper's stages on a simulated HPC2n (28, 56, 112 cores) and UPPMAX "
        "(160, 320, 640), among jobs of Lublin's model at loads of "
        f"{' and '.join(f'{m.load:g}' for m in MACHINES.values())}. Means of "
        f"{protocol.rounds - protocol.learning} runs a cell, after {protocol.learning} to learn the waits from, "
        "of makespans with the 95 % interval over the runs. "
        "In brackets: the paper's own values. Its "
        f"own core-hours add up to {1 - paper.bottom_line('asa') / paper.bottom_line('bigjob'):.1%} below Big-Job's. "
        "Table 2: 60 submissions a geometry on each of eight days, one a minute; shares with intervals over the days. "
        "A hit is a wait that was not "
        "over-predicted by more than a minute, so that an estimate of 0 is always one: it says nothing by itself. All "
        "of this rests on one seed of the queue, and a backfilled queue is chaotic: whether a strategy gains is what "
        "the paired chapter says."
    )
    shown = [*_table_1(rows, protocol), _normalised(rows), _bounds(rows), _table_2(judged)]
    data = [{"table": 1, **row.row()} for row in rows] + [{"table": 2, **row.row()} for row in judged]
    return Chapter("tables", "Tables 1 and 2", text, data, shown, tables.goals(rows), pictures)


def real_logs(out: Path | None, tell: Tell) -> Chapter:
    """Predictions on the logs of real machines."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        rows = [row for each in pool.map(logs.measure, traces()) for row in each]
    goals = []
    for row in rows:
        if row.predictor == DEFAULT:
            where, what = f"{row.log}, {row.sizes} processors", "mean error over the better of last and median"
            goals.append(Goal(where, what, logs.ratio(rows, row), 0.7 if row.sizes == "all" else 1.0))
            if row.sizes == "all" and row.coverage is not None and row.pinball is not None:
                worst = max(abs(share - 0.95) for share in row.tenths)
                goals.append(Goal(where, "mean error beyond that of queue", logs.beyond(rows, row, "queue"), 0.005))
                goals.append(Goal.of(where, "pinball loss of the 95 % bound", row.pinball, 0.085))
                off = abs(row.coverage.value - 0.95)
                goals.append(Goal(where, "coverage of the 95 % bound, off by", off, 0.01))
                goals.append(Goal(where, "the same in the worst tenth of predicted waits", worst, 0.02))
    text = (
        "Every job of the logs is predicted at its submission by what was known then. The error is |log10(estimate / "
        f"wait)|, both at least {FLOOR:g} s; the ratio is to the better of last and median on the same jobs. Covered "
        "are waits within the 95 % bound; its pinball loss is that of log10(wait / bound), both again at least "
        f"{FLOOR:g} s. Intervals are of 95 %, over stretches of the log. Slurm's own estimate is not in such logs."
    )
    columns = (
        "log", "processors", "predictor", "jobs", "mean error", "median", "ratio", "within 1 min", "within 10 min",
        "pinball", "covered %",
    )  # fmt: skip
    cells = [
        [
            row.log,
            row.sizes,
            row.predictor,
            f"{row.jobs}",
            row.error.told(),
            f"{row.median:.3f}",
            f"{logs.ratio(rows, row):.2f}",
            f"{100 * row.within_1:.1f} %",
            f"{100 * row.within_10:.1f} %",
            "" if row.pinball is None else row.pinball.told(".4f"),
            "" if row.coverage is None else Interval(*(100 * share for share in row.coverage)).told(".1f"),
        ]
        for row in rows
    ]
    tenths = [
        [row.log, row.predictor, *(f"{100 * share:.1f}" for share in row.tenths)]
        for row in rows
        if row.sizes == "all" and row.tenths
    ]
    shown = [
        Table("Errors", columns, cells),
        Table(
            "Covered by the 95 % bound, %, by tenths of the predicted wait",
            ("log", "predictor", *map(str, range(1, 11))),
            tenths,
        ),
    ]
    return Chapter("logs", "Real logs", text, [row.row() for row in rows], shown, goals)


def _table_1(rows: Sequence[tables.Row], protocol: tables.Protocol) -> list[Table]:
    columns = (
        "workflow",
        "cores",
        "strategy",
        "TWT s",
        "PWT 2..s s",
        "makespan s",
        "95 %",
        "core-hours",
        "OH",
        "misses",
    )
    found = []
    for rule in protocol.rules:
        cells = []
        for row in (r for r in rows if r.rule == rule):
            theirs = paper.TABLE_1.get((row.workflow, row.cores, row.strategy))
            values = (row.wait, row.makespan, row.core_hours)
            beside = ("", "", "") if theirs is None else (theirs.wait, theirs.makespan, theirs.core_hours)
            wait, makespan, hours = (
                f"{v:.0f}" + (f" ({b:.0f})" if b != "" else "") for v, b in zip(values, beside, strict=True)
            )
            ends = f"{row.makespan_low:.0f} to {row.makespan_high:.0f}"
            own = [row.workflow, f"{row.cores}", row.strategy, wait, f"{row.perceived:.0f}", makespan, ends, hours]
            cells.append([*own, f"{row.overhead:.2f}", f"{row.misses:g}"])
        found.append(Table(f"Table 1, {rule}", columns, cells))
    return found


def _normalised(rows: Sequence[tables.Row]) -> Table:
    metrics = (lambda r: r.wait, lambda r: r.makespan, lambda r: r.core_hours)
    averages = [tables.normalised(rows, metric) for metric in metrics]
    cells = [[*key, *(_more(each[key]) for each in averages)] for key in averages[0]]
    return Table(
        "Normalised averages, intervals over the sizes, %",
        ("rule", "workflow", "strategy", "TWT", "makespan", "core-hours"),
        cells,
    )


def _more(ratio: Interval) -> str:
    return Interval(*(100 * (each - 1) for each in ratio)).told("+.0f")


def _bounds(rows: Sequence[tables.Row]) -> Table:
    cells = [[rule, f"{share:.3f}"] for rule, share in tables.bounds(rows).items()]
    title = "Perceived waits longer than the time from the workflow's submission to the stage's turn, over all of them"
    return Table(title, ("rule", "Per-Stage's part that no earlier submission could hide"), cells)


def _table_2(rows: Sequence[accuracy.Row]) -> Table:
    columns = (
        "workflow", "cores", "predictor", "real h", "predicted h", "perceived h", "hit %", "OH core-h", "within 2 %",
    )  # fmt: skip
    cells = []
    for row in rows:
        theirs = paper.TABLE_2[row.workflow, row.cores]
        cells.append(
            [
                row.workflow,
                f"{row.cores}",
                row.predictor,
                f"{row.real[0]:.2f} ± {row.real[1]:.2f} ({theirs.real:g})",
                f"{row.predicted[0]:.2f} ± {row.predicted[1]:.2f} ({theirs.predicted:g})",
                f"{row.perceived[0]:.2f} ± {row.perceived[1]:.2f} ({theirs.perceived:g})",
                f"{row.hit.told('.0f')} ({theirs.hit:g})",
                f"{row.overhead:.1f} ({theirs.overhead:g})",
                row.within_two.told(".0f"),
            ]
        )
    return Table("Table 2", columns, cells)


CHAPTERS: Final[Mapping[str, Callable[[Path | None, Tell], Chapter]]] = {
    "fig5": figure_5,
    "tables": tables_1_and_2,
    "logs": real_logs,
    PAIRS: pairs,
}
