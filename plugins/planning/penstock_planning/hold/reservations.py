"""All that holding slots takes, joined: the ledger, the holds, the runs of reserved workflows, and a lock.

The lock keeps two processes (an agent, a crontab's tick, a command) from acting for one ledger at a time: each act
looks first whether it was done, which helps against kills and not against company.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.api import Snapshot
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.errors import NotNow, NotPermitted
from penstock.host.files import lock
from penstock.site.viewing import take_snapshot
from penstock.slurm.base import Reader
from penstock.state.ownership import denied, ledger_path
from penstock.workflow.state import WorkflowRun
from penstock_planning.extending import pricing_rules
from penstock_planning.hold.fitting import unfit
from penstock_planning.hold.holds import Holds, RequestFolder
from penstock_planning.hold.ledger import open_ledger
from penstock_planning.hold.requests import load_key
from penstock_planning.hold.runs import ReservedRuns
from penstock_planning.plan.holding import Hold, Limits
from penstock_planning.plan.live import from_snapshot, partition_of
from penstock_planning.plan.repair import Free, Holes

__all__ = ["LEAD", "Reservations"]

LEAD: Final = 10.0
"""Seconds that making a reservation may take."""
_LOOK: Final = 0.1


def _requested(config: Config) -> RequestFolder | None:
    """Where requests are left; None where they are not configured, or the caller is none of those who sign them."""
    provision = config.provision
    if provision.requests is None:
        return None
    try:
        return RequestFolder(provision.requests, load_key(provision.request_key))
    except NotPermitted:
        return None


class Reservations:
    """Holds and runs of one ledger on one cluster. StoreError, UserError or ConfigError if it cannot be set up."""

    def __init__(self, config: Config, backend: Reader, executor: Executor) -> None:
        provision = config.provision
        requested = _requested(config)
        self.may_request = requested is not None
        self._config = config
        self._path = ledger_path(config)
        self.backend = backend
        # Of an agent that has lost the state to another host nothing is written there any more.
        self.ledger = open_ledger(config, executor.may_act)
        self.holds = Holds(backend, executor, self.ledger, Limits.preset(provision.limits), requested)
        self.runs = ReservedRuns(backend, executor, self.holds, self.ledger, provision.earlier / 3600)

    def close(self) -> None:
        """It is not used afterwards."""
        self.ledger.close()

    @asynccontextmanager
    async def alone(self, patience: float) -> AsyncIterator[None]:
        """Nobody else acts for this ledger meanwhile. Raises NotNow if somebody does for `patience` seconds."""
        try:
            descriptor = os.open(f"{self._path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise denied(Path(f"{self._path}.lock"), error, f"{self._path}.lock cannot be opened") from error
        try:
            deadline = time.monotonic() + patience
            while True:
                with suppress(BlockingIOError):
                    lock(descriptor)
                    break
                if time.monotonic() >= deadline:
                    raise NotNow(f"another process is at work with {self._path}")
                await asyncio.sleep(_LOOK)
            yield
        finally:
            os.close(descriptor)

    async def tick(self) -> tuple[Mapping[int, Hold], list[str]]:
        """One pass over all holds and all runs: the holds as they stand, and what was changed, in words. What is paused
        is left as it is; holds that are over are settled all the same, or their nodes would stay empty."""
        found = await self.holds.tick()
        return found, await self.runs.advance(self._holes)

    async def _holes(self, run: WorkflowRun) -> Holes:
        """What is free for the stages of a run, on the cluster as it is now."""
        snapshot = await take_snapshot(self.backend)
        own = [stage.held.name for stage in run.stages]
        found = _FreeSlots(self._config, snapshot, run.workflow.partition, own)
        for stage in run.workflow.stages:
            found.leave_out(unfit(stage.asks, snapshot.nodes.values()))
        return found


class _FreeSlots:
    """What the plan of the queue leaves free, but for what was taken; slots are whole minutes long. `own` are the names
    of the plan's own reservations."""

    def __init__(self, config: Config, snapshot: Snapshot, partition: str | None, own: Sequence[str]) -> None:
        others = tuple(each for each in snapshot.reservations if each.name not in own)
        shown = replace(snapshot, reservations=others)
        situation = from_snapshot(shown, partition_of(shown, partition), pricing_rules(config))
        self._without_own, self._within = situation.plan().profile, situation.within
        self._bits, self._named = {name: 1 << i for i, name in enumerate(situation.names)}, situation.named
        self._soonest, self._margin = math.ceil(snapshot.taken_at + LEAD), config.provision.margin
        self._profile = self._without_own.copy()
        for each in snapshot.reservations:
            if each.name in own:
                self._profile.block(self._mask(each.nodes), each.start, each.end)

    def leave_out(self, nodes: Iterable[str]) -> None:
        """These are no places for a slot."""
        self._within &= ~self._mask(nodes)

    def find(self, nodes: int, duration: float, after: float) -> Free | None:
        """See `Holes`."""
        soonest = max(math.ceil(after), self._soonest)
        found = self._profile.earliest(nodes, self._length(duration), soonest, self._within)
        return None if found is None else Free(found[0], self._named(found[1]))

    def take(self, hole: Free, duration: float) -> None:
        """See `Holes`."""
        self._profile.block(self._mask(hole.nodes), hole.start, hole.start + self._length(duration))

    def give(self, slot: Free, duration: float) -> None:
        """See `Holes`; of nodes that are down nothing is free."""
        end = slot.start + self._length(duration)
        self._profile.open(self._without_own.common(slot.start, end, self._mask(slot.nodes)), slot.start, end)

    def _mask(self, nodes: Iterable[str]) -> int:
        return sum(self._bits.get(name, 0) for name in nodes)

    def _length(self, duration: float) -> int:
        return 60 * math.ceil((duration + self._margin) / 60)
