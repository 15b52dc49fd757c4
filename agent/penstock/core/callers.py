"""Who may ask the agent for what: everybody about their own jobs, those who look after the cluster about all."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from penstock.errors import NotPermitted, PenstockError
from penstock.host.clock import Clock, Rest
from penstock.host.logins import login
from penstock.host.logs import get_logger

__all__ = ["Callers"]

_log = get_logger(__name__)
_KEPT: Final = 600.0  # seconds: accounting is not asked for every request
_AFTER_FAILURE: Final = 30.0


class Callers:
    """`operators` asks Slurm for the names of its operators; `serves`: whether the agent looks after jobs of that user.

    What is above all users (root, the agent's own user, Slurm's operators) sees what belongs to all, and pauses all.
    """

    def __init__(
        self, operators: Callable[[], Awaitable[Collection[str]]], clock: Clock, serves: Callable[[int], bool]
    ) -> None:
        self._ask = operators
        self._clock = clock
        self.serves = serves
        self._names: Collection[str] = ()
        self._rest = Rest()

    async def above(self, uid: int) -> bool:
        """Whether this user is above all. While Slurm does not say, nobody is but root and the agent's user."""
        if uid in (os.geteuid(), 0):
            return True
        if not self.serves(uid):
            return False
        now = self._clock.now()
        if not self._rest.lasts(now):
            self._rest = Rest(now, now + _AFTER_FAILURE)  # others who ask meanwhile do not ask Slurm, too
            try:
                self._names = await self._ask()
                self._rest = Rest(now, now + _KEPT)
            except PenstockError as e:
                self._names = ()
                _log.debug("who is an operator is not known", why=str(e))
        return login(uid) in self._names

    async def seen_as(self, uid: int) -> int:
        """An operator sees what root sees: 0 then, else the user's own number."""
        return 0 if uid != os.geteuid() and await self.above(uid) else uid

    def require_served(self, uid: int) -> None:
        """Raises NotPermitted for users that the agent does not look after."""
        if not self.serves(uid) and uid != 0:
            raise NotPermitted("this agent serves its own user only")

    def require_agents_user(self, uid: int) -> None:
        """Raises NotPermitted for all but the agent's own user and root."""
        if uid not in (os.geteuid(), 0):
            self.require_served(uid)
            raise NotPermitted("only the agent's own user (or root) may ask for this")

    async def require_above(self, uid: int, what: str = "this") -> None:
        """Raises NotPermitted for all but those above all users."""
        if not await self.above(uid):
            self.require_served(uid)
            raise NotPermitted(f"only the agent's own user, root, or an operator of Slurm may ask for {what}")
