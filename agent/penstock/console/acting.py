"""What a user's own command changes in Slurm: by the same executor as the agent's, in the user's process, as the user.

All commands of a user share one file beside their own state: the journal of their acts, and what is left of the
submissions of an hour, which an agent of theirs counts in as well. Pauses are the agent's: they are asked of it, or
read from the user's state file where none runs; the allow-list is the configuration's.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import cached_property
from pathlib import Path
from typing import Final

from penstock.audit.auditor import Auditor
from penstock.audit.opening import own_auditor
from penstock.config import Config
from penstock.core.allowance import carry_on
from penstock.core.executor import Executor
from penstock.core.off import off_in
from penstock.core.pauses import Pause, as_pauses, pauses_in
from penstock.errors import AgentUnavailable, StoreError
from penstock.host import logs
from penstock.ipc.client import ask_agent
from penstock.slurm.base import Backend, Reader
from penstock.slurm.budget import Metered
from penstock.state.ownership import state_path
from penstock.state.store import Store

__all__ = ["Acting", "acting"]


_ENDED: Final = 3600.0
"""Seconds after which an act that is open still was a command's that was ended: none takes as long."""


class Acting:
    """Slurm to look at (`slurm`), and the `executor` to change it with; nothing is made for who only looks."""

    def __init__(self, config: Config, backend: Backend) -> None:
        self._config = config
        self._backend = backend
        self._audit: Auditor | None = None
        self.slurm: Reader = backend

    @cached_property
    def executor(self) -> Executor:
        """The hand that changes Slurm. Raises StoreError where nothing can be written down."""
        config, slurm = self._config, self._backend
        logs.configure("error", config.log.format)  # what is done is told by the command itself
        store = self.store
        self._audit = audit = own_auditor(config, slurm.now)
        for intent in store.intents.unsettled():
            if slurm.now() - intent.opened < _ENDED:  # another command may be at it
                continue
            # Whoever owns the subject looks in Slurm what became of it: everything has a name of its own.
            audit.interrupted(intent.verb, intent.subject, None, intent.payload, intent.id, intent.opened)
            store.intents.settle(intent.id, "interrupted", "its command was ended", slurm.now())
        store.prune(slurm.now() - config.agent.keep)
        executor = Executor(store, slurm, slurm, audit=audit)
        executor.pause_control.rules = config.limits.rules
        executor.pause_control.pauses = _pauses(config)
        if isinstance(slurm, Metered):
            carry_on(slurm.budget, store, slurm)
        return executor

    @cached_property
    def canceller(self) -> Executor:
        """The hand that ends one's own jobs: where nothing can be written down (a full disk), too, as a job ends once
        however often it is cancelled."""
        try:
            return self.executor
        except StoreError:
            if self._audit is None:
                self._audit = own_auditor(self._config, self._backend.now)  # which tells the system's log then
            return Executor(Store(":memory:"), self._backend, self._backend, audit=self._audit)

    @cached_property
    def store(self) -> Store:
        """Where what is done is written down. Raises StoreError likewise."""
        from penstock.statefile.statefile import open_checked_acts  # slow to load, and not for who only looks

        return open_checked_acts(self._config)

    async def close(self) -> None:
        """Neither is used afterwards."""
        if self._audit is not None:
            self._audit.close()
        if "store" in self.__dict__:
            self.store.close()
        await self._backend.close()


@asynccontextmanager
async def acting(config: Config, backend: Backend | None = None) -> AsyncIterator[Acting]:
    """Slurm as the configuration names it, or this `backend`, to look at and act on; closed in the end."""
    from penstock.core.backends import make_backend  # slow to load

    hand = Acting(config, backend or make_backend(config))
    try:
        yield hand
    finally:
        await hand.close()


def _pauses(config: Config) -> tuple[Pause, ...]:
    """What the agent was told to leave alone, as far as it is about the caller."""
    try:
        told = ask_agent(config, "pauses")
        return tuple(Pause(**each) for each in told)
    except AgentUnavailable:
        path = state_path(config)
        return _stored(path) if os.access(path, os.R_OK, effective_ids=True) else ()


def _stored(path: Path) -> tuple[Pause, ...]:
    with closing(Store.read_only(path)) as store:
        return (*pauses_in(store), *as_pauses(off_in(store)))
