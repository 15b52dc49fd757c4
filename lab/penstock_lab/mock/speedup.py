"""What a simulated job has to do, on however many nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock_planning.select.speedup import Speedup

__all__ = ["Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """What a job has to do: `seconds` on one node, or on whatever nodes it gets when there is no `speedup`."""

    seconds: float
    exit_code: int = 0
    speedup: Speedup | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.seconds) or self.seconds < 0:
            raise ValueError(f"work is at least 0 seconds, not {self.seconds}")

    def speed(self, nodes: int) -> float:
        """Seconds of work that are done in one second on so many nodes."""
        return 1.0 if self.speedup is None else self.speedup.at(nodes)
