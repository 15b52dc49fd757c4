"""One workflow, one queue: the front of plans, the one that is chosen, and what best effort would give.

`best` puts what every way of planning finds into one archive, at one charge: what the ledger books, n x d x c + f for
the place of each task. No plan of another method is better in both cost and makespan than one of its front.

- free slots, taken in part, in many orders (`orders`), HEFT's (section 4.5) among them;
- the order in which the queue alone would come to the tasks (4.7): what it would give by luck can be reserved, too;
- slots that others wait for, at the price of their delay (Figure 51): by trade-off, and the cheapest for a deadline;
- the slots that `paper` chooses.

`paper` is the search of section 4.5: sets of whole slots, each charged as a whole unless it is endless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from penstock.errors import Infeasible, UserError
from penstock_planning.plan.besteffort import best_effort
from penstock_planning.plan.dag import Dag
from penstock_planning.plan.front import Archive, Evaluation, ParetoPoint, check_limits, exact, trade_off
from penstock_planning.plan.greedy import (
    Choice,
    GreedyPlan,
    SlotMarket,
    SlotSite,
    as_market,
    buy,
    by_deadline,
    by_trade_off,
)
from penstock_planning.plan.heft import Schedule, ScheduledTask, Scheduler
from penstock_planning.plan.moga import MogaSettings, moga
from penstock_planning.plan.orders import free_plans
from penstock_planning.plan.pricing import PaperPricing, Pricing, plain_price
from penstock_planning.plan.situation import Situation
from penstock_planning.plan.slots import Slot

__all__ = [
    "DEFAULT_METHOD",
    "METHODS",
    "Front",
    "FrontPlan",
    "ScheduleChoice",
    "buy_within",
    "check_reservable",
    "plan_workflow",
    "search",
    "the_method",
]

METHODS: Final = ("best", "paper", "greedy", "best-effort")
DEFAULT_METHOD: Final = "best"
_ALPHAS: Final = tuple(i / 10 for i in range(11))
_EXACT: Final = 10  # up to so many slots all plans are tried, which is no more work than a search
_SEARCHED: Final = 100  # up to so many tasks `best` looks at the plans of `paper`, too
_BUYING: Final = 6000
"""Times that a plan is bought times tasks times waiting jobs: some five seconds."""
_SHARES: Final = (0.0, 0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875)
"""Deadlines for which slots are bought, between the fastest plan's makespan (0: as fast, and cheaper where some stages
have time) and that of free slots (1)."""


class FrontPlan(NamedTuple):
    """A plan of the front: cost, makespan, and what it takes: `free slots`, `others' slots` or `whole slots`."""

    cost: float
    makespan: float
    takes: str


@dataclass(frozen=True)
class ScheduleChoice:
    """The front by rising cost, the chosen schedule, and beside it best effort if nobody else came.

    `prices` are what each placed task's slot costs beside the plain price, empty: nothing. `notes` say what was left
    out of the search.
    """

    front: tuple[FrontPlan, ...]
    schedule: Schedule
    queue_alone: Schedule | None
    prices: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


class Front:
    """All plans that were found, at one charge; of equals the first stays."""

    def __init__(self) -> None:
        self._archive = Archive()
        self._plans: dict[tuple[float, float], tuple[str, Schedule, tuple[float, ...]]] = {}

    def add(self, takes: str, schedule: Schedule, prices: tuple[float, ...] = ()) -> None:
        """See a plan; one that does not fit is none."""
        self._plans.setdefault((schedule.cost, schedule.makespan), (takes, schedule, prices))
        self._archive.add(ParetoPoint(schedule.cost, schedule.makespan, ()))

    @property
    def points(self) -> tuple[ParetoPoint, ...]:
        """By rising cost."""
        return self._archive.points

    def fastest(self) -> float:
        """Its makespan; infinite without any."""
        return min((point.makespan for point in self.points), default=math.inf)

    def choose(
        self, alpha: float, alone: Schedule | None, left: Sequence[ParetoPoint], notes: tuple[str, ...] = ()
    ) -> ScheduleChoice:
        """That which (15) prefers of the points `left`."""
        chosen = trade_off(left, alpha)
        front = tuple(FrontPlan(p.cost, p.makespan, self._plans[p.cost, p.makespan][0]) for p in self.points)
        _, schedule, prices = self._plans[chosen.cost, chosen.makespan]
        return ScheduleChoice(front, schedule, alone, prices, notes)


def the_method(name: str) -> str:
    """The method of this name. UserError if there is none."""
    if name not in METHODS:
        raise UserError(f"--method must be one of {', '.join(METHODS)}, not {name!r}")
    return name


def check_reservable(method: str) -> None:
    """UserError for a plan at another charge than what is booked for reservations."""
    if the_method(method) == "paper":
        raise UserError(
            "--reserve: the method paper charges whole slots, and what is booked is what each stage takes: "
            f"--method {DEFAULT_METHOD}"
        )


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
    method, queue, pricing = the_method(method), situation.queue, situation.pricing
    within = situation.within & queue.everything
    for task in dag.tasks:
        if task.procs > within.bit_count():
            raise Infeasible(f"task {task.name} wants {task.procs} processors, there are {within.bit_count()}")
    plan = situation.plan()
    shows = show or situation.show, situation.show
    alone = best_effort(dag, plan, pricing, within)
    if method == "best-effort":
        check_limits([ParetoPoint(alone.cost, alone.makespan, ())], deadline, budget, *shows)
        return ScheduleChoice((FrontPlan(alone.cost, alone.makespan, "free slots"),), alone, alone)
    here = as_market(SlotSite("here", queue, pricing, situation.within))
    if method == "greedy":
        return buy_within(dag, (here,), alone, queue.now, alpha, deadline, budget, *shows)
    slots = situation.slots(plan, beyond=1)
    front, notes = Front(), tuple[str, ...]()
    evaluate = Evaluation(Scheduler(dag, slots, now=queue.now))
    if method == "paper":
        for point in search(evaluate, slots, seed, settings):
            front.add("whole slots", evaluate.schedule(point.genome))
    else:
        front.add("free slots", alone)
        for schedule in free_plans(dag, slots, now=queue.now, seed=seed):
            front.add("free slots", _charged(dag, schedule, pricing))
        for point in search(evaluate, slots, seed, settings) if len(dag.tasks) <= _SEARCHED else ():
            front.add("free slots", _charged(dag, evaluate.schedule(point.genome), pricing))
        # Who asks the same at all times sells nothing cheaper while nobody waits.
        if queue.waiting or type(pricing).unit is not PaperPricing.unit:
            notes = _buy(front, dag, here, alpha, queue.now, deadline, len(queue.waiting))
    return front.choose(alpha, alone, check_limits(front.points, deadline, budget, *shows), notes)


def _charged(dag: Dag, schedule: Schedule, pricing: Pricing) -> Schedule:
    """The same at what the ledger books for its places."""
    cost = math.fsum(plain_price(pricing, dag.tasks[p.task].procs, p.start, p.end - p.start) for p in schedule.placed)
    return replace(schedule, cost=cost if schedule.makespan < math.inf else math.inf)


def _buy(
    front: Front, dag: Dag, market: SlotMarket, alpha: float, now: float, deadline: float, waiting: int
) -> tuple[str, ...]:
    """Slots that others wait for, or that are cheaper at another time, as often as the work allows: the fastest plan of
    all, then cheaper ones. What was left out."""
    times = _BUYING // (len(dag.tasks) * (waiting + 10))
    if not times:
        many = f"{len(dag.tasks)} stages and {waiting} waiting jobs are many: --method greedy buys one plan"
        return (f"Slots that others wait for were not looked at: {many}.",)
    free = front.fastest()
    _bought(front, dag, market, by_trade_off(0.0), now)
    for choose in islice(_cheaper(dag, front.fastest(), free, alpha, now, deadline), times - 1):
        _bought(front, dag, market, choose, now)
    return ()


def _cheaper(dag: Dag, fastest: float, free: float, alpha: float, now: float, deadline: float) -> Iterator[Choice]:
    """Ways to buy, the best ones first: for the given deadline, for some between the fastest plan and that which costs
    least, by trade-off."""
    if fastest < deadline < free:
        yield by_deadline(dag, now + deadline)
    if fastest < free:
        for share in _SHARES:
            yield by_deadline(dag, now + fastest + share * (free - fastest))
    for other in sorted({alpha, *_ALPHAS} - {0.0}, key=lambda a: abs(a - alpha)):
        yield by_trade_off(other)


def _bought(front: Front, dag: Dag, market: SlotMarket, choose: Choice, now: float) -> None:
    market.forget()
    schedule, prices = _as_schedule(buy(dag, (market,), choose, now))
    front.add("others' slots" if any(prices) else "free slots", schedule, prices)


def _as_schedule(plan: GreedyPlan) -> tuple[Schedule, tuple[float, ...]]:
    """What was bought, and what each slot costs beside the plain price."""
    placed = tuple(ScheduledTask(b.task, b.site, b.quote.start, b.end, b.quote.nodes) for b in plan.bought)
    return Schedule(plan.makespan, plan.cost, placed), tuple(b.quote.f for b in plan.bought)


def search(
    evaluate: Evaluation, slots: Sequence[Slot], seed: int, settings: MogaSettings | None
) -> tuple[ParetoPoint, ...]:
    """The paper's front of plans on these slots: of all plans where there are few, else of those that its genetic
    algorithm comes by, from the plan of all slots and that of the endless ones on."""
    if len(slots) <= _EXACT:
        return exact(evaluate)
    base = settings or MogaSettings()
    start = base.start or ((True,) * len(slots), tuple(slot.extensible for slot in slots))
    return moga(evaluate, seed, replace(base, start=start))


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
        schedule, prices = _as_schedule(buy(dag, markets, by_trade_off(other), now))
        seen.append(ParetoPoint(schedule.cost, schedule.makespan, ()))
        if schedule.makespan <= deadline and schedule.cost <= budget:
            front = (FrontPlan(schedule.cost, schedule.makespan, "others' slots" if any(prices) else "free slots"),)
            return ScheduleChoice(front, schedule, alone, prices)
    check_limits(seen, deadline, budget, show, show_cost)
    raise AssertionError("a plan within the limits was not found, but they can be kept")
