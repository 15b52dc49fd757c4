"""How much faster a job runs on more nodes: speed-up models, and the work that they are applied to.

A model maps a number of nodes n >= 1 to S(n), the speed relative to one node (S(1) = 1). All are values, so that two
runs of a simulation with the same ones agree.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

__all__ = ["Amdahl", "Downey", "Speedup", "Table", "Work"]


@dataclass(frozen=True, slots=True)
class Amdahl:
    """S(n) = 1 / (serial + (1 - serial) / n) (Amdahl 1967); `serial` from 0 (linear) to 1 (more nodes do not help)."""

    serial: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.serial <= 1:
            raise ValueError(f"serial is a fraction from 0 to 1, not {self.serial}")

    def at(self, nodes: int) -> float:
        """The speed on so many nodes."""
        return 1.0 / (self.serial + (1.0 - self.serial) / nodes)


@dataclass(frozen=True, slots=True)
class Table:
    """Measured speeds: pairs (nodes, speed) rising in nodes. Between them straight lines, beyond them constant."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        sizes = [n for n, _ in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1 or any(not s > 0 for _, s in self.points):
            raise ValueError(f"a speed-up table is pairs of rising node counts and speeds above 0, not {self.points}")

    def at(self, nodes: int) -> float:
        """The speed on so many nodes."""
        right = bisect_right(self.points, nodes, key=lambda point: point[0])
        if right == 0:
            return self.points[0][1]
        if right == len(self.points):
            return self.points[-1][1]
        (n0, s0), (n1, s1) = self.points[right - 1], self.points[right]
        return s0 + (s1 - s0) * (nodes - n0) / (n1 - n0)


@dataclass(frozen=True, slots=True)
class Downey:
    """Downey's model (A model for speedup of parallel programs, UCB/CSD-97-933): the average parallelism `average` (A)
    and its coefficient of variance `variance` (sigma); 0 means linear up to A and flat beyond."""

    average: float
    variance: float = 0.0

    def __post_init__(self) -> None:
        if not self.average >= 1 or not self.variance >= 0:
            raise ValueError(f"Downey's model wants average >= 1 and variance >= 0, not {self}")

    def at(self, nodes: int) -> float:
        """The speed on so many nodes."""
        a, sigma, n = self.average, self.variance, float(nodes)
        if sigma <= 1:
            if n <= a:
                return a * n / (a + sigma * (n - 1) / 2)
            if n <= 2 * a - 1:
                return a * n / (sigma * (a - 0.5) + n * (1 - sigma / 2))
            return a
        if n <= a + a * sigma - sigma:
            return n * a * (sigma + 1) / (sigma * (n + a - 1) + a)
        return a


Speedup = Amdahl | Table | Downey


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
