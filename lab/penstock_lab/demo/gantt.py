"""The Gantt picture: nodes over time, one colour per kind of job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock_lab.demo.timeline import Timeline
from penstock_planning.commands.gantt import require

__all__ = ["Label", "Panel", "arranged", "draw"]

_COLOURS = {"rival": "#c9ced6", "warm-up": "#9fb8d8", "jacobi": "#e07a3f", "resizer": "#f2b48c"}
_STAGES = ("#1b6ca8", "#2a9d6f", "#7b4fa3", "#b8336a", "#8a7a1f", "#3d3d3d")
_WIDE: Final = 12.0
_LETTER: Final = 0.0068
"""The width of a letter of a label, as a share of the time axis."""
_TOGETHER: Final = 0.01
"""Marks that are this close, as a share of the axis, are one label."""
_LINE: Final = 9.0
"""The height of a line of labels, in points."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A row of the picture: its times are shown from `origin` on (epoch s). Rows of one `axis` have the same axis."""

    title: str
    timeline: Timeline
    origin: float
    axis: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text above the row, at a time (s from the origin) and on a `line` counted from the nodes upwards."""

    at: float
    text: str
    line: int


def arranged(marks: Sequence[tuple[float, str]], span: float) -> list[Label]:
    """Labels for marks at these times (s from the origin) on an axis of `span` seconds, so that none is printed over
    another: those at about the same time are one, and what has no room beside the one before it stands higher."""
    joined: list[tuple[float, str]] = []
    for at, text in sorted(marks):
        if joined and at - joined[-1][0] <= _TOGETHER * span:
            before = joined[-1][1]
            first, _, rest = text.partition(" ")
            joined[-1] = (joined[-1][0], f"{before}, {rest if before.startswith(first) and rest else text}")
        else:
            joined.append((at, text))
    labels: list[Label] = []
    ends: list[float] = []  # of the last label on each line
    for at, text in joined:
        line = next((i for i, end in enumerate(ends) if end <= at), len(ends))
        ends[line : line + 1] = [at + (len(text) + 2) * _LETTER * span]
        labels.append(Label(at, text, line))
    return labels


def draw(path: Path, panels: Sequence[Panel], nodes: Sequence[str]) -> None:
    """Write one row per panel to a PNG file."""
    require()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    spans = {panel.axis: 0.0 for panel in panels}
    for panel in panels:
        ends = (bar.end - panel.origin for bar in panel.timeline.bars)
        spans[panel.axis] = max([spans[panel.axis], 1.0, *ends])
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(_WIDE, 0.9 + 2.6 * len(panels)), squeeze=False, layout="constrained"
    )
    for i, (axis, panel) in enumerate(zip(axes[:, 0], panels, strict=True)):
        last = i + 1 == len(panels) or panels[i + 1].axis != panel.axis
        _row(axis, panel, spans[panel.axis], nodes, last=last)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def _row(axis: Any, panel: Panel, span: float, nodes: Sequence[str], *, last: bool) -> None:  # noqa: ANN401
    rows = {node: i for i, node in enumerate(nodes)}
    colours, shown = dict(_COLOURS), dict[str, object]()
    for bar in panel.timeline.bars:
        start, end = max(bar.start - panel.origin, 0.0), bar.end - panel.origin
        if end <= 0:
            continue
        if bar.label not in colours:
            colours[bar.label] = _STAGES[(len(colours) - len(_COLOURS)) % len(_STAGES)]
        patch = axis.barh(
            rows[bar.node],
            max(end - start, 0.002 * span),
            left=start,
            height=0.86,
            color=colours[bar.label],
            edgecolor="white",
            linewidth=0.4,
        )
        shown.setdefault(bar.label, patch)
    labels = arranged([(at - panel.origin, text) for at, text in panel.timeline.marks], span)
    for label in labels:
        axis.axvline(label.at, color="#333333", linewidth=0.8, linestyle=":")
        axis.annotate(
            label.text,
            (label.at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 2 + _LINE * label.line),
            textcoords="offset points",
            fontsize=7,
            annotation_clip=False,
        )
    lines = 1 + max((label.line for label in labels), default=-1)
    axis.set_title(panel.title, fontsize=10, loc="left", pad=6 + _LINE * lines)
    axis.set_xlim(0, span * 1.01)
    axis.set_yticks(range(len(nodes)), nodes, fontsize=8)
    axis.invert_yaxis()
    if last:
        axis.set_xlabel("seconds", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(
        list(shown.values()), list(shown), fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False
    )
