"""The adaptive price of a slot: whom does it delay, and by how much? (Singh 2008, chapter 5, Figure 22)

A slot may take nodes on which waiting jobs were to run, but never those of running jobs or of other reservations. What
it costs beside the plain charge is the delay of every job it pushes back, times that job's processors. A slot that
is free in the plan delays nobody and costs nothing more: the slots of chapter 3 are this case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from penstock.future.plan import QueueSchedule, free_set

__all__ = ["PaperPricing", "Pricing", "Quote", "cancelling", "choose", "plain_price", "quote", "quote_all"]


class Pricing(Protocol):
    """What a site charges. One class, found by the entry point `penstock.pricing`; pure, no I/O, no clock.

    The complete rules of the paper are `PaperPricing`; a site that charges less at night overrides `unit`
    (docs/extending.md has that).
    """

    name: str
    penalty: float
    """The share of the additive price f that a cancellation costs (23), 0 to 1."""

    def unit(self, start: float, duration: float) -> float:
        """c of (2): the price of a node for a unit of time, for a slot that begins at `start`."""
        ...

    def shape(self, endless: bool) -> tuple[bool, bool]:
        """Whether a slot is divisible and extensible; `endless`: its nodes stay free for ever."""
        ...

    def weight(self, procs: int, qos: str, account: str) -> float:
        """What the delay of a waiting job costs per unit of time."""
        ...


class PaperPricing:
    """c = 1, unconstrained slots are divisible and extensible, a delay counts times the job's processors."""

    name = "paper"
    penalty = 0.1

    def __init__(self, c: float = 1.0) -> None:
        self._c = c

    def unit(self, start: float, duration: float) -> float:
        """See `Pricing`."""
        return self._c

    def shape(self, endless: bool) -> tuple[bool, bool]:
        """See `Pricing`."""
        return endless, endless

    def weight(self, procs: int, qos: str, account: str) -> float:
        """See `Pricing`."""
        return float(procs)


@dataclass(frozen=True, slots=True)
class Quote:
    """<s, c, f> of (17): `f` is infinite where the slot cannot be had; `delays` by job, only of those delayed.

    `nodes` is the set that the price was computed for.
    """

    start: float
    procs: int
    duration: float
    c: float
    f: float
    delays: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    nodes: int = 0

    @property
    def feasible(self) -> bool:
        """Whether it can be had."""
        return self.f < math.inf

    @property
    def total(self) -> float:
        """n x d x c + f."""
        return self.procs * self.duration * self.c + self.f


def plain_price(pricing: Pricing, procs: int, start: float, duration: float) -> float:
    """n x d x c (4): what a slot costs that delays nobody, and what the ledger books for it."""
    return procs * duration * pricing.unit(start, duration)


def quote(plan: QueueSchedule, procs: int, duration: float, start: float, pricing: Pricing, within: int = -1) -> Quote:
    """The price of `procs` nodes of `within` for `duration` from `start` on (17), exactly."""
    c, end = pricing.unit(start, duration), start + duration
    conservative = plan.queue.policy == "conservative"
    nodes = free_set(plan.taken, procs, start, end, plan.profile, within)
    if nodes is None:
        return Quote(start, procs, duration, c, math.inf)
    if conservative and plan.profile.common(start, end, nodes) == nodes:
        return Quote(start, procs, duration, c, 0.0, nodes=nodes)
    delays, f = {}, 0.0
    for job, before, after in zip(plan.queue.waiting, plan.starts, plan.starts_beside(nodes, start, end), strict=True):
        if after > before:
            delays[job.id] = after - before
            f += (after - before) * job.weight
    return Quote(start, procs, duration, c, f, MappingProxyType(delays), nodes)


def quote_all(
    plan: QueueSchedule, procs: int, duration: float, pricing: Pricing, after: float | None = None, within: int = -1
) -> list[Quote]:
    """The prices at all instants at which the plan changes (18), or at those from `after` on and at `after` itself if
    the slot can be had then (19). At least one price is 0 if the nodes `within` suffice."""
    starts = [t for t in plan.instants() if after is None or t >= after]
    quotes = [quote(plan, procs, duration, start, pricing, within) for start in starts]
    if after is not None and (not starts or starts[0] != after):
        own = quote(plan, procs, duration, after, pricing, within)
        if own.feasible:
            quotes.insert(0, own)
    return quotes


def choose(quotes: Sequence[Quote], alpha: float) -> Quote | None:
    """The one that (20) prefers: alpha x price + (1 - alpha) x start, both normalised over those that can be had.

    A term whose minimum is its maximum is 0; of equals the earliest. None if there is nothing to be had.
    """
    real = [q for q in quotes if q.feasible]
    if not real:
        return None
    prices, starts = [q.f for q in real], [q.start for q in real]
    low_f, low_s = min(prices), min(starts)
    span_f, span_s = max(prices) - low_f, max(starts) - low_s

    def score(q: Quote) -> tuple[float, float]:
        price = (q.f - low_f) / span_f if span_f else 0.0
        when = (q.start - low_s) / span_s if span_s else 0.0
        return alpha * price + (1 - alpha) * when, q.start

    return min(real, key=score)


def cancelling(f: float, penalty: float) -> float:
    """What it costs to cancel a slot that was charged `f` beside its plain price (23)."""
    return penalty * f
