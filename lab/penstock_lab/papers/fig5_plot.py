"""The curves of figure 5: one picture a noise, the estimates of one run above, the mean cumulative loss below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock_lab.papers.fig5 import Outcome, waits
from penstock_lab.papers.plotting import pyplot

__all__ = ["draw"]

_COLOURS: Final = {
    "asa-default": "#3d3d3d", "asa-greedy": "#b8336a", "asa-tuned": "#e29ac0", "share": "#2a9d6f",
    "share-mix": "#e07a3f", "last": "#9fb8d8", "median": "#8a7a1f",
}  # fmt: skip


def draw(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Write fig5-noise-N.png for each noise; the files. Raises `UserError` without matplotlib or a writable folder."""
    plt = pyplot(folder)
    written = []
    for noise in sorted({o.noise for o in outcomes}):
        figure, (above, below) = plt.subplots(2, 1, figsize=(10, 8), sharex=True, constrained_layout=True)
        above.plot(waits(0, noise), color="#1b6ca8", linestyle="--", linewidth=1.6, label="true wait", zorder=3)
        for outcome in (o for o in outcomes if o.noise == noise):
            colour = _COLOURS.get(outcome.predictor)
            above.plot(outcome.estimates, color=colour, linewidth=0.8, alpha=0.8)
            below.plot(outcome.curve, color=colour, label=f"{outcome.predictor} ({outcome.curve[-1]:.0f})")
        above.set_yscale("log")
        above.set_ylabel("wait, seconds (first seed)")
        above.set_title(f"Estimates of a wait that changes at 0, 200, 400, 600, 800; noise {noise:g}")
        above.legend(loc="upper right")
        below.set_yscale("symlog", linthresh=10)
        below.set_xlabel("iteration")
        below.set_ylabel("cumulative 0/1 loss, mean of the seeds")
        below.legend(loc="lower right", ncols=2)
        path = folder / f"fig5-noise-{noise:g}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        written.append(path)
    return written
