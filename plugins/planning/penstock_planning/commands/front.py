"""A planned front and the plan that was chosen of it, as every `penstock plan` tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from penstock.console.output import table
from penstock_planning.commands.answers import OnFront, Point
from penstock_planning.plan.workflows import ScheduleChoice

__all__ = ["show_front", "values"]


def values(method: str, found: ScheduleChoice, plain: Callable[[float], float | None]) -> dict[str, Any]:
    """What all plans say to programs; `plain` makes a cost or a time one of theirs."""
    alone = found.queue_alone
    return {
        "method": method,
        "front": [OnFront(cost=plain(p.cost), makespan=plain(p.makespan), takes=p.takes) for p in found.front],
        "cost": plain(found.schedule.cost),
        "makespan": plain(found.schedule.makespan),
        "notes": list(found.notes),
        "best_effort": alone and Point(cost=plain(alone.cost), makespan=plain(alone.makespan)),
    }


def show_front(
    found: ScheduleChoice, cost: Callable[[float], str], length: Callable[[float], str], unit: str = ""
) -> None:
    """For people; `unit` is that of costs."""
    chosen = (found.schedule.cost, found.schedule.makespan)
    rows = [(cost(p.cost), length(p.makespan), p.takes, "chosen" if p[:2] == chosen else "") for p in found.front]
    table("Plans that no other beats", (f"cost ({unit})" if unit else "cost", "makespan", "takes", ""), rows)
    for note in found.notes:
        click.echo(note)
