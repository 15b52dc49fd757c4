"""What a task costs on a resource (Eq. 2 of Ha et al.), in time, money or energy, and how long it runs there."""

from __future__ import annotations

import math

from penstock_planning.select.consumables import Capability, Metric, Requirement, Resource, Task
from penstock_planning.select.matchmaking import matching

__all__ = ["cost", "run_time"]

_HOUR = 3600.0


def cost(task: Task, res: Resource, metric: Metric = Metric.TIME) -> float:
    """K: the cost of using up the required amounts one after the other, at the rates that the resource offers (Eq. 2).

    In seconds, service units or joules; infinite for a resource that is not viable, and for a cost that is not known of
    it. The paper's indicator demands equal consumables, while its matching lets forms overlap: the sum here runs over
    what matches, so that a satisfied task is never free. Of several capabilities that match the best counts.

    Where capabilities name no rate for `metric`, money and energy are the resource's `charge` and `watts` times the
    core-hours (core-seconds) that the task takes there.
    """
    if metric is Metric.TIME:
        return _sum(task, res, metric)
    if all(metric in cap.rates for req in task.requirements for cap in matching(req, res) if not cap.held):
        return _sum(task, res, metric)
    each = res.charge if metric is Metric.MONEY else res.watts
    if each is None:
        return math.inf
    seconds = task.parallel.cores * run_time(task, res)
    return each * (seconds / _HOUR if metric is Metric.MONEY else seconds)


def run_time(task: Task, res: Resource) -> float:
    """Tx: the seconds that the task is predicted to run; infinite where the resource is not viable.

    K in time, less what the task gains by its cores, times the resource's correction.
    """
    total = 0.0
    for req in task.requirements:
        rate = _best(req, res, Metric.TIME)
        if rate == 0.0:
            return math.inf
        if not req.held:
            total += req.amount / rate * task.parallel.share(req.consumable.type)
    return total * res.correction


def _sum(task: Task, res: Resource, metric: Metric) -> float:
    total = 0.0
    for req in task.requirements:
        rate = _best(req, res, metric)
        if rate == 0.0:
            return math.inf
        if not req.held:
            total += req.amount / rate
    return total


def _best(req: Requirement, res: Resource, metric: Metric) -> float:
    """The best rate that matches; 0 for none. What is held only has to match."""
    return max((_rate(cap, metric) for cap in matching(req, res)), default=0.0)


def _rate(cap: Capability, metric: Metric) -> float:
    """Units per unit of this cost; infinite for what is held, 0 where it is not known."""
    if cap.held:
        return math.inf
    assert cap.rate is not None
    return cap.rate if metric is Metric.TIME else cap.rates.get(metric, 0.0)
