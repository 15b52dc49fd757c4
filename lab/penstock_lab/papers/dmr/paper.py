"""What the DMR paper reports: applications (table 1), overheads (table 2), modes (table 3), workloads (table 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "APPLICATIONS",
    "FACTOR",
    "INTERARRIVAL",
    "JOBS",
    "MODES",
    "NODES",
    "OVERHEADS",
    "TABLE_4",
    "Application",
    "Result",
]

NODES: Final = 64
JOBS: Final = (50, 100, 200, 400)
INTERARRIVAL: Final = 10.0
"""Mean seconds between submissions, a Poisson process (section 7.1)."""


@dataclass(frozen=True, slots=True)
class Application:
    """A row of table 1. One process on a node; `period` is the seconds in which checks are inhibited."""

    name: str
    iterations: int
    minimum: int
    maximum: int
    preferred: int
    period: float


APPLICATIONS: Final = (
    Application("cg", 10_000, 2, 32, 8, 15.0),
    Application("jacobi", 10_000, 2, 32, 8, 15.0),
    Application("nbody", 25, 1, 16, 1, 0.0),
)
FACTOR: Final = 2
"""Every job is resized by doubling and halving (section 7.5)."""


@dataclass(frozen=True, slots=True)
class Result:
    """A row of table 4: share of the nodes that are allocated, mean seconds of a job."""

    utilisation: float
    waiting: float
    execution: float
    completion: float


TABLE_4: Final = {
    (50, "fixed"): Result(0.9871, 4115.02, 620.26, 4735.28),
    (50, "flexible"): Result(0.6867, 1359.92, 900.3, 2260.22),
    (100, "fixed"): Result(0.9739, 9750.34, 586.64, 10336.98),
    (100, "flexible"): Result(0.7191, 2990.6, 858.16, 3848.76),
    (200, "fixed"): Result(0.9838, 17466.2, 520.58, 17986.78),
    (200, "flexible"): Result(0.7354, 6856.8, 825.88, 7676.67),
    (400, "fixed"): Result(0.9838, 31788.39, 532.14, 32320.53),
    (400, "flexible"): Result(0.7354, 13861.03, 843.19, 14704.22),
}
"""By number of jobs and version."""

OVERHEADS: Final = {
    ("none", "synchronous"): (None, None, 0.0010, 0.2078, 0.0094, 0.0102),
    ("none", "asynchronous"): (None, None, 0.0003, 0.1140, 0.0137, 0.0112),
    ("expand", "synchronous"): (50, 0.125, 0.367, 0.530, 0.423, 0.146),
    ("expand", "asynchronous"): (107, 0.267, 0.366, 40.418, 8.820, 12.688),
    ("shrink", "synchronous"): (194, 0.485, 0.233, 0.541, 0.425, 0.498),
    ("shrink", "asynchronous"): (303, 0.757, 0.334, 0.555, 0.422, 0.049),
}
"""Table 2, 400 jobs, by action and mode: how many, how many a job, and their seconds: least, most, mean, deviation."""

MODES: Final = {
    "fixed": (83.607, 5.353, None, None, None),
    "synchronous": (93.909, 1.012, 27.980, -58.482, 12.786),
    "asynchronous": (86.687, 8.735, 30.575, -97.294, 7.799),
}
"""Table 3 by mode, in %: mean utilisation and its deviation over the workloads, gains in waiting, execution and
completion. Of workloads of the synthetic application in several sizes, not of those of table 4."""
