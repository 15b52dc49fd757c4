"""The chapters of `penstock bench select`: each runs its measurement and judges it by its goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

from penstock_lab.papers import select_bags, select_errors, select_fair, select_programs
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.select_bags import Outcome, Protocol
from penstock_lab.papers.select_fair_chapter import fair
from penstock_lab.papers.select_world import MIXED, RESOURCES

__all__ = ["PAPER", "chapters"]

PAPER: Final[Mapping[int, tuple[float, float, float]]] = {
    64: (20644.08, 5239.12, 0.7462),
    128: (15257.11, 4995.64, 0.6726),
    256: (25509.85, 5053.44, 0.8019),
    512: (51190.75, 7810.34, 0.8474),
    1024: (34506.64, 6989.03, 0.7975),
}
"""Mean TTC (s) of random and of the model, and the reduction, by number of tasks (Fig. 6, golden case G12)."""

_QUICK: Final = Protocol(sizes=(64, 256), rounds=1, warm=1.5, gap=0.5, strategies=("random", "model", "best", "ours"))

_QUICK_FAIR: Final = select_fair.Protocol(levels=(0.85,), sizes=(64,), seeds=1, instants=2)


def chapters(*, quick: bool = False) -> Mapping[str, Callable[[Path | None, Tell], Chapter]]:
    """All by name."""
    protocol = _QUICK if quick else select_bags.PROTOCOL
    return {
        "errors": _errors,
        "programs": partial(_programs, 3 if quick else select_programs.ROUNDS),
        "mixed": partial(_bags, protocol),
        "fair": partial(fair, _QUICK_FAIR if quick else select_fair.PROTOCOL),
    }


def _errors(out: Path | None, tell: Tell) -> Chapter:
    rows, right = select_errors.measure()
    cells = [
        [
            row.resource,
            f"{row.steps}",
            f"{row.actual:.1f}",
            f"{row.by_base:+.1f} ({select_errors.PAPER[row.resource][0]})",
            f"{row.by_max:+.1f} ({select_errors.PAPER[row.resource][1]})",
            f"{row.corrected:+.1f}",
        ]
        for row in rows
    ]
    known = [abs(row.corrected) for row in rows if row.steps != select_errors.STEPS[0]]
    goals = [
        Goal("all resources but the first runs", "mean error with the correction, %", fmean(known), 5.0),
        Goal("100,000 steps", "pairs ranked wrong with the correction", 1 - right["base clock, corrected"][0], 0.0),
    ]
    text = (
        "Runs drawn from Table I and Fig. 3; in brackets the paper's own errors in per cent. The correction is learned "
        "from all shorter simulations, so it knows nothing of the first."
    )
    columns = ("resource", "steps", "actual s", "error by base clock %", "by maximum clock %", "corrected %")
    ranked = Table(
        "Pairs of resources ranked right",
        ("by", "all four", "the three HPC machines"),
        [[how, f"{every:.2f}", f"{three:.2f}"] for how, (every, three) in right.items()],
    )
    pictures: Sequence[Path] = ()
    if out is not None:
        from penstock_lab.papers.select_plot import draw_errors

        pictures = draw_errors(out, rows)
    return Chapter(
        "errors",
        "Predicted run times",
        text,
        [asdict(r) for r in rows],
        [Table("Errors", columns, cells), ranked],
        goals,
        pictures,
    )


def _programs(rounds: int, out: Path | None, tell: Tell) -> Chapter:
    rows, ranked = select_programs.judged(select_programs.measure(rounds, tell))
    off = [row for row in rows if row.setting != "one core"]
    text = (
        f"Real programs on this machine, {rounds} rounds, every setting in turn in each of them: the machine may be "
        "shared, and what else it does meets all alike. What a program needs is its CPU time on one core; one, two and "
        "half a core are then resources as any others. Errors are means of amounts over long runs with 95 % intervals. "
        "The correction has seen the short runs of earlier rounds, a third as long."
    )
    cells = [
        [r.program, r.setting, f"{r.runs}", f"{r.seconds:.2f}", r.before.told(".1f"), r.after.told(".1f")] for r in rows
    ]
    columns = ("program", "setting", "runs", "actual s", "error %", "corrected %")
    tables = [
        Table("Errors of real programs", columns, cells),
        Table("Pairs of settings ranked right", ("by", "share"), [[how, f"{v:.2f}"] for how, v in ranked.items()]),
    ]
    after, before = fmean(row.after.value for row in off), fmean(row.before.value for row in off)
    goals = [
        Goal("other settings than the profile's", "error with the correction over that without", after / before, 1.0)
    ]
    return Chapter("programs", "Run times of real programs", text, [row.row() for row in rows], tables, goals)


def _bags(protocol: Protocol, out: Path | None, tell: Tell) -> Chapter:
    found = select_bags.measure(protocol, tell)
    by: dict[tuple[str, int], list[Outcome]] = {}
    for one in found:
        by.setdefault((one.strategy, one.size), []).append(one)
    cells = []
    for (strategy, size), each in by.items():
        random = fmean(o.times.total for o in by["random", size])
        total = fmean(o.times.total for o in each)
        theirs = {"random": 0, "model": 1}.get(strategy)
        reduction = f" ({100 * PAPER[size][2]:.1f})" if strategy == "model" else ""
        cells.append(
            [
                f"{size}",
                strategy,
                _spread([o.times.total for o in each]) + ("" if theirs is None else f" ({PAPER[size][theirs]:.0f})"),
                _spread([o.times.waiting for o in each]),
                _spread([o.times.execution for o in each]),
                "" if strategy == "random" else f"{100 * (1 - total / random):.1f} %{reduction}",
                f"{fmean(o.moved for o in each):.0f}",
            ]
        )
    cells.sort(key=lambda row: int(row[0]))
    columns = ("tasks", "strategy", "TTC s", "Tq s", "Tx s", "below random", "moved")
    text = (
        f"Offered loads: {', '.join(f'{name} {load:g}' for name, load in MIXED.items())}. {protocol.rounds} bags a "
        "size and strategy, one a day, every strategy among the same jobs of others. Means and sample deviations; in "
        "brackets the paper's own figures. `model` is the paper's way, `random` its baseline. The loads of two "
        "machines are above 1, which made queues as long as the paper's: they grow for ever, so this repeats its "
        "figure and decides nothing else. No bag is done before a task has run, "
        f"{min(t.seconds for t in RESOURCES.values()):.0f} s on the fastest machine."
    )
    pictures: Sequence[Path] = ()
    if out is not None:
        from penstock_lab.papers.select_plot import draw_bags

        pictures = draw_bags(out, "mixed", found, PAPER)
    return Chapter(
        "mixed",
        "Bags of tasks, queues mixed",
        text,
        [o.row() for o in found],
        [Table("Times to completion", columns, cells), _queues(by)],
        _goals(by),
        pictures,
    )


def _queues(by: Mapping[tuple[str, int], Sequence[Outcome]]) -> Table:
    """What the pilots of `random` waited on each machine, a share of the bag each."""
    sizes = sorted(size for strategy, size in by if strategy == "random")
    rows = []
    for name in RESOURCES:
        waits = {size: [o.waits[name] for o in by["random", size] if name in o.waits] for size in sizes}
        rows.append([name, *(_spread(waits[size]) if waits[size] else "" for size in sizes)])
    return Table("Waits of random's jobs, s", ("resource", *(f"{size} tasks" for size in sizes)), rows)


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.0f}" + (f" ± {stdev(values):.0f}" if len(values) > 1 else "")


def _goals(by: Mapping[tuple[str, int], Sequence[Outcome]]) -> list[Goal]:
    """The paper's reduction at every size."""

    def mean(strategy: str, size: int) -> float:
        return fmean(o.times.total for o in by[strategy, size])

    return [
        Goal(
            f"{size} tasks",
            f"TTC of {strategy} over random",
            mean(strategy, size) / mean("random", size),
            1 - PAPER[size][2],
        )
        for strategy in ("model", "ours")
        for size in sorted({size for _, size in by})
    ]
