"""One workflow, one queue, one method: the front of plans, the one that is chosen, and what best effort would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import Infeasible, UserError
from penstock.provision.besteffort import best_effort
from penstock.provision.dag import Dag
from penstock.provision.front import Evaluation, ParetoPoint, check_limits, exact, trade_off
from penstock.provision.greedy import SlotMarket, SlotSite, as_market, buy
from penstock.provision.heft import Schedule, ScheduledTask, Scheduler
from penstock.provision.moga import MogaSettings, moga
from penstock.provision.nsga2 import nsga2
from penstock.provision.situation import Situation
from penstock.provision.slots import Slot

__all__ = ["DEFAULT_METHOD", "METHODS", "ScheduleChoice", "buy_within", "plan_workflow", "search"]

METHODS: Final = ("moga", "nsga2", "greedy", "best-effort")
DEFAULT_METHOD: Final = "moga"
_ALPHAS: Final = tuple(i / 10 for i in range(11))
_EXACT: Final = 10  # up to so many slots all plans are tried, which is no more work than a search
_SEARCHES: Final[dict[str, Callable[[Evaluation, int, MogaSettings], tuple[ParetoPoint, ...]]]] = {
    "moga": moga,
    "nsga2": nsga2,
}


@dataclass(frozen=True)
class ScheduleChoice:
    """The front as (cost, makespan), the chosen schedule, and beside it best effort if nobody else came.

    `prices` are what each placed task's slot costs beside the plain price (greedy only).
    """

    front: tuple[tuple[float, float], ...]
    schedule: Schedule
    queue_alone: Schedule | None
    prices: tuple[float, ...] = ()


def plan_workflow(
    situation: Situation,
    dag: Dag,
    method: str = DEFAULT_METHOD,
    alpha: float = 0.5,
    deadline: float = math.inf,
    budget: float = math.inf,
    seed: int = 1,
    settings: MogaSettings | None = None,
    show: Callable[[float], str] | None = None,
) -> ScheduleChoice:
    """Plan it. `deadline` is a makespan. Raises Infeasible if a task never fits or a limit cannot be kept, saying what
    would be enough (lengths in the words of `show`, else in the situation's unit); UserError for a method that is not
    there."""
    if method not in METHODS:
        raise UserError(f"--method must be one of {', '.join(METHODS)}, not {method!r}")
    queue = situation.queue
    within = situation.within & queue.everything
    for task in dag.tasks:
        if task.procs > within.bit_count():
            raise Infeasible(f"task {task.name} wants {task.procs} processors, there are {within.bit_count()}")
    plan = situation.plan()
    shows = show or situation.show, situation.show
    alone = best_effort(dag, plan, situation.pricing, within)
    if method == "best-effort":
        check_limits([_point(alone)], deadline, budget, *shows)
        return ScheduleChoice(((alone.cost, alone.makespan),), alone, alone)
    if method == "greedy":
        here = as_market(SlotSite("here", queue, situation.pricing, situation.within))
        return buy_within(dag, (here,), alone, queue.now, alpha, deadline, budget, *shows)
    slots = situation.slots(plan, beyond=1)
    evaluate = Evaluation(Scheduler(dag, slots, now=queue.now))
    points = search(evaluate, slots, method, seed, settings)
    chosen = trade_off(check_limits(points, deadline, budget, *shows), alpha)
    front = tuple((p.cost, p.makespan) for p in points)
    return ScheduleChoice(front, evaluate.schedule(chosen.genome), alone)


def search(
    evaluate: Evaluation, slots: Sequence[Slot], method: str, seed: int, settings: MogaSettings | None
) -> tuple[ParetoPoint, ...]:
    """The front of plans on these slots, by `moga` or `nsga2`: of all plans where there are few, else of those that the
    search comes by, from the plan of all slots and that of the endless ones on."""
    if len(slots) <= _EXACT:
        return exact(evaluate)
    base = settings or MogaSettings()
    start = base.start or ((True,) * len(slots), tuple(slot.extensible for slot in slots))
    return _SEARCHES[method](evaluate, seed, replace(base, start=start))


def buy_within(
    dag: Dag,
    markets: Sequence[SlotMarket],
    alone: Schedule | None,
    now: float,
    alpha: float,
    deadline: float = math.inf,
    budget: float = math.inf,
    show: Callable[[float], str] = "{:g}".format,
    show_cost: Callable[[float], str] = "{:g}".format,
) -> ScheduleChoice:
    """The greedy plan for the wanted trade-off; if it breaks a limit, that of the nearest other trade-off which does
    not. Raises Infeasible, saying what would be enough. `alone`: best effort, beside it."""
    seen: list[ParetoPoint] = []
    for other in sorted({alpha, *_ALPHAS}, key=lambda a: abs(a - alpha)):
        for market in markets if seen else ():
            market.forget()
        found = buy(dag, markets, other, now)
        point = ParetoPoint(found.cost, found.makespan, ())
        seen.append(point)
        if found.makespan <= deadline and found.cost <= budget:
            placed = tuple(ScheduledTask(b.task, b.site, b.quote.start, b.end, b.quote.nodes) for b in found.bought)
            schedule = Schedule(found.makespan, found.cost, placed)
            prices = tuple(b.quote.f for b in found.bought)
            return ScheduleChoice(((found.cost, found.makespan),), schedule, alone, prices=prices)
    check_limits(seen, deadline, budget, show, show_cost)
    raise AssertionError("a plan within the limits was not found, but they can be kept")


def _point(schedule: Schedule) -> ParetoPoint:
    return ParetoPoint(schedule.cost, schedule.makespan, ())
