"""How near the shipped policies come to what no scheduler can go below (`bound`), in the mean of several seeds.

queue's order   `throughput`, which serves the queue as it stands
reordered       `shortest`, which lets an owner's shorter jobs go first, on sizes that a roll-out finds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from penstock_lab.intervals import Interval, mean_of
from penstock_lab.papers.dmr import paper, table4
from penstock_lab.papers.dmr.table4 import Case
from penstock_lab.papers.dmr.workload import Version
from penstock_lab.papers.report import Goal

__all__ = ["ORDERS", "SEEDS", "Near", "goals", "measure", "nearness"]

SEEDS: Final = (1, 2, 3)
_VERSION: Final = Version(moldable=True, share=1.0, factor=1, up_to="preferred")
ORDERS: Final = {"queue's order": "throughput", "reordered": "shortest"}
_CASES: Final = (Case("fixed", Version()), *(Case(name, _VERSION, policy) for name, policy in ORDERS.items()))
_WITHIN: Final = {
    "queue's order": {50: 5.0, 100: 3.0, 200: 2.5, 400: 2.5},
    "reordered": {50: 2.5, 100: 1.5, 200: 1.0, 400: 1.0},
}
"""Points of completion time cut that may be missing."""


@dataclass(frozen=True, slots=True)
class Near:
    """By how many % the completion time of fixed is cut, and could be at most, seed by seed."""

    jobs: int
    order: str
    cuts: Sequence[float]
    bounds: Sequence[float]

    @property
    def cut(self) -> float:
        """In the mean of the seeds."""
        return fmean(self.cuts)

    @property
    def at_most(self) -> float:
        """In the mean of the seeds."""
        return fmean(self.bounds)

    @property
    def missing(self) -> Interval:
        """Points between the two, each seed's cut beside its own bound."""
        return mean_of([bound - cut for cut, bound in zip(self.cuts, self.bounds, strict=True)])

    def row(self) -> dict[str, object]:
        """For programs."""
        missing = self.missing
        return {
            "jobs": self.jobs,
            "order": self.order,
            "cut": self.cut,
            "at_most": self.at_most,
            "missing": missing.value,
            "missing_low": missing.low,
            "missing_high": missing.high,
            "cuts": list(self.cuts),
            "bounds": list(self.bounds),
        }


def measure(
    jobs: Sequence[int] = paper.JOBS,
    seeds: Sequence[int] = SEEDS,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Near]:
    """Run all of them."""
    completions: dict[tuple[int, int, str], float] = {}
    bounds: dict[tuple[int, int], float] = {}
    for seed in seeds:

        def told(text: str, seed: int = seed) -> None:
            tell(f"seed {seed}: {text}")

        for (n, name), outcome in table4.measure(_CASES, jobs, seed, told).items():
            completions[seed, n, name] = fmean(r.completion for r in outcome.ran)
        bounds |= {(seed, n): table4.bound(n, seed) for n in jobs}
    return nearness(completions, bounds)


def nearness(completions: Mapping[tuple[int, int, str], float], bounds: Mapping[tuple[int, int], float]) -> list[Near]:
    """From mean completion times (s) by seed, number of jobs and case, and bounds by the first two."""
    found = []
    for n in sorted({n for _, n in bounds}):
        seeds = [seed for seed, jobs in bounds if jobs == n]
        most = [100 * (1 - bounds[s, n] / completions[s, n, "fixed"]) for s in seeds]
        for order in ORDERS:
            cuts = [100 * (1 - completions[s, n, order] / completions[s, n, "fixed"]) for s in seeds]
            found.append(Near(n, order, cuts, most))
    return found


def goals(found: Sequence[Near]) -> list[Goal]:
    """How near they shall be."""
    what = "points that the cut of completion time is below the bound, mean of the seeds"
    return [Goal(f"{f.jobs} jobs, {f.order}", what, f.missing.value, _WITHIN[f.order][f.jobs]) for f in found]
