"""The greedy algorithm of Figure 51: every task buys the slot that suits it best, and the next one sees it reserved.

Which one suits best is a trade-off of price and end as in the paper (`by_trade_off`), or the cheapest that still lets
the whole workflow end in time (`by_deadline`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from penstock.errors import Infeasible
from penstock.future.plan import Claim, ClusterQueue, QueueSchedule, make_plan
from penstock_planning.plan.dag import Dag, rank_order, ranks
from penstock_planning.plan.pricing import Pricing, Quote, quote, quote_all

__all__ = [
    "Bought",
    "Choice",
    "GreedyPlan",
    "SlotMarket",
    "SlotSite",
    "as_market",
    "buy",
    "by_deadline",
    "by_trade_off",
    "greedy",
    "offers",
    "with_claim",
]


_LONG_QUEUE: Final = 100  # waiting jobs


@dataclass(frozen=True, slots=True)
class SlotSite:
    """A cluster that answers queries; `within` are the nodes that the workflow may have."""

    name: str
    queue: ClusterQueue
    pricing: Pricing
    within: int = -1


@dataclass(frozen=True, slots=True)
class Bought:
    """A task on site number `site`, with the price of its slot."""

    task: int
    site: int
    quote: Quote

    @property
    def end(self) -> float:
        """When the task ends."""
        return self.quote.start + self.quote.duration


Choice = Callable[[Sequence[Bought], Sequence[str]], Bought]
"""The one that a task buys of those that it is offered, at the sites with these names."""


@dataclass(frozen=True, slots=True)
class GreedyPlan:
    """`cost` is the sum of all slots (4), `makespan` the time from now to the last end; `bought` by rank."""

    makespan: float
    cost: float
    bought: tuple[Bought, ...]


class SlotMarket(Protocol):
    """A site where slots are bought. Asking is one step and the answer another, so that all sites work at once."""

    name: str

    @property
    def size(self) -> int:
        """The most processors that a slot can have."""
        ...

    def ask(self, procs: int, duration: float, after: float) -> None:
        """Query (19): what do slots of this size cost that begin at `after` or later?"""
        ...

    def answer(self) -> Sequence[Quote]:
        """The answer to the last question."""
        ...

    def take(self, name: str, quote: Quote) -> None:
        """Buy a slot: from now on it is reserved."""
        ...

    def forget(self) -> None:
        """Undo all that was bought."""
        ...


class _Plain:
    """A `SlotSite` as a market, with a queue of its own."""

    def __init__(self, site: SlotSite) -> None:
        self.name = site.name
        self._site, self._queue = site, site.queue
        self._asked: tuple[int, float, float] = (0, 0.0, 0.0)

    @property
    def size(self) -> int:
        return self._queue.size

    def ask(self, procs: int, duration: float, after: float) -> None:
        self._asked = procs, duration, after

    def answer(self) -> Sequence[Quote]:
        procs, duration, after = self._asked
        return offers(make_plan(self._queue), procs, duration, self._site.pricing, after, self._site.within)

    def take(self, name: str, quote: Quote) -> None:
        self._queue = with_claim(self._queue, name, quote.nodes, quote.start, quote.start + quote.duration)

    def forget(self) -> None:
        self._queue = self._site.queue


def as_market(site: SlotSite) -> SlotMarket:
    """A site whose queue is known, as a market."""
    return _Plain(site)


def greedy(dag: Dag, sites: Sequence[SlotSite], alpha: float, now: float) -> GreedyPlan:
    """Plan the workflow with trade-off `alpha` (0: only time counts, 1: only price). `task.durations` are per site.

    Prices and ends are normalised over the answers of all sites together; of equals the earliest end, then the lower
    cost, then the site's name. Raises Infeasible, naming the task, if one fits on no site.
    """
    return buy(dag, [_Plain(site) for site in sites], by_trade_off(alpha), now)


def buy(dag: Dag, markets: Sequence[SlotMarket], choose: Choice, now: float) -> GreedyPlan:
    """The same where slots are bought of whoever sells them."""
    bought: dict[int, Bought] = {}
    for i in rank_order(dag):
        task = dag.tasks[i]
        able = [r for r, m in enumerate(markets) if task.procs <= m.size and task.durations[r] < math.inf]
        for r in able:
            ready = max((bought[e.parent].end + e.time(bought[e.parent].site, r) for e in dag.into(i)), default=now)
            markets[r].ask(task.procs, task.durations[r], max(ready, now))
        found = [Bought(i, r, q) for r in able for q in markets[r].answer() if q.feasible]
        if not found:
            raise Infeasible(f"task {task.name}: no site has {task.procs} processors free for it at any time")
        best = choose(found, [m.name for m in markets])
        bought[i] = best
        markets[best.site].take(f"slot of {task.name}", best.quote)
    return GreedyPlan(
        max((b.end for b in bought.values()), default=now) - now,
        math.fsum(b.quote.total for b in bought.values()),
        tuple(bought.values()),
    )


def with_claim(queue: ClusterQueue, name: str, nodes: int, start: float, end: float) -> ClusterQueue:
    """The queue in which a slot is reserved, too."""
    return replace(queue, claims=(*queue.claims, Claim(name, nodes, start, end)))


def offers(
    plan: QueueSchedule, procs: int, duration: float, pricing: Pricing, after: float, within: int = -1
) -> list[Quote]:
    """The answer to query (19). Of a long queue only the starts up to the first that costs nothing more, and the last
    of all: those between end later and cost no less, and are there for the normalisation alone."""
    if len(plan.queue.waiting) <= _LONG_QUEUE:
        return quote_all(plan, procs, duration, pricing, after, within)
    instants = [t for t in plan.instants() if t > after]
    quotes = []
    for start in (after, *instants):
        quotes.append(quote(plan, procs, duration, start, pricing, within))
        if quotes[-1].f == 0:
            break
    if instants and quotes[-1].start < instants[-1]:
        quotes.append(quote(plan, procs, duration, instants[-1], pricing, within))
    return quotes


def by_trade_off(alpha: float) -> Choice:
    """The least of (20), price against end, both normalised over what is offered: 0, only the end counts; 1, only the
    price. Of equals the earliest end, then the lower price, then the site's name."""

    def choose(offers: Sequence[Bought], names: Sequence[str]) -> Bought:
        costs, ends = [b.quote.total for b in offers], [b.end for b in offers]
        low_cost, low_end = min(costs), min(ends)
        span_cost, span_end = max(costs) - low_cost, max(ends) - low_end

        def score(offer: Bought) -> tuple[float, float, float, str]:
            price = (offer.quote.total - low_cost) / span_cost if span_cost else 0.0
            when = (offer.end - low_end) / span_end if span_end else 0.0
            value = alpha * price + (1 - alpha) * when
            return (value if math.isfinite(value) else math.inf), offer.end, offer.quote.total, names[offer.site]

        return min(offers, key=score)

    return choose


def by_deadline(dag: Dag, deadline: float) -> Choice:
    """The cheapest slot from which all that follows can still end at `deadline` if it never waits: start + rank (7) is
    no later. Where there is none, the one that ends first."""
    left = [float(rank) for rank in ranks(dag)]

    def choose(offers: Sequence[Bought], names: Sequence[str]) -> Bought:
        in_time = [b for b in offers if b.quote.start + left[b.task] <= deadline]
        if in_time:
            return min(in_time, key=lambda b: (b.quote.total, b.end, names[b.site]))
        return min(offers, key=lambda b: (b.end, b.quote.total, names[b.site]))

    return choose
