"""A planned front and the plan that was chosen of it, as every `penstock plan` tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.cli.output import table
from penstock.provision.workflows import ScheduleChoice

__all__ = ["show_front", "values"]


def values(method: str, found: ScheduleChoice, plain: Callable[[float], float | None]) -> dict[str, Any]:
    """For programs; `plain` makes a cost or a time one of theirs."""
    alone = found.queue_alone
    return {
        "method": method,
        "front": [{"cost": plain(cost), "makespan": plain(makespan)} for cost, makespan in found.front],
        "cost": plain(found.schedule.cost),
        "makespan": plain(found.schedule.makespan),
        "best_effort": None if alone is None else {"cost": plain(alone.cost), "makespan": plain(alone.makespan)},
    }


def show_front(found: ScheduleChoice, cost: Callable[[float], str], length: Callable[[float], str]) -> None:
    """For people."""
    chosen = (found.schedule.cost, found.schedule.makespan)
    rows = [(cost(c), length(m), "chosen" if (c, m) == chosen else "") for c, m in found.front]
    table("Plans that no other beats", ("cost", "makespan", ""), rows)
