"""The agent's share in pools that get their own allocations: a pass over each of its user's, every few seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.api import Decision, Snapshot
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.errors import NotNow, PenstockError
from penstock.host.clock import Clock, Rest
from penstock.host.files import replace
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock_pool.auto.acts import AutoActs
from penstock_pool.auto.choose import AllocationVerdict
from penstock_pool.auto.order import AutoState, forget, held_alone, read_state, write_state
from penstock_pool.auto.passes import AutoPass, WaitSource
from penstock_pool.demand import Demand, demand_from_dict
from penstock_pool.folder import PoolFolder, pools

__all__ = ["PassDone", "PoolFeeds", "demand_of", "one_pass"]

_log = get_logger(__name__)
_INTERVAL: Final = 5.0
_GLANCE: Final = 2.0


class PassDone(NamedTuple):
    """The verdict of a pass, if there was one, and whether the pool has allocations or tasks that wait."""

    verdict: AllocationVerdict | None
    busy: bool


class PoolFeeds:
    """A controller of the loop. What it does is written down by the executor as it happens. `wake` asks the loop for a
    pass."""

    def __init__(
        self,
        config: Config,
        slurm: Reader,
        executor: Executor,
        waits: WaitSource,
        clock: Clock,
        wake: Callable[[str], None],
    ) -> None:
        self._config = config
        self._slurm, self._executor, self._waits, self._clock = slurm, executor, waits, clock
        self._wake = wake
        self._rest = Rest()
        self._busy = False

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """A pass over each pool that somebody has ordered allocations for. What goes wrong with one is logged, and
        tried again at the next pass."""
        now = self._clock.now()
        if self._rest.lasts(now):
            return []
        self._rest = Rest(now, now + _INTERVAL)
        self._busy = False
        for folder in self._ordered():
            try:
                with held_alone(folder):
                    done = await one_pass(folder, snapshot, self._slurm, self._executor, self._waits)
                self._busy |= done.busy
            except NotNow:
                continue  # somebody is at it
            except PenstockError as error:
                _log.warning("a pool could not be looked after", pool=folder.name, why=str(error))
        return []

    def next_wake(self, now: float) -> float | None:
        """When the next pass is due; None where no such pool has anything to do."""
        return self._rest.end(now) if self._busy else None

    async def watch(self) -> None:
        """Ask for a pass when an order, or what a pool needs, has become something else: until it is cancelled."""
        known: object = None
        while True:
            try:
                found: object = [(folder.name, _news(folder)) for folder in self._ordered()]
            except (OSError, PenstockError):
                found = known  # a pass says what is wrong
            if found != known:
                known = found
                self._wake("pool")
            await asyncio.sleep(_GLANCE)

    def _ordered(self) -> list[PoolFolder]:
        return [folder for folder in pools(self._config) if folder.wanted.exists()]


def _news(folder: PoolFolder) -> object:
    """What a pass should follow soon, when it changes."""
    try:
        order = json.loads(folder.wanted.read_text(encoding="utf-8"))
        demand = demand_of(folder)
    except (OSError, ValueError, PenstockError):
        return None
    needs = None if demand is None else (bool(demand.waiting), demand.jobs)
    return (order.get("order"), order.get("off"), order.get("paused"), needs)


async def one_pass(
    folder: PoolFolder, snapshot: Snapshot, slurm: Reader, executor: Executor, waits: WaitSource
) -> PassDone:
    """One pass over one pool, which the caller has locked (`held_alone`). Raises PenstockError."""
    state = read_state(folder)
    if state is None:
        return PassDone(None, busy=False)
    acts = AutoActs(executor, folder, state.order)
    work = AutoPass(slurm, acts, waits, lambda: write_state(folder, state))
    before, demand = _leaving(state), demand_of(folder)
    verdict = await work.run(state, demand, snapshot)
    if (leaving := _leaving(state)) != before:
        replace(folder.leaving, json.dumps(leaving))
    if state.off and not state.allocations:
        forget(folder)
    return PassDone(verdict, bool(state.allocations or (demand is not None and demand.waiting)))


def _leaving(state: AutoState) -> list[str]:
    return sorted(str(each.job) for each in state.allocations if each.leaving and each.started is not None)


def demand_of(folder: PoolFolder) -> Demand | None:
    """What the pool's scheduler says it needs; None: the pool is stopped. One of long ago where it says nothing."""
    if folder.address() is None:
        return None
    try:
        return demand_from_dict(json.loads(folder.demand.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return Demand(0.0)
