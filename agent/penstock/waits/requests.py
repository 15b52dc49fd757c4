"""What is asked of waits at the agent's door: what was learned of them, and what portals ask where a choice is made
(expected waits, one's turn in the queue, waits by the hour). Read only. What portals ask costs no request to Slurm but
for who its operators are, every ten minutes at most."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from penstock.core.callers import Callers
from penstock.core.parts import Operation
from penstock.errors import NotPermitted, UserError
from penstock.host.logins import login
from penstock.waits.live.glance import WaitGlance
from penstock.waits.live.outlook import WaitOutlook, geometry_of

__all__ = ["ToldTo", "WaitRequests"]

ToldTo = Literal["operators", "everybody"]
_OF_OTHERS: Final = ("account", "qos")
_DAY: Final = 86400


class WaitRequests:
    """Each operation answers one request. `told_to`: who, besides the agent's user and operators, is told what to
    expect."""

    def __init__(
        self, outlook: WaitOutlook, glance: WaitGlance, callers: Callers, told_to: Callable[[], ToldTo]
    ) -> None:
        self._outlook = outlook
        self._glance = glance
        self._callers = callers
        self._told_to = told_to

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"waits": self.waits, "expect": self.expect, "hours": self.hours, "turn": self.turn}

    async def waits(self, uid: int, request: Mapping[str, Any]) -> object:
        """Not for everybody: it has learned from everybody's jobs, and whoever names an account would see how
        many there were of it and how long they waited."""
        await self._callers.require_above(
            uid, "learned waits, which tell of the jobs of others; `sbatch --test-only` asks Slurm for an estimate"
        )
        fields = request.get("geometry")
        if fields is not None and not isinstance(fields, dict):
            raise UserError("not a geometry: it must be a mapping")
        return await self._outlook.answer(None if fields is None else geometry_of(fields))

    async def expect(self, uid: int, request: Mapping[str, Any]) -> object:
        """Whoever names an account or a QOS would learn of the waits of those who use it: not for everybody."""
        await self._require_told(uid)
        jobs = request.get("jobs")
        given = [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
        named = [name for name in _OF_OTHERS if any(job.get(name) for job in given)]
        if named and not await self._callers.above(uid):
            raise NotPermitted(f"{named[0]}: only the agent's own user, root, or an operator of Slurm may ask by it")
        # A hub that runs as root asks for whoever comes to it.
        user = "" if uid in (0, os.geteuid()) else login(uid)
        return await self._glance.expect(jobs, user, sooner=request.get("sooner") is True)

    async def turn(self, uid: int, request: Mapping[str, Any]) -> object:
        """Of one's own jobs; of all for operators."""
        number = request.get("job")
        if type(number) is not int or not 0 < number < 2**63:
            raise UserError("job: must be the number of a job")
        owner = self._glance.owner(number)
        if owner != uid and not await self._callers.above(uid):
            owner = None
        return self._glance.turn(number, seen=owner is not None)

    async def hours(self, uid: int, request: Mapping[str, Any]) -> object:
        """Waits by the hour of the caller's day."""
        await self._require_told(uid)
        offset = request.get("offset", 0)
        if isinstance(offset, bool) or not isinstance(offset, int | float) or not -_DAY <= offset <= _DAY:
            raise UserError("offset: must be the seconds that your clock is ahead of UTC")
        return self._glance.hours(float(offset))

    async def _require_told(self, uid: int) -> None:
        """Where everybody is told, nobody has to be looked up."""
        if uid in (0, os.geteuid()):
            return
        self._callers.require_served(uid)
        if self._told_to() != "everybody" and not await self._callers.above(uid):
            raise NotPermitted(
                "expected waits are learned from the jobs of all: only the agent's own user, root, or an operator of "
                "Slurm may ask for them, unless the site sets `asa.told_to: everybody`"
            )
