"""Plans that no other beats in both cost and makespan, and the choice among them (Singh 2008, sections 4.3, 4.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

from penstock.errors import Infeasible
from penstock_planning.plan.heft import Schedule, Scheduler

__all__ = ["Archive", "Evaluation", "ParetoPoint", "check_limits", "exact", "hypervolume", "trade_off"]

Genome = tuple[bool, ...]


class ParetoPoint(NamedTuple):
    """A plan: its allocation cost (4), its makespan (5), and which slots it may use."""

    cost: float
    makespan: float
    genome: Genome

    def dominates(self, other: ParetoPoint) -> bool:
        """No worse in either, and better in one (section 4.3)."""
        no_worse = self.cost <= other.cost and self.makespan <= other.makespan
        return no_worse and (self.cost < other.cost or self.makespan < other.makespan)


class Archive:
    """The Pareto set of all that was seen; of plans with equal values the first is kept."""

    def __init__(self) -> None:
        self._points: list[ParetoPoint] = []

    def add(self, point: ParetoPoint) -> None:
        """See a plan; infeasible ones are none."""
        if point.makespan == math.inf:
            return
        for old in self._points:
            if old.cost <= point.cost and old.makespan <= point.makespan:
                return
        self._points = [old for old in self._points if not point.dominates(old)]
        self._points.append(point)

    @property
    def points(self) -> tuple[ParetoPoint, ...]:
        """By rising cost, which is by falling makespan."""
        return tuple(sorted(self._points))


class Evaluation:
    """Values of plans, each computed once; `count` is how many were looked at, `scheduled` how many needed the work.

    A plan that has all slots which another one uses, and none that the other has not, gives the same schedule: Figure
    2's search passes by what is not used, whether it is there or not.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._known: dict[Genome, ParetoPoint] = {}
        self._used: list[tuple[int, int, float, float]] = []
        self.size = len(scheduler.slots)
        self.scheduled = 0
        self.archive = Archive()

    @property
    def count(self) -> int:
        """How many different plans were looked at."""
        return len(self._known)

    def __call__(self, genome: Genome) -> ParetoPoint:
        """The plan's cost and makespan, both infinite if the workflow does not fit."""
        point = self._known.get(genome)
        if point is None:
            point = self._known[genome] = ParetoPoint(*self._values(genome), genome)
            self.archive.add(point)
        return point

    def _values(self, genome: Genome) -> tuple[float, float]:
        bits = sum(1 << i for i, taken in enumerate(genome) if taken)
        for has, used, cost, makespan in self._used:
            if not used & ~bits and not bits & ~has:
                return cost, makespan
        found = self._run(genome, False)
        self.scheduled += 1
        if found.makespan < math.inf:
            used = sum(1 << i for i in found.slots)
            self._used.append((bits, used, found.cost, found.makespan))
        return found.cost, found.makespan

    def schedule(self, genome: Genome) -> Schedule:
        """The workflow on the plan's slots."""
        return self._run(genome, True)

    def _run(self, genome: Genome, detail: bool) -> Schedule:
        return self._scheduler.run([i for i, taken in enumerate(genome) if taken], detail)


def exact(evaluate: Evaluation) -> tuple[ParetoPoint, ...]:
    """The front by trying all 2**n plans."""
    for genome in product((False, True), repeat=evaluate.size):
        evaluate(genome)
    return evaluate.archive.points


def trade_off(points: Sequence[ParetoPoint], alpha: float) -> ParetoPoint:
    """The one that (15) prefers, over the points as they are; a term without spread is 0; of equals the cheapest, then
    the one that ends first."""
    costs, spans = [p.cost for p in points], [p.makespan for p in points]
    scale_cost, scale_span = _scale(costs), _scale(spans)

    def rank(point: ParetoPoint) -> tuple[float, float, float]:
        both = alpha * scale_cost(point.cost) + (1 - alpha) * scale_span(point.makespan)
        return both, point.cost, point.makespan

    return min(points, key=rank)


def check_limits(
    points: Sequence[ParetoPoint],
    deadline: float = math.inf,
    budget: float = math.inf,
    show: Callable[[float], str] = "{:g}".format,
    show_cost: Callable[[float], str] = "{:g}".format,
) -> list[ParetoPoint]:
    """Those that keep the deadline (a makespan) and the budget. Raises Infeasible, saying what would be enough; `show`
    makes words of lengths."""
    if not points:
        raise Infeasible("the workflow does not fit on these slots")
    left = [p for p in points if p.makespan <= deadline and p.cost <= budget]
    if left:
        return left
    fastest = min(p.makespan for p in points)
    if fastest > deadline:
        raise Infeasible(f"no plan ends in {show(deadline)}: the fastest takes {show(fastest)}")
    enough = min(p.cost for p in points if p.makespan <= deadline)
    within = "" if deadline == math.inf else " that keeps the deadline"
    raise Infeasible(f"no plan{within} costs {show_cost(budget)} or less: the cheapest costs {show_cost(enough)}")


def hypervolume(points: Iterable[ParetoPoint], cost: float, makespan: float) -> float:
    """The area between the front and the corner (cost, makespan): more is better."""
    total, above = 0.0, makespan
    for point in sorted(points):
        if point.cost < cost and point.makespan < above:
            total += (cost - point.cost) * (above - point.makespan)
            above = point.makespan
    return total


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    low, span = min(values), max(values) - min(values)
    return lambda value: (value - low) / span if span else 0.0
