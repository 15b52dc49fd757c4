"""The Gantt picture: nodes over time, one colour per kind of job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.cli.gantt import require
from penstock_lab.demo.timeline import Timeline

__all__ = ["draw"]

_COLOURS = {"rival": "#c9ced6", "warm-up": "#9fb8d8", "jacobi": "#e07a3f", "resizer": "#f2b48c"}
_STAGES = ("#1b6ca8", "#2a9d6f", "#7b4fa3", "#b8336a", "#8a7a1f", "#3d3d3d")


def draw(path: Path, panels: Sequence[tuple[str, Timeline]], nodes: Sequence[str]) -> None:
    """Write one panel per timeline to a PNG file."""
    require()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(panels), 1, figsize=(12, 0.9 + 2.6 * len(panels)), squeeze=False, layout="constrained"
    )
    rows = {node: i for i, node in enumerate(nodes)}
    for axis, (title, timeline) in zip(axes[:, 0], panels, strict=True):
        origin = min((b.start for b in timeline.bars), default=0.0)
        colours = dict(_COLOURS)
        shown: dict[str, object] = {}
        for bar in timeline.bars:
            if bar.label not in colours:
                colours[bar.label] = _STAGES[(len(colours) - len(_COLOURS)) % len(_STAGES)]
            patch = axis.barh(
                rows[bar.node],
                max(bar.end - bar.start, 0.3),
                left=bar.start - origin,
                height=0.86,
                color=colours[bar.label],
                edgecolor="white",
                linewidth=0.4,
            )
            shown.setdefault(bar.label, patch)
        for at, text in timeline.marks:
            axis.axvline(at - origin, color="#333333", linewidth=0.8, linestyle=":")
            axis.annotate(
                text, (at - origin, -0.65), fontsize=7, rotation=30, ha="left", va="bottom", annotation_clip=False
            )
        axis.set_title(title, fontsize=10, loc="left", pad=38)
        axis.set_yticks(range(len(nodes)), nodes, fontsize=8)
        axis.invert_yaxis()
        axis.set_xlabel("seconds", fontsize=8)
        axis.tick_params(axis="x", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(
            list(shown.values()), list(shown), fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)
