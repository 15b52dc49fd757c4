"""How wrong run times are predicted (Ha et al., Figs. 4 and 5), and how the learned correction changes that.

The paper's measurements are gone but for their ranges. So runs are drawn from what it gives: measured clocks with their
deviations (Table I), and cycles that fall short of the predicted ones by instruction-level parallelism (Fig. 3:
predictions too high by 110 to 125 %; on OSG by what Figs. 4 and 5 leave). Errors by base and maximum clock follow from
that and are checked against the paper's; what is new is the correction, learned from the runs before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np

from penstock_lab.papers.select_world import RESOURCES
from penstock_planning.select.accuracy import over, ranked_right
from penstock_planning.select.consumables import Capability, Consumable, Requirement, Resource, Task
from penstock_planning.select.correction import Corrections
from penstock_planning.select.cost import run_time

__all__ = ["PAPER", "STEPS", "Row", "measure"]

STEPS: Final = (1000, 5000, 10_000, 25_000, 50_000, 75_000, 100_000)
_RUNS: Final = 35
_CYCLES: Final = 3.6e8
"""Predicted cycles of a step."""
_P2A: Final[Mapping[str, float]] = {"bridges": 2.20, "comet": 2.225, "supermic": 2.115, "osg": 0.96}
_SCATTER: Final = 0.01
PAPER: Final[Mapping[str, tuple[str, str]]] = {
    "bridges": ("157 to 171", "84 to 111"),
    "comet": ("157 to 171", "84 to 111"),
    "supermic": ("157 to 171", "84 to 111"),
    "osg": ("7 to 18", "-14 to -4"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """Mean errors of predicted run times in per cent, positive: too long; `steps` of the simulation."""

    resource: str
    steps: int
    actual: float
    by_base: float
    by_max: float
    corrected: float


def measure(seed: int = 1) -> tuple[list[Row], dict[str, tuple[float, float]]]:
    """A row per resource and number of steps; and the shares of pairs that are ranked right, by what: of all resources,
    and of the three HPC machines."""
    rng = np.random.default_rng(seed)
    actual: dict[tuple[str, int], list[float]] = {}
    for name, target in RESOURCES.items():
        for steps in STEPS:
            clocks = rng.normal(target.mean, target.deviation, _RUNS)
            cycles = steps * _CYCLES / _P2A[name] * rng.normal(1.0, _SCATTER, _RUNS)
            actual[name, steps] = (cycles / np.maximum(clocks, 0.5 * target.mean)).tolist()
    learned = Corrections()
    rows, predicted = [], {}
    for steps in STEPS:
        task = Task("md", ((Requirement(Consumable.of("compute"), steps * _CYCLES),),))
        for name, target in RESOURCES.items():
            times = actual[name, steps]
            base, largest = (run_time(task, _resource(name, clock)) for clock in (target.base, target.max))
            # The correction knows the shorter simulations only, that is nothing of the first.
            ours = base * learned.factor("md", name)
            errors = (over(seconds, fmean(times)) for seconds in (base, largest, ours))
            rows.append(Row(name, steps, fmean(times), *errors))
            predicted[name, steps] = (base, largest, ours)
        for name, target in RESOURCES.items():
            base = run_time(task, _resource(name, target.base))
            for seconds in actual[name, steps]:
                learned.observe("md", name, base, seconds)
    last = STEPS[-1]

    def right(column: int, names: Sequence[str]) -> float:
        return ranked_right(
            {name: predicted[name, last][column] for name in names},
            {name: fmean(actual[name, last]) for name in names},
        )

    every, three = list(RESOURCES), [name for name in RESOURCES if name != "osg"]
    how = ("base clock", "maximum clock", "base clock, corrected")
    return rows, {name: (right(column, every), right(column, three)) for column, name in enumerate(how)}


def _resource(name: str, clock: float) -> Resource:
    return Resource(name, (Capability(Consumable.of("compute"), clock),))
