"""matplotlib, where it is installed and only when a picture is wanted."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from penstock.errors import UserError

__all__ = ["prepare", "pyplot"]


def prepare(folder: Path) -> None:
    """Fail before the long work whose pictures could not be drawn in the end; makes the folder. Raises `UserError`."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("pictures need matplotlib: pip install 'penstock-lab[plot]' (or leave --out away)")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".penstock-probe"
        probe.touch()
        probe.unlink()
    except OSError as e:
        raise UserError(f"--out: {folder} cannot be written to: {e.strerror}") from None


def pyplot(folder: Path) -> Any:  # noqa: ANN401
    """matplotlib.pyplot, for files only."""
    prepare(folder)
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt
