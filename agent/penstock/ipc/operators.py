"""Who may see what belongs to all users, and pause all: root, the agent's user, and whom Slurm calls its operators."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from penstock.errors import PenstockError
from penstock.host.clock import Clock, Rest
from penstock.host.logins import login
from penstock.host.logs import get_logger

__all__ = ["Operators"]

_log = get_logger(__name__)
_KEPT: Final = 600.0  # seconds: accounting is not asked for every request
_AFTER_FAILURE: Final = 30.0


class Operators:
    """`names` asks Slurm for those of its operators; `serves`: whether the agent looks after jobs of that user."""

    def __init__(
        self, names: Callable[[], Awaitable[Collection[str]]], clock: Clock, serves: Callable[[int], bool]
    ) -> None:
        self._ask = names
        self._clock = clock
        self._serves = serves
        self._names: Collection[str] = ()
        self._rest = Rest()

    async def include(self, uid: int) -> bool:
        """Whether this user is one. While Slurm does not say, nobody is but root and the agent's user."""
        if uid in (os.geteuid(), 0):
            return True
        if not self._serves(uid):
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
