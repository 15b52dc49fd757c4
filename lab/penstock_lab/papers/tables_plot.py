"""Bar charts as figures 6 to 8 of the ASA paper: a picture a workflow, the makespan of each strategy with its waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock_lab.papers import paper
from penstock_lab.papers.plotting import pyplot
from penstock_lab.papers.tables import Row

__all__ = ["draw"]


def draw(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Write table1-WORKFLOW.png each; the files. Raises `UserError` without matplotlib or a writable folder."""
    plt = pyplot(folder)
    written = []
    rules = list(dict.fromkeys(row.rule for row in rows))
    for workflow in paper.WORKFLOWS:
        figure, axes = plt.subplots(
            len(rules), len(paper.SCALES), figsize=(14, 3.6 * len(rules)), constrained_layout=True, squeeze=False
        )
        for i, rule in enumerate(rules):
            for j, machine in enumerate(paper.SCALES):
                chosen = [r for r in rows if (r.workflow, r.rule, r.machine) == (workflow, rule, machine)]
                _bars(axes[i][j], chosen, f"{workflow}, {machine}, {rule}")
        axes[0][0].legend(loc="upper left")
        path = folder / f"table1-{workflow}.png"
        figure.savefig(path, dpi=100)
        plt.close(figure)
        written.append(path)
    return written


def _bars(axis: object, rows: Sequence[Row], title: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    places, labels = [], []
    place = 0.0
    for number, row in enumerate(rows):
        place += 1.0 if number and row.cores == rows[number - 1].cores else 2.0
        places.append(place)
        labels.append(f"{row.strategy}\n{row.cores}")
    waits = [min(row.wait, row.makespan) for row in rows]
    axis.bar(places, waits, color="#e07a3f", label="waiting")
    axis.bar(
        places,
        [r.makespan - w for r, w in zip(rows, waits, strict=True)],
        bottom=waits,
        color="#1b6ca8",
        label="running",
    )
    axis.set_xticks(places, labels, rotation=60, fontsize=7)
    axis.set_ylabel("makespan, s")
    axis.set_title(title, fontsize=9)
