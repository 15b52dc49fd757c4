"""Waits by the hour of the day in which jobs were submitted: of all that were seen to come and to start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

__all__ = ["FEW", "by_hour"]

FEW: Final = 10
"""Jobs below which an hour is left open: so few tell of single people, and of nothing else."""
_DAY: Final = 86400
_HOUR: Final = 3600


def by_hour(waits: Iterable[tuple[float, float]], offset: float) -> list[dict[str, Any]]:
    """24 rows, `hour` 0 to 23, of (seconds of the day in UTC, wait in s): how many `jobs`, the median `p50` and the
    95th percentile `p95` (s), None below `FEW`. `offset`: seconds that the clock of the answer is ahead of UTC."""
    found: list[list[float]] = [[] for _ in range(24)]
    for second, wait in waits:
        found[int((second + offset) % _DAY // _HOUR)].append(wait)
    rows = []
    for hour, own in enumerate(found):
        half, most = np.quantile(own, [0.5, 0.95]).tolist() if len(own) >= FEW else (None, None)
        rows.append({"hour": hour, "jobs": len(own), "p50": half, "p95": most})
    return rows
