"""NSGA-II (Deb et al. 2002) from DEAP over the same plans as `moga`. Needs the extra `plan`; loaded when used."""

from __future__ import annotations

import random
from typing import Any

from penstock.errors import UserError
from penstock.provision.front import Evaluation, ParetoPoint
from penstock.provision.moga import MogaSettings

__all__ = ["nsga2"]

_NEVER = 1e300  # DEAP compares with finite numbers


def nsga2(evaluate: Evaluation, seed: int, settings: MogaSettings | None = None) -> tuple[ParetoPoint, ...]:
    """The Pareto set that the search finds; the same for the same seed. UserError when DEAP is not installed."""
    try:
        from deap import base, tools
    except ImportError:
        raise UserError("the method nsga2 needs DEAP: pip install 'penstock[plan]'") from None
    settings = settings or MogaSettings()
    before = random.getstate()  # DEAP draws from Python's own generator
    random.seed(seed)
    try:
        return _run(evaluate, settings, base, tools)
    finally:
        random.setstate(before)


def _run(evaluate: Evaluation, settings: MogaSettings, base: Any, tools: Any) -> tuple[ParetoPoint, ...]:  # noqa: ANN401
    class Values(base.Fitness):  # type: ignore[misc]
        weights = (-1.0, -1.0)

    class Plan(list[bool]):
        def __init__(self, bits: Any) -> None:  # noqa: ANN401
            super().__init__(bits)
            point = evaluate(tuple(self))
            self.fitness = Values((min(point.cost, _NEVER), min(point.makespan, _NEVER)))

    size = max(evaluate.size, 1)
    count = settings.population - settings.population % 4  # the tournament takes them by fours
    start = [list(genome) for genome in settings.start[:count]]
    start += [[random.random() < 0.5 for _ in range(evaluate.size)] for _ in range(count - len(start))]
    population = tools.selNSGA2([Plan(bits) for bits in start], count)
    for _ in range(settings.iterations):
        children = []
        for one, other in zip(*[iter(tools.selTournamentDCD(population, count))] * 2, strict=True):
            first, second = list(one), list(other)
            if evaluate.size > 1:
                tools.cxTwoPoint(first, second)
            for bits in (first, second):
                tools.mutFlipBit(bits, 1 / size)
                children.append(Plan(bits))
        population = tools.selNSGA2(population + children, count)
    return evaluate.archive.points
