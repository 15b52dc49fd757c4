"""What the ASA paper reports, and the workflows behind its tables 1 and 2, as far as it tells.

The paper names the stages and which of them are parallel (section 4.3, figure 1); it gives no time of a stage. What a
whole execution takes follows from table 1 (makespan minus waits, Per-Stage), how much of that is parallel from its
core-hours; how it is spread over the stages is ours (`_SHARES`). A parallel stage has all cores, a sequential one four.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.workflow.model import Stage

__all__ = ["SCALES", "SLOT", "TABLE_1", "TABLE_2", "WORKFLOWS", "Accuracy", "Cell", "bottom_line", "stages"]

SLOT: Final = 4
"""Cores that are given out together: the machines of the paper share their nodes of 28 and 20 cores."""
WORKFLOWS: Final = ("montage", "blast", "statistics")
SCALES: Final = {"hpc2n": (28, 56, 112), "uppmax": (160, 320, 640)}
"""Peak cores by machine."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A result of table 1: total waiting time and makespan in seconds, core-hours."""

    wait: float
    makespan: float
    core_hours: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A row of table 2: hours, percentages of submissions, core-hours."""

    real: float
    predicted: float
    perceived: float
    hit: float
    overhead: float


_STRATEGIES: Final = ("bigjob", "perstage", "asa")
_TABLE_1: Final = {
    "montage": {
        28: ((150, 1287, 9), (258, 1408, 7), (132, 1277, 7)),
        56: ((206, 1261, 16), (426, 1496, 12), (219, 1280, 12)),
        112: ((452, 1513, 33), (699, 1779, 20), (393, 1464, 20)),
        160: ((1415, 2718, 58), (2220, 3507, 40), (1652, 2921, 39)),
        320: ((8135, 10126, 177), (15582, 17170, 106), (10062, 11637, 105)),
        640: ((10200, 11940, 309), (16600, 18200, 171), (11851, 13436, 169)),
    },
    "blast": {
        28: ((70, 2750, 20), (68, 2727, 20), (75, 2749, 20)),
        56: ((133, 1476, 20), (153, 1508, 21), (111, 1477, 21)),
        112: ((165, 926, 23), (194, 965, 24), (144, 907, 23)),
        160: ((7100, 7846, 33), (7125, 7880, 33), (7041, 7800, 33)),
        320: ((8133, 8494, 32), (8240, 8611, 33), (8194, 8557, 32)),
        640: ((10133, 10394, 46), (10150, 10429, 47), (10144, 10419, 48)),
    },
    "statistics": {
        28: ((52, 5593, 43), (48, 5487, 42), (51, 5549, 43)),
        56: ((96, 4397, 66), (263, 4644, 34), (116, 4444, 33)),
        112: ((124, 4110, 124), (191, 4193, 62), (70, 4085, 62)),
        160: ((2772, 7095, 192), (4960, 9241, 95), (2712, 6986, 95)),
        320: ((7935, 11886, 351), (18008, 21993, 177), (7471, 11439, 176)),
        640: ((10122, 13868, 665), (21014, 24817, 338), (9497, 13369, 344)),
    },
}
TABLE_1: Final = {
    (workflow, cores, strategy): Cell(*cell)
    for workflow, rows in _TABLE_1.items()
    for cores, row in rows.items()
    for strategy, cell in zip(_STRATEGIES, row, strict=True)
}
"""By workflow, peak cores and strategy."""

TABLE_2: Final = {
    ("montage", 28): Accuracy(0.4, 0.7, 0.5, 60, 1.7),
    ("montage", 56): Accuracy(1.1, 1.2, 0.4, 68, 3.0),
    ("montage", 112): Accuracy(1.5, 2.0, 0.5, 87, 2.0),
    ("montage", 160): Accuracy(11, 3.9, 0.7, 100, 0),
    ("montage", 320): Accuracy(15, 12, 0.2, 100, 0),
    ("montage", 640): Accuracy(17, 12, 0.3, 100, 0),
    ("blast", 28): Accuracy(0.4, 1.0, 0.6, 70, 8),
    ("blast", 56): Accuracy(1.1, 1.3, 0.7, 71, 11),
    ("blast", 112): Accuracy(1.5, 1.0, 0.6, 89, 3),
    ("blast", 160): Accuracy(11, 4.5, 0.7, 100, 0),
    ("blast", 320): Accuracy(15, 11, 0.2, 100, 0),
    ("blast", 640): Accuracy(16, 11, 0.3, 100, 0),
    ("statistics", 28): Accuracy(0.4, 0.5, 0.4, 67, 3),
    ("statistics", 56): Accuracy(1.1, 1.2, 0.4, 69, 6),
    ("statistics", 112): Accuracy(1.5, 2.0, 0.5, 87, 5),
    ("statistics", 160): Accuracy(11, 5.2, 0.6, 100, 0),
    ("statistics", 320): Accuracy(14, 11, 0.2, 100, 0),
    ("statistics", 640): Accuracy(16, 12, 0.3, 100, 0),
}
"""By workflow and peak cores."""

# parallel or not, and the stage's share of the time of its kind
_SHARES: Final = {
    "montage": (
        (True, 0.5), (True, 0.3), (False, 0.1), (False, 0.3), (True, 0.2), (False, 0.1), (False, 0.35), (False, 0.1),
        (False, 0.05),
    ),
    "blast": ((True, 1.0), (False, 1.0)),
    "statistics": ((False, 0.5), (True, 0.5), (False, 0.5), (True, 0.5)),
}  # fmt: skip
_LONGEST_PARALLEL: Final = 0.99


def stages(workflow: str, cores: int) -> tuple[Stage, ...]:
    """The chain of stages on so many peak cores, with nodes in slots of `SLOT` cores; limits are 1.5 times the time."""
    cell = TABLE_1[workflow, cores, "perstage"]
    total = cell.makespan - cell.wait
    used = cell.core_hours * 3600.0 / total  # cores on average
    parallel = min((used - SLOT) / (cores - SLOT), _LONGEST_PARALLEL) * total
    chain: list[Stage] = []
    for number, (wide, share) in enumerate(_SHARES[workflow], 1):
        seconds = round(max(share * (parallel if wide else total - parallel), 1.0), 1)
        limit = 60.0 * max(math.ceil(1.5 * seconds / 60.0), 5)
        after = (chain[-1].name,) if chain else ()
        nodes = cores // SLOT if wide else 1
        chain.append(Stage(f"stage-{number}", nodes, limit, seconds, f"bench-stage {seconds}", after))
    return tuple(chain)


def bottom_line(strategy: str) -> float:
    """Core-hours of all of the paper's runs under a strategy."""
    return sum(cell.core_hours for (_, _, name), cell in TABLE_1.items() if name == strategy)
