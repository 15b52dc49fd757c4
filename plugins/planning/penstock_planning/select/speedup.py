"""How much faster work runs on more processors or nodes: speed-up models, for simulations and for predictions.

A model maps a number n >= 1 of them to S(n), the speed relative to one (S(1) = 1). All are values, so that two runs
with the same ones agree.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

__all__ = ["Amdahl", "Downey", "Speedup", "SpeedupTable"]


@dataclass(frozen=True, slots=True)
class Amdahl:
    """S(n) = 1 / (serial + (1 - serial) / n) (Amdahl 1967); `serial` from 0 (linear) to 1 (more do not help)."""

    serial: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.serial <= 1:
            raise ValueError(f"serial is a fraction from 0 to 1, not {self.serial}")

    def at(self, n: int) -> float:
        """The speed on so many."""
        return 1.0 / (self.serial + (1.0 - self.serial) / n)


@dataclass(frozen=True, slots=True)
class SpeedupTable:
    """Measured speeds: pairs (how many, speed) rising in the first. Straight lines between them, constant beyond."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        sizes = [n for n, _ in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1 or any(not s > 0 for _, s in self.points):
            raise ValueError(f"a speed-up table is pairs of rising counts and speeds above 0, not {self.points}")

    def at(self, n: int) -> float:
        """The speed on so many."""
        right = bisect_right(self.points, n, key=lambda point: point[0])
        if right == 0:
            return self.points[0][1]
        if right == len(self.points):
            return self.points[-1][1]
        (n0, s0), (n1, s1) = self.points[right - 1], self.points[right]
        return s0 + (s1 - s0) * (n - n0) / (n1 - n0)


@dataclass(frozen=True, slots=True)
class Downey:
    """Downey's model (A model for speedup of parallel programs, UCB/CSD-97-933): the average parallelism `average` (A)
    and its coefficient of variance `variance` (sigma); 0 means linear up to A and flat beyond."""

    average: float
    variance: float = 0.0

    def __post_init__(self) -> None:
        if not self.average >= 1 or not self.variance >= 0:
            raise ValueError(f"Downey's model wants average >= 1 and variance >= 0, not {self}")

    def at(self, n: int) -> float:
        """The speed on so many."""
        a, sigma = self.average, self.variance
        if sigma <= 1:
            if n <= a:
                return a * n / (a + sigma * (n - 1) / 2)
            if n <= 2 * a - 1:
                return a * n / (sigma * (a - 0.5) + n * (1 - sigma / 2))
            return a
        if n <= a + a * sigma - sigma:
            return n * a * (sigma + 1) / (sigma * (n + a - 1) + a)
        return a


Speedup = Amdahl | SpeedupTable | Downey
