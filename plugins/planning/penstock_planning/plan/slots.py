"""Slots: what is free in the plan, as pieces that can be asked for (Singh 2008, chapter 3, (2) and Figure 1).

A slot is a rectangle of fixed nodes. Figure 1's decomposition into level sets is, on pinned nodes: every longest time
that a node is free, those of equal begin and end joined. Slots and tasks together fill the machine up to the horizon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.errors import Infeasible
from penstock.future.bits import BitProfile
from penstock_planning.plan.pricing import Pricing

__all__ = ["DEFAULT_HORIZON", "EXTENSION", "Slot", "cost", "default_horizon", "free_slots"]

DEFAULT_HORIZON: Final = 48 * 3600.0
EXTENSION: Final = 300.0
"""Seconds by which the horizon, and a slot that a task extends, reach past the last end."""


@dataclass(frozen=True, slots=True)
class Slot:
    """<s, n, d, c, f, b, e, p>: `procs` nodes, the set `nodes`, for `duration` from `start`.

    `c` is the price of a node and unit of time, `f` what is charged once, whatever the share that is taken. Of a
    `divisible` slot a part can be taken; the end of an `extensible` one is only where the horizon is. `penalty` is the
    share of `f` that a cancellation costs (23). `duration` counts up to the horizon.
    """

    start: float
    procs: int
    duration: float
    c: float = 1.0
    f: float = 0.0
    divisible: bool = False
    extensible: bool = False
    penalty: float = 0.1
    nodes: int = 0

    @property
    def end(self) -> float:
        """When it ends; an extensible one can be used for longer."""
        return self.start + self.duration


def default_horizon(now: float, last_finish: float, hour: float = 3600.0) -> float:
    """The larger of 48 hours from now and five minutes past the last finish (section 3.1)."""
    return max(now + 48 * hour, last_finish + hour / 12)


def free_slots(profile: BitProfile, horizon: float, pricing: Pricing, within: int = -1) -> list[Slot]:
    """All slots of the nodes `within` up to the horizon, by start, the longest first.

    In the paper those whose nodes are free for ever are divisible and extensible, all others neither (chapter 3).
    """
    out = []

    def add(start: float, end: float, nodes: int, endless: bool) -> None:
        divisible, extensible = pricing.shape(endless)
        c = pricing.unit(start, end - start)
        count = nodes.bit_count()
        out.append(Slot(start, count, end - start, c, 0.0, divisible, extensible, pricing.penalty, nodes))

    open_since: dict[float, int] = {}
    before = 0
    for time, free in zip(profile.times, profile.free, strict=True):
        if time >= horizon:
            break
        now_free = free & within
        ended, begun = before & ~now_free, now_free & ~before
        if ended:
            for since, nodes in list(open_since.items()):
                if over := nodes & ended:
                    add(since, time, over, False)
                    if rest := nodes & ~over:
                        open_since[since] = rest
                    else:
                        del open_since[since]
        if begun:
            open_since[time] = begun
        before = now_free
    for since, nodes in open_since.items():
        endless = profile.common(since, math.inf, nodes)
        for part, ever in ((endless, True), (nodes & ~endless, False)):
            if part:
                add(since, horizon, part, ever)
    return sorted(out, key=lambda s: (s.start, -s.duration, s.nodes))


def cost(slot: Slot, procs: int, start: float, duration: float) -> float:
    """What a part of a slot costs (Table 1). Raises Infeasible, with the reason, if it cannot be had."""
    if not slot.divisible and (procs != slot.procs or start != slot.start):
        raise Infeasible(f"this slot can only be had as a whole: {slot.procs} processors from {slot.start:g}")
    if not (slot.divisible or slot.extensible) and duration != slot.duration:
        raise Infeasible(f"this slot can only be had for its whole duration of {slot.duration:g}")
    if not slot.divisible and duration < slot.duration:
        raise Infeasible(f"this slot can be had for {slot.duration:g} or longer")
    if procs < 1 or procs > slot.procs:
        raise Infeasible(f"this slot has 1 to {slot.procs} processors, not {procs}")
    if start < slot.start:
        raise Infeasible(f"this slot begins at {slot.start:g}, not at {start:g}")
    if duration <= 0:
        raise Infeasible("the duration must be longer than 0")
    if not slot.extensible and start + duration > slot.end:
        raise Infeasible(f"this slot ends at {slot.end:g}, before {start + duration:g}")
    return procs * duration * slot.c + slot.f
