"""Figures 4 to 8 of the DMR paper again, and one of a real Slurm beside the simulated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock_lab.papers.dmr import paper
from penstock_lab.papers.dmr.drive import Outcome
from penstock_lab.papers.dmr.table4 import Row, rows
from penstock_lab.papers.plotting import pyplot

__all__ = ["draw", "draw_real"]

_SHOWN: Final = ("fixed", "paper", "flexible", "flexible-moldable", "preferred")
_COLOURS: Final = dict(zip(_SHOWN, ("#4c72b0", "#937860", "#c44e52", "#55a868", "#8c8c8c"), strict=True))


def draw(folder: Path, outcomes: Mapping[tuple[int, str], Outcome]) -> Sequence[Path]:
    """The pictures of table 4; the files."""
    plt = pyplot(folder)
    table = {(row.jobs, row.version): row for row in rows(outcomes)}
    smallest = min(n for n, _ in outcomes)
    return [
        _bars(plt, folder / "fig4.png", table, "makespan", "workload, s"),
        _bars(plt, folder / "fig5.png", table, "waiting", "mean wait, s"),
        _evolution(plt, folder / "fig6.png", {v: outcomes[smallest, v] for v in _SHOWN[:4]}),
        _jobs(plt, folder / "fig7.png", outcomes[smallest, "fixed"], outcomes[smallest, "flexible"]),
        _differences(plt, folder / "fig8.png", outcomes[smallest, "fixed"], outcomes[smallest, "flexible"]),
    ]


def draw_real(folder: Path, pairs: Mapping[str, tuple[Outcome, Outcome]]) -> Sequence[Path]:
    """Allocated nodes and ended jobs over time on a real Slurm (full lines) and simulated (dashed)."""
    plt = pyplot(folder)
    figure, (nodes, ended) = plt.subplots(2, 1, figsize=(9, 6), sharex=True)
    for version, pair in pairs.items():
        for outcome, style in zip(pair, ("-", "--"), strict=True):
            times = [point.at for point in outcome.curve]
            look: dict[str, Any] = {"where": "post", "color": _COLOURS[version], "linewidth": 1, "linestyle": style}
            label = version if style == "-" else None
            nodes.step(times, [p.nodes for p in outcome.curve], label=label, **look)
            ended.step(times, [p.ended for p in outcome.curve], **look)
    nodes.set_ylabel("allocated nodes")
    ended.set_ylabel("completed jobs")
    ended.set_xlabel("seconds")
    nodes.legend(fontsize=8)
    return [_save(plt, figure, folder / "real.png")]


def _save(plt: Any, figure: Any, path: Path) -> Path:  # noqa: ANN401 (matplotlib has no types)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _bars(plt: Any, path: Path, table: Mapping[tuple[int, str], Row], what: str, label: str) -> Path:  # noqa: ANN401
    """What a workload takes in each version, with its gain over fixed (figures 4 and 5)."""
    sizes = sorted({n for n, _ in table})
    figure, axes = plt.subplots(figsize=(9, 4))
    for place, version in enumerate(_SHOWN):
        heights = [getattr(table[n, version], what) for n in sizes]
        at = [i + (place - 2) * 0.17 for i in range(len(sizes))]
        bars = axes.bar(at, heights, 0.16, label=version, color=_COLOURS[version])
        if version != "fixed":
            gains = [f"-{1 - h / getattr(table[n, 'fixed'], what):.0%}" for n, h in zip(sizes, heights, strict=True)]
            axes.bar_label(bars, gains, fontsize=6, rotation=90, padding=2)
    axes.set_xticks(range(len(sizes)), [f"{n} jobs" for n in sizes])
    axes.set_ylabel(label)
    axes.legend(fontsize=8)
    return _save(plt, figure, path)


def _evolution(plt: Any, path: Path, outcomes: Mapping[str, Outcome]) -> Path:  # noqa: ANN401
    """Allocated nodes and running jobs, and jobs that have ended, over time (figure 6)."""
    figure, (nodes, running, ended) = plt.subplots(3, 1, figsize=(9, 8), sharex=True)
    for version, outcome in outcomes.items():
        times = [point.at for point in outcome.curve]
        for axes, values in (
            (nodes, [p.nodes for p in outcome.curve]),
            (running, [p.running for p in outcome.curve]),
            (ended, [p.ended for p in outcome.curve]),
        ):
            axes.step(times, values, where="post", label=version, color=_COLOURS[version], linewidth=1)
    for axes, label in ((nodes, "allocated nodes"), (running, "running jobs"), (ended, "completed jobs")):
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    nodes.axhline(paper.NODES, color="#ccc", linewidth=0.8)
    ended.set_xlabel("seconds")
    nodes.legend(fontsize=8)
    return _save(plt, figure, path)


def _jobs(plt: Any, path: Path, fixed: Outcome, flexible: Outcome) -> Path:  # noqa: ANN401
    """Execution and waiting time of each job, by application (figure 7)."""
    figure, grid = plt.subplots(2, len(paper.APPLICATIONS), figsize=(10, 5), sharey="row")
    for column, app in enumerate(paper.APPLICATIONS):
        for version, outcome in (("fixed", fixed), ("flexible", flexible)):
            mine = [r for r in outcome.ran if r.name.startswith(app.name)]
            for axes, values in zip(
                grid[:, column], ([r.execution for r in mine], [r.waiting for r in mine]), strict=True
            ):
                axes.plot(values, ".-", label=version, color=_COLOURS[version], linewidth=0.8)
        grid[0, column].set_title(app.name)
    grid[0, 0].set_ylabel("execution, s")
    grid[1, 0].set_ylabel("waiting, s")
    grid[0, 0].legend(fontsize=8)
    return _save(plt, figure, path)


def _differences(plt: Any, path: Path, fixed: Outcome, flexible: Outcome) -> Path:  # noqa: ANN401
    """By how much each job is better off than in the fixed version; below 0: worse (figure 8)."""
    figure, row = plt.subplots(1, len(paper.APPLICATIONS), figsize=(10, 3.5), sharey=True)
    before = {r.name: r for r in fixed.ran}
    for axes, app in zip(row, paper.APPLICATIONS, strict=True):
        mine = [r for r in flexible.ran if r.name.startswith(app.name)]
        for what in ("execution", "waiting", "completion"):
            axes.plot([getattr(before[r.name], what) - getattr(r, what) for r in mine], ".-", label=what, linewidth=0.8)
        axes.axhline(0, color="#888", linewidth=0.8)
        axes.set_title(app.name)
    row[0].set_ylabel("fixed minus flexible, s")
    row[0].legend(fontsize=8)
    return _save(plt, figure, path)
