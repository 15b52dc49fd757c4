"""What is left of the submissions that Slurm is asked for in an hour, kept where all processes of a user see it.

The limit is a promise for any hour, and a process may be shorter than that: a tick is, a command, and an agent that is
restarted. Several may run at a time, so that what is left is read and written in one transaction for each submission.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.host.clock import Clock
from penstock.slurm.budget import RequestBudget, SubmissionKind
from penstock.state.store import Store

__all__ = ["carry_on"]

_LEFT: Final = {
    SubmissionKind.OWN: "slurm.submissions",
    SubmissionKind.ASKED: "slurm.user_submissions",
}


def carry_on(budget: RequestBudget, store: Store, clock: Clock) -> None:
    """Go on with what all processes have left, as `store` has it, and write down what this one leaves. Raises
    `StoreError`."""
    _recall(budget, store, clock)

    @contextmanager
    def shared() -> Iterator[None]:
        with store.transaction():
            _recall(budget, store, clock)
            yield
            _keep(budget, store, clock)

    budget.shared = shared


def _recall(budget: RequestBudget, store: Store, clock: Clock) -> None:
    now, set_back = clock.now(), False
    for kind, fact in _LEFT.items():
        if (known := store.facts.get(fact)) is not None:
            left, at = json.loads(known)
            budget.resume(kind, left, now - at)
            set_back |= now < at
    if set_back:  # time that passes from now on counts again
        _keep(budget, store, clock)


def _keep(budget: RequestBudget, store: Store, clock: Clock) -> None:
    for kind, fact in _LEFT.items():
        store.facts.remember(fact, json.dumps([budget.submissions(kind), clock.now()]))
