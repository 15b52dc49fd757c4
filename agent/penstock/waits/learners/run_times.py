"""How long jobs are likely to run: as long as their user's last two did on average, and no longer than their limits.

Users ask for several times what they need, so a plan by limits comes out far too long. Tsafrir, Etsion and Feitelson
(IEEE TPDS 18, 2007) found the mean of the user's last two run times to be the better guess; a job that has run longer
than it is given more in steps. Without history the limit stands.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from penstock.waits.learners.states import expect, numbers, reading

__all__ = ["RunTimes"]

_VERSION: Final = 1
_USERS: Final = 2000
_STEPS: Final = tuple(60 * m for m in (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000, 12_000))
"""Seconds that a job is given which has run longer than was expected."""


class RunTimes:
    """The last two run times (s) of each user, of the latest 2000 users."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[float, ...]] = OrderedDict()

    def add(self, user: str, seconds: float) -> None:
        """A job of the user has ended after running so long."""
        self._last[user] = (*self._last.get(user, ())[-1:], seconds)
        self._last.move_to_end(user)
        if len(self._last) > _USERS:
            self._last.popitem(last=False)

    def expect(self, user: str, limit: int) -> int:
        """How long a job with this limit is likely to run, at least a second."""
        known = self._last.get(user)
        return limit if not known else max(min(limit, int(sum(known) / len(known))), 1)

    def of_running(self, user: str, limit: int, ran: float) -> int:
        """How long one is likely to run in all that has run for `ran` seconds."""
        expected = self.expect(user, limit)
        if expected > ran:
            return expected
        step = bisect.bisect_right(_STEPS, ran)
        return limit if step == len(_STEPS) else min(_STEPS[step], limit)

    def to_state(self) -> dict[str, Any]:
        """JSON-able, to the second."""
        return {"version": _VERSION, "users": [[user, *map(round, known)] for user, known in self._last.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged or newer."""
        with reading("run times"):
            expect(state, "version", _VERSION)
            users = [(str(user), tuple(numbers(known, 2))) for user, *known in state["users"]]
        self._last = OrderedDict(users)
