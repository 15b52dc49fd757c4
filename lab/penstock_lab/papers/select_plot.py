"""The pictures of `penstock bench select`: errors of predicted run times (Figs. 4 and 5), times of bags (Fig. 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from penstock_lab.papers.plotting import pyplot
from penstock_lab.papers.select_bags import Outcome
from penstock_lab.papers.select_errors import Row

__all__ = ["draw_bags", "draw_errors"]

_COLOURS: Final = {
    "random": "#3d3d3d", "round-robin": "#9fb8d8", "least-loaded": "#8a7a1f", "model": "#1b6ca8", "best": "#b8336a",
    "spread": "#e29ac0", "ours": "#2a9d6f", "ours-95": "#e07a3f",
}  # fmt: skip


def draw_errors(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Write errors.png: a panel per resource; the file. Raises `UserError` without matplotlib or a writable folder."""
    plt = pyplot(folder)
    names = list(dict.fromkeys(row.resource for row in rows))
    figure, panels = plt.subplots(1, len(names), figsize=(13, 3.6), sharey=True, constrained_layout=True)
    for axis, name in zip(panels, names, strict=True):
        mine = [row for row in rows if row.resource == name]
        for field, label, colour in (
            ("by_base", "base clock", "#1b6ca8"),
            ("by_max", "maximum clock", "#e07a3f"),
            ("corrected", "base clock, corrected", "#2a9d6f"),
        ):
            axis.plot([r.steps for r in mine], [getattr(r, field) for r in mine], "o-", color=colour, label=label)
        axis.axhline(0.0, color="#888888", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_title(name)
        axis.set_xlabel("steps")
    panels[0].set_ylabel("error of the predicted run time, %")
    panels[-1].legend()
    return [_saved(plt, figure, folder / "errors.png")]


def draw_bags(
    folder: Path, loads: str, found: Sequence[Outcome], paper: Mapping[int, tuple[float, float, float]]
) -> list[Path]:
    """Write bags-LOADS.png: TTC, Tq and Tx of every strategy by the number of tasks, with sample deviations; over them
    the paper's own mean TTC of random and its model. The file; raises as `draw_errors` does."""
    plt = pyplot(folder)
    strategies = list(dict.fromkeys(o.strategy for o in found))
    sizes = sorted({o.size for o in found})
    figure, panels = plt.subplots(3, 1, figsize=(11, 11), sharex=True, constrained_layout=True)
    for axis, field, label in zip(
        panels, ("total", "waiting", "execution"), ("TTC", "Tq: none runs yet", "Tx: at least one runs"), strict=True
    ):
        for number, strategy in enumerate(strategies):
            each = [
                [getattr(o.times, field) / 3600 for o in found if (o.strategy, o.size) == (strategy, n)] for n in sizes
            ]
            width = 0.8 / len(strategies)
            axis.bar(
                [place + width * (number - (len(strategies) - 1) / 2) for place in range(len(sizes))],
                [fmean(values) for values in each],
                width,
                yerr=[stdev(values) if len(values) > 1 else 0.0 for values in each],
                error_kw={"elinewidth": 0.8, "ecolor": "#666666"},
                color=_COLOURS.get(strategy),
                label=strategy,
            )
        axis.set_ylabel(f"{label}, hours")
    for column, (name, marker) in enumerate((("random", "v"), ("model", "^"))):
        theirs = [paper[n][column] / 3600 for n in sizes]
        panels[0].plot(range(len(sizes)), theirs, marker, color="black", label=f"{name} in the paper", zorder=3)
    panels[0].set_title(f"Bags of tasks, queues {loads}")
    panels[0].legend(ncols=5, fontsize=8)
    panels[-1].set_xticks(range(len(sizes)), [str(n) for n in sizes])
    panels[-1].set_xlabel("tasks")
    return [_saved(plt, figure, folder / f"bags-{loads}.png")]


def _saved(plt: Any, figure: Any, path: Path) -> Path:  # noqa: ANN401
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return path
