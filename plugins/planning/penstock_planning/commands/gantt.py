"""A plan as a picture of letters (nodes down, time across), or as a file by matplotlib."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

from penstock.errors import UserError

__all__ = ["Bar", "as_picture", "as_text", "require"]

_ROWS: Final = 64
_LETTERS: Final = ascii_uppercase + ascii_lowercase


@dataclass(frozen=True, slots=True)
class Bar:
    """Something on a set of nodes (`nodes`, bit i is row i) from `start` to `end` (may be infinite).

    `kind` is running, reserved, waiting, taken (one of these: nobody says which), or own for what the user plans.
    """

    label: str
    kind: str
    nodes: int
    start: float
    end: float


def require() -> None:
    """Fail early where the picture could not be drawn in the end. Raises `UserError`."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("the Gantt picture needs matplotlib: pip install 'penstock[plot]'")


def as_text(
    bars: Sequence[Bar], names: Sequence[str], begin: float, end: float, show: Callable[[float], str], width: int = 72
) -> str:
    """Running `#`, reserved `=`, own `*`, waiting jobs letters, free `.`; a column is the instant at its middle."""
    if not names or not bars or not begin < end < math.inf:
        return "nothing is planned\n"
    step = (end - begin) / width
    letters: dict[str, str] = {}
    for bar in bars:
        if bar.kind == "waiting" and bar.label not in letters:
            letters[bar.label] = _LETTERS[len(letters) % len(_LETTERS)]
    marks = {"running": "#", "taken": "#", "reserved": "=", "own": "*"}
    margin = max(len(name) for name in names[:_ROWS])
    lines = []
    for row, name in enumerate(names[:_ROWS]):
        cells = ["."] * width
        for bar in bars:
            if bar.nodes >> row & 1:
                for column in range(width):
                    middle = begin + (column + 0.5) * step
                    if bar.start <= middle < bar.end:
                        cells[column] = letters.get(bar.label, "") or marks.get(bar.kind, "#")
        lines.append(f"{name:>{margin}} {''.join(cells)}")
    if len(names) > _ROWS:
        lines.append(f"{'':>{margin}} ({len(names) - _ROWS} more nodes)")
    left, right = show(begin), show(end)
    lines.append(f"{'':>{margin}} {left}{right:>{max(width - len(left), 1)}}")
    key = [f"{letter}={label}" for label, letter in list(letters.items())[: len(_LETTERS)]]
    taken = "# taken" if any(bar.kind == "taken" for bar in bars) else "# running  = reserved"
    lines.append(f"{taken}  * own  . free" + ("  " + "  ".join(key[:12]) if key else ""))
    return "\n".join(lines) + "\n"


def as_picture(path: Path, bars: Sequence[Bar], names: Sequence[str], begin: float, end: float, unit: str) -> None:
    """The same as a file, its kind by the ending (.png, .svg, .pdf). UserError without matplotlib or a bad path."""
    require()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    colours = {"running": "#8a93a3", "taken": "#8a93a3", "reserved": "#c9ced6", "own": "#e07a3f", "waiting": "#1b6ca8"}
    figure, axis = plt.subplots(figsize=(12, 1 + min(0.25 * len(names), 12)), layout="constrained")
    shown: dict[str, Any] = {}
    for bar in bars:
        rows = [row for row in range(len(names)) if bar.nodes >> row & 1]
        last = min(bar.end, end)
        patch = axis.barh(
            rows,
            last - max(bar.start, begin),
            left=max(bar.start, begin) - begin,
            height=0.9,
            color=colours[bar.kind],
            edgecolor="white",
            linewidth=0.4,
        )
        shown.setdefault(bar.kind, patch)
        if rows and bar.kind not in ("running", "taken"):
            axis.text(max(bar.start, begin) - begin, rows[0], bar.label[:12], fontsize=6, va="center", clip_on=True)
    axis.set_xlim(0, end - begin)
    axis.set_yticks(range(len(names)), names, fontsize=6)
    axis.invert_yaxis()
    axis.set_xlabel(f"{unit} from now", fontsize=8)
    axis.legend(list(shown.values()), list(shown), fontsize=7, loc="upper right")
    try:
        figure.savefig(path, dpi=140)
    except (OSError, ValueError) as error:
        raise UserError(f"--picture: {path} cannot be written: {error}") from None
    finally:
        plt.close(figure)
