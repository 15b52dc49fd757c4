"""The summary: what was seen, in figures, and whether all of it happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.api import plural
from penstock.workflow.metrics import gap_before, run_metrics
from penstock.workflow.state import WorkflowRun
from penstock_lab.demo.breathe import Breath
from penstock_lab.demo.compare import Outcome, deviation

__all__ = ["Check", "checks", "print_summary"]

_TOLERANCE = 3.0
_RESIDUAL = 1e-3


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to happen."""

    ok: bool
    text: str


def checks(outcome: Outcome, breath: Breath) -> list[Check]:
    """Everything the demo promises."""
    return [*_workflow_checks(outcome), *_breath_checks(breath)]


def _workflow_checks(outcome: Outcome) -> Iterator[Check]:
    for strategy, run in outcome.runs.items():
        yield Check(run.phase.value == "completed", f"{strategy}: {plural(len(run.stages), 'stage')} completed")
    run = outcome.runs["asa"]
    later = range(1, len(run.stages))
    deviations = [deviation(run, i) for i in later]
    worst = max(map(abs, deviations), default=0.0)
    yield Check(
        worst <= _TOLERANCE,
        f"asa: every stage was submitted at (parent's expected end - estimate), off by {worst:.1f} s at most "
        f"({_TOLERANCE:g} s allowed)",
    )
    leads = [(s.submitted or 0.0) - (p.start or 0.0) for s, p in ((run.stages[i], run.stages[i - 1]) for i in later)]
    yield Check(any(lead > _TOLERANCE for lead in leads), "asa: not all stages were submitted at their parent's start")
    ahead = all((run.stages[i].submitted or 0.0) < (run.stages[i - 1].end or 0.0) for i in later)
    yield Check(ahead, "asa: every stage was in the queue before the stage before it ended")


def _breath_checks(breath: Breath) -> Iterator[Check]:
    done = [r for r in breath.resizes if r["outcome"] == "completed"]
    yield Check(breath.problem is None, f"Jacobi ended{': ' + breath.problem if breath.problem else ''}")
    yield Check(any(r["kind"] == "expand" for r in done), "Jacobi grew onto idle nodes")
    yield Check(any(r["kind"] == "shrink" for r in done), "Jacobi shrank when a job waited")
    yield Check(breath.rival_started, "the job that waited started on the freed nodes")
    yield Check(breath.same_bits, "Jacobi's result is bit for bit that of the fixed-size run")
    yield Check(
        breath.residual > _RESIDUAL,
        f"the result is far from converged (last change {breath.residual:.4f} > {_RESIDUAL})",
    )


def print_summary(console: Console, outcome: Outcome, breath: Breath, verdicts: list[Check]) -> None:
    """Tables for people."""
    for run in outcome.runs.values():
        console.print(_stages(run))
    if len(outcome.runs) > 1:
        console.print(_totals(outcome))
    console.print(_resizes(breath))
    for check in verdicts:
        console.print(f"[{'green' if check.ok else 'bold red'}]{'ok  ' if check.ok else 'FAIL'}[/] {check.text}")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table


def _stages(run: WorkflowRun) -> Table:
    columns = ("stage", "submit", "eligible", "start", "end", "estimate", "off by", "perceived wait")
    table = _table(f"\n{run.strategy}: seconds since the workflow was submitted", *columns)
    for i, s in enumerate(run.stages):
        times = [s.submitted, s.eligible, s.start, s.end]
        off = "" if s.estimate is None or i == 0 else f"{deviation(run, i):+.1f}"
        table.add_row(
            s.name,
            *("" if t is None else f"{t - run.submitted_at:.1f}" for t in times),
            "" if s.estimate is None else f"{s.estimate:.0f}",
            off,
            "" if (wait := gap_before(run, i)) is None else f"{wait:.1f}",
        )
    return table


def _totals(outcome: Outcome) -> Table:
    table = _table("\nstrategies", "strategy", "total wait s", "makespan s", "node-hours", "core-hours")
    for strategy, run in outcome.runs.items():
        figures = run_metrics(run)
        makespan = "" if figures.makespan is None else f"{figures.makespan:.0f}"
        # The demo's nodes have two cores, real and simulated alike.
        cores = f"{2 * figures.node_hours:.2f}"
        table.add_row(strategy, f"{figures.total_wait:.1f}", makespan, f"{figures.node_hours:.2f}", cores)
    return table


_PARTS = (
    ("grant", "decided", "granted"),
    ("merge", "granted", "merged"),
    ("told", "merged", "accepted"),
    ("new ranks", "accepted", "done"),
    ("return", "done", "released"),
)


def _resizes(breath: Breath) -> Table:
    columns = ("resize", "ranks", "outcome", *(name for name, _, _ in _PARTS), "spawn", "move")
    table = _table("\nresizes of Jacobi: seconds of each part", *columns)
    for r in breath.resizes:
        marks: dict[str, float] = r["marks"]
        if "joined" in marks:  # nodes of a second job, which are not merged
            marks = {**marks, "merged": marks["joined"]}
        if r["kind"] == "shrink" and "accepted" in marks:
            marks = {**marks, "merged": marks.get("decided", marks["accepted"])}
        parts = [_between(marks, a, b) for _, a, b in _PARTS]
        app = [f"{marks[k]:.2f}" if k in marks else "" for k in ("app_spawn", "app_move")]
        table.add_row(r["kind"], f"{r['old_size']} to {r['new_size']}", str(r["outcome"])[:40], *parts, *app)
    return table


def _between(marks: dict[str, Any], a: str, b: str) -> str:
    return f"{marks[b] - marks[a]:.2f}" if a in marks and b in marks else ""
