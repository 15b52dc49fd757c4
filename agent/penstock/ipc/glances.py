"""What portals ask where a choice is made: expected waits, one's turn in the queue, waits by the hour. Read only, and
without a request to Slurm but for who its operators are, every ten minutes at most."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from penstock.errors import NotPermitted, UserError
from penstock.host.logins import login
from penstock.ipc.handlers import LocalOp
from penstock.ipc.operators import Operators
from penstock.predictions.glance import WaitGlance

__all__ = ["ToldTo", "glances"]

ToldTo = Literal["operators", "everybody"]
_OF_OTHERS: Final = ("account", "qos")
_DAY: Final = 86400


def glances(
    glance: WaitGlance, serves: Callable[[int], bool], operators: Operators, told_to: Callable[[], ToldTo]
) -> dict[str, LocalOp]:
    """The operations by name. `told_to`: who, besides the agent's user and operators, is told what to expect."""

    async def above(uid: int) -> bool:
        return uid in (0, os.geteuid()) or await operators.include(uid)

    async def require_told(uid: int) -> None:
        """Where everybody is told, nobody has to be looked up."""
        if uid in (0, os.geteuid()):
            return
        if not serves(uid):
            raise NotPermitted("this agent serves its own user only")
        if told_to() != "everybody" and not await operators.include(uid):
            raise NotPermitted(
                "expected waits are learned from the jobs of all: only the agent's own user, root, or an operator of "
                "Slurm may ask for them, unless the site sets `asa.told_to: everybody`"
            )

    async def expect(uid: int, request: Mapping[str, Any]) -> object:
        """Whoever names an account or a QOS would learn of the waits of those who use it: not for everybody."""
        await require_told(uid)
        jobs = request.get("jobs")
        given = [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
        named = [name for name in _OF_OTHERS if any(job.get(name) for job in given)]
        if named and not await above(uid):
            raise NotPermitted(f"{named[0]}: only the agent's own user, root, or an operator of Slurm may ask by it")
        # A hub that runs as root asks for whoever comes to it.
        user = "" if uid in (0, os.geteuid()) else login(uid)
        return await glance.expect(jobs, user, sooner=request.get("sooner") is True)

    async def turn(uid: int, request: Mapping[str, Any]) -> object:
        """Of one's own jobs; of all for operators."""
        number = request.get("job")
        if type(number) is not int or not 0 < number < 2**63:
            raise UserError("job: must be the number of a job")
        owner = glance.owner(number)
        if owner != uid and not await above(uid):
            owner = None
        return glance.turn(number, seen=owner is not None)

    async def hours(uid: int, request: Mapping[str, Any]) -> object:
        await require_told(uid)
        offset = request.get("offset", 0)
        if isinstance(offset, bool) or not isinstance(offset, int | float) or not -_DAY <= offset <= _DAY:
            raise UserError("offset: must be the seconds that your clock is ahead of UTC")
        return glance.hours(float(offset))

    return {"expect": expect, "hours": hours, "turn": turn}
