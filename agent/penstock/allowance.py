"""What is left of the submissions that Slurm is asked for in an hour, kept in the state file.

The limit is a promise for any hour, and a process may be shorter than that: a tick is, and an agent that is restarted.
"""

from __future__ import annotations

import json
from typing import Final

from penstock.clock import Clock
from penstock.slurm.budget import RequestBudget
from penstock.store import Store

__all__ = ["carry_on"]

_LEFT: Final = "slurm.submissions"


def carry_on(budget: RequestBudget, store: Store, clock: Clock) -> None:
    """Begin with what the process before has left, and write down what this one leaves. Raises `StoreError`."""

    def keep(left: float) -> None:
        store.remember(_LEFT, json.dumps([left, clock.now()]))

    if (known := store.fact(_LEFT)) is not None:
        left, at = json.loads(known)
        now = clock.now()
        budget.resume(left, now - at)
        if now < at:  # the clock was set back: time that passes from now on counts again
            keep(budget.submissions)
    budget.keep = keep
