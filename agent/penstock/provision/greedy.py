"""The greedy algorithm of Figure 51: every task buys the slot that suits it best, and the next one sees it reserved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import Infeasible
from penstock.provision.dag import Dag, rank_order
from penstock.provision.plan import Claim, Plan, Queue, make_plan
from penstock.provision.pricing import Pricing, Quote, quote, quote_all

__all__ = ["Bought", "GreedyPlan", "Site", "greedy"]


_LONG_QUEUE: Final = 100  # waiting jobs


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster that answers queries; `within` are the nodes that the workflow may have."""

    name: str
    queue: Queue
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


@dataclass(frozen=True, slots=True)
class GreedyPlan:
    """`cost` is the sum of all slots (4), `makespan` the time from now to the last end; `bought` by rank."""

    makespan: float
    cost: float
    bought: tuple[Bought, ...]


def greedy(dag: Dag, sites: Sequence[Site], alpha: float, now: float) -> GreedyPlan:
    """Plan the workflow with trade-off `alpha` (0: only time counts, 1: only price). `task.durations` are per site.

    Prices and ends are normalised over the answers of all sites together; of equals the earliest end, then the lower
    cost, then the site's name. Raises Infeasible, naming the task, if one fits on no site.
    """
    queues = [site.queue for site in sites]
    bought: dict[int, Bought] = {}
    for i in rank_order(dag):
        task = dag.tasks[i]
        offers: list[Bought] = []
        for r, site in enumerate(sites):
            if task.procs > site.queue.size:
                continue
            ready = max((bought[e.parent].end + e.time(bought[e.parent].site, r) for e in dag.into(i)), default=now)
            plan = make_plan(queues[r])
            quotes = _offers(plan, task.procs, task.durations[r], site, max(ready, now))
            offers += [Bought(i, r, q) for q in quotes if q.feasible]
        if not offers:
            raise Infeasible(f"task {task.name}: no site has {task.procs} processors free for it at any time")
        best = _best(offers, alpha, sites)
        bought[i] = best
        claim = Claim(f"slot of {task.name}", best.quote.nodes, best.quote.start, best.end)
        queues[best.site] = replace(queues[best.site], claims=(*queues[best.site].claims, claim))
    return GreedyPlan(
        max((b.end for b in bought.values()), default=now) - now,
        sum(b.quote.total for b in bought.values()),
        tuple(bought.values()),
    )


def _offers(plan: Plan, procs: int, duration: float, site: Site, after: float) -> list[Quote]:
    """The answer to query (19). Of a long queue only the starts up to the first that costs nothing more, and the last
    of all: those between end later and cost no less, and are there for the normalisation alone."""
    if len(plan.queue.waiting) <= _LONG_QUEUE:
        return quote_all(plan, procs, duration, site.pricing, after, site.within)
    taken = plan.queue.taken()
    instants = [t for t in plan.instants() if t > after]
    quotes = []
    for start in (after, *instants):
        quotes.append(quote(plan, taken, procs, duration, start, site.pricing, site.within))
        if quotes[-1].f == 0:
            break
    if instants and quotes[-1].start < instants[-1]:
        quotes.append(quote(plan, taken, procs, duration, instants[-1], site.pricing, site.within))
    return quotes


def _best(offers: Sequence[Bought], alpha: float, sites: Sequence[Site]) -> Bought:
    costs, ends = [b.quote.total for b in offers], [b.end for b in offers]
    low_cost, low_end = min(costs), min(ends)
    span_cost, span_end = max(costs) - low_cost, max(ends) - low_end

    def score(offer: Bought) -> tuple[float, float, float, str]:
        price = (offer.quote.total - low_cost) / span_cost if span_cost else 0.0
        when = (offer.end - low_end) / span_end if span_end else 0.0
        value = alpha * price + (1 - alpha) * when
        return (value if math.isfinite(value) else math.inf), offer.end, offer.quote.total, sites[offer.site].name

    return min(offers, key=score)
