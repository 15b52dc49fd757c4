"""Keeps a stage back that could not end before a maintenance: Slurm would not start it, and its wait would teach
nothing. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.api import Reason, plural
from penstock.future.maintenance import earliest
from penstock.values.durations import duration_text
from penstock.workflow.model import Stage
from penstock.workflow.run.instructions import SlurmView

__all__ = ["kept_back"]


def kept_back(
    view: SlurmView, partitions: Sequence[str], unit: Stage, starts: float, done: str = "submitted"
) -> Reason | None:
    """Why the job of `unit` is not submitted (`done`) yet although it is due; None: it may be.

    `starts` is when it could start at the earliest, in any of its `partitions`.
    """
    parts = [view.partitions[name] for name in partitions if name in view.partitions]
    nodes = list(dict.fromkeys(node for part in parts for node in part.nodes))
    begin, reservation = earliest(view.reservations, nodes, unit.nodes, unit.time_limit, starts)
    if reservation is None:
        return None
    then = "the maintenance has no end" if math.isinf(begin) else f"it is {done} after that, at {_when(begin)}"
    return Reason(
        "maintenance",
        f"a job of {plural(unit.nodes, 'node')} for {duration_text(unit.time_limit)} could not end before maintenance "
        f"{reservation.name}, which starts at {_when(reservation.start)}: {then}",
    )


def _when(t: float) -> str:
    """An instant for people, in UTC; maintenance is days away."""
    try:
        return datetime.fromtimestamp(t, tz=UTC).strftime("%Y-%m-%d %H:%MZ")
    except (OverflowError, ValueError, OSError):  # a simulation's clock
        return f"{t:g}"
