"""What the commands plan on, whether it came from a file or from a cluster: the queue, its names, prices and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.future.bits import members
from penstock.future.plan import ClusterQueue, QueueSchedule, make_plan
from penstock_planning.plan.pricing import Pricing
from penstock_planning.plan.slots import Slot, free_slots

__all__ = ["Situation"]


@dataclass(frozen=True)
class Situation:
    """A queue with the names of its nodes (bit i is `names[i]`) and the nodes `within` that are asked about.

    Times inside are `scale` times those outside, so that a file's decimals are whole numbers here and sums are exact.
    `horizon` None: the last finish. `notes` say what the plan could not take into account.
    """

    queue: ClusterQueue
    names: tuple[str, ...]
    pricing: Pricing
    scale: int = 1
    horizon: float | None = None
    within: int = -1
    notes: tuple[str, ...] = ()

    def plan(self) -> QueueSchedule:
        """The plan of the whole queue."""
        return make_plan(self.queue)

    def slots(self, plan: QueueSchedule, beyond: float = 0) -> list[Slot]:
        """What is free in it up to the horizon, which is at least `beyond` after the last finish: the last slot, all
        nodes after everything has ended, is one of them only if it is above 0."""
        last = plan.last_finish
        horizon = max(last if self.horizon is None else self.horizon, last + beyond if beyond else 0)
        return free_slots(plan.profile, horizon, self.pricing, self.within)

    def named(self, mask: int) -> tuple[str, ...]:
        """The names of a set of nodes."""
        return members(self.names, mask)

    def slot_row(self, slot: Slot) -> dict[str, Any]:
        """A slot as programs read it, without its nodes."""
        return {
            "start": self.outside(slot.start),
            "procs": slot.procs,
            "duration": self.outside(slot.duration),
            "c": slot.c,
            "f": self.outside(slot.f),
            "divisible": slot.divisible,
            "extensible": slot.extensible,
        }

    def outside(self, value: float) -> float:
        """A time, duration or price as the user counts; whole numbers stay whole."""
        if self.scale == 1 or value in (float("inf"), float("-inf")):
            return int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and value % self.scale == 0:
            return value // self.scale
        return value / self.scale

    def show(self, value: float) -> str:
        """The same as text."""
        return f"{self.outside(value):g}"
