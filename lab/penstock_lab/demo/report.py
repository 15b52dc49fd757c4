"""The summary: what was seen, in figures, and whether all of it happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.texts import plural
from penstock_lab.demo.compare import Outcome, Way
from penstock_lab.demo.resizing import Resizing

__all__ = ["Check", "checks", "print_summary"]

_RESIDUAL = 1e-3
_BOOKED = 2.0
"""Seconds by which picture and accounting may differ: looks half a second apart, whole seconds in the books."""
_SAME = 1.05
"""Makespans that differ by less are the same: each has a load of its own, which is alike and not identical."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to happen."""

    ok: bool
    text: str


def checks(outcome: Outcome, resizing: Resizing) -> list[Check]:
    """Everything the demo promises."""
    return [*_workflow_checks(outcome), *_resizing_checks(resizing)]


def _workflow_checks(outcome: Outcome) -> Iterator[Check]:
    for way in outcome.ways:
        yield Check(way.completed, f"{way.title}: {plural(len(way.stages), 'stage')} completed")
    chain, guided = outcome.ways[0], outcome.ways[-1]
    pairs = zip(guided.stages, guided.stages[1:], strict=False)
    ahead = all((later.submitted or 0.0) < (before.end or 0.0) for before, later in pairs)
    yield Check(ahead, f"{guided.title}: every stage was in the queue before the stage before it ended")
    if chain.makespan is not None and guided.makespan is not None:
        yield Check(
            guided.makespan <= _SAME * chain.makespan,
            f"makespan {guided.makespan:.0f} s under Penstock, {chain.makespan:.0f} s as a plain chain",
        )


def _resizing_checks(resizing: Resizing) -> Iterator[Check]:
    done = [r for r in resizing.resizes if r["outcome"] == "completed"]
    yield Check(resizing.problem is None, f"Jacobi ended{': ' + resizing.problem if resizing.problem else ''}")
    yield Check(any(r["kind"] == "expand" for r in done), "Jacobi grew onto idle nodes")
    yield Check(any(r["kind"] == "shrink" for r in done), "Jacobi shrank when a job waited")
    yield Check(resizing.rival_started, "the job that waited started on the freed nodes")
    yield Check(resizing.same_bits, "Jacobi's result is bit for bit that of the fixed-size run")
    yield Check(
        resizing.residual > _RESIDUAL,
        f"the result is far from converged (last change {resizing.residual:.4f} > {_RESIDUAL})",
    )
    if resizing.booked:
        off = "not at all" if resizing.off is None else f"to {resizing.off:.1f} s"
        agrees = resizing.off is not None and resizing.off <= _BOOKED
        yield Check(agrees, f"the picture agrees with Slurm's accounting of who held which node: {off}")


def print_summary(console: Console, outcome: Outcome, resizing: Resizing, verdicts: list[Check]) -> None:
    """Tables for people."""
    for way in outcome.ways:
        console.print(_stages(way))
    console.print(_totals(outcome))
    console.print(_resizes(resizing))
    for check in verdicts:
        console.print(f"[{'green' if check.ok else 'bold red'}]{'ok  ' if check.ok else 'FAIL'}[/] {check.text}")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table


def _stages(way: Way) -> Table:
    columns = ("stage", "submit", "start", "end", "perceived wait", "reaction")
    table = _table(f"\n{way.title}: seconds since it was submitted", *columns)
    for s in way.stages:
        times = [None if t is None else t - way.submitted_at for t in (s.submitted, s.start, s.end)]
        parts = (None, None) if s.waited is None else (s.waited.perceived, s.waited.reaction)
        cells = ("" if t is None else f"{t:.1f}" for t in (*times, *parts))
        table.add_row(s.name, *cells)
    return table


def _totals(outcome: Outcome) -> Table:
    table = _table("\nthe same stages under the same load", "way", "makespan s", "waiting of later stages s")
    for way in outcome.ways:
        makespan = "" if way.makespan is None else f"{way.makespan:.0f}"
        later = sum(s.waited.perceived + s.waited.reaction for s in way.stages[1:] if s.waited is not None)
        table.add_row(way.title, makespan, f"{later:.1f}")
    return table


_PARTS = (
    ("grant", "decided", "granted"),
    ("merge", "granted", "merged"),
    ("told", "merged", "accepted"),
    ("new ranks", "accepted", "done"),
    ("return", "done", "released"),
)


def _resizes(resizing: Resizing) -> Table:
    columns = ("resize", "ranks", "outcome", *(name for name, _, _ in _PARTS), "spawn", "move")
    table = _table("\nresizes of Jacobi: seconds of each part", *columns)
    for r in resizing.resizes:
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
