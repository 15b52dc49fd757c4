"""Held slots, reserved workflows and bags of the agent's user while all is off: what there is of them, and giving up
the slots that nobody uses."""

from __future__ import annotations

import os
from contextlib import closing

from penstock.api import Snapshot
from penstock.broker.bags import Bags
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.errors import NotNow, PenstockError
from penstock.holding.reservations import Reservations
from penstock.host.logs import get_logger
from penstock.off.items import ItemState, OffItem, droppable, of_bag, of_hold
from penstock.slurm.base import Reader
from penstock.state.ownership import is_readable, ledger_path, own_folder

__all__ = ["bags_left", "slots_left"]

_log = get_logger(__name__)
_PATIENCE = 2.0


async def slots_left(
    config: Config, backend: Reader, executor: Executor, snapshot: Snapshot, *, act: bool, drop: bool
) -> list[OffItem]:
    """The slots of this ledger. `act`: what is over is settled first, with `drop` those that nobody uses are given up.
    What cannot be read or done now is an item that says so."""
    uid = os.geteuid()
    try:
        if not is_readable(ledger_path(config)):
            return []
        with closing(Reservations(config, backend, executor)) as reservations:
            if act:
                async with reservations.alone(_PATIENCE):
                    await _settle(reservations, snapshot, drop=drop)
            holds = reservations.ledger.holds()
            items = [i for n, hold in holds.items() if (i := of_hold(n, hold, uid, snapshot)) is not None]
            for run in reservations.ledger.runs():
                text = f"reserved workflow {run.name}: its stages run in their slots, and get no new ones meanwhile"
                items.append(OffItem("workflow", uid, ItemState.ALONE, text))
            return items
    except PenstockError as e:
        _log.warning("the slots could not be checked", why=str(e))
        later = isinstance(e, NotNow)
        return [OffItem("slot", uid, ItemState.LEFT, f"the slots could not be checked: {e}", pending=later)]


async def _settle(reservations: Reservations, snapshot: Snapshot, *, drop: bool) -> None:
    dropped = False
    for number, hold in (await reservations.holds.tick()).items():
        if drop and droppable(hold, snapshot):
            dropped = True
            await reservations.holds.cancel(number)
    if dropped:
        await reservations.holds.tick()  # which sees that nothing is left of them


def bags_left(config: Config) -> list[OffItem]:
    """The bags that are not finished."""
    uid = os.geteuid()
    try:
        bags = Bags(own_folder(config) / "bags")
        runs = [run for number in bags.numbers() if (run := bags.load(number)).finished is None]
    except PenstockError as e:
        return [OffItem("bag", uid, ItemState.ALONE, f"the bags could not be read: {e}")]
    return [of_bag(run.id, uid, run.bag.task.name, [a.job for a in run.arrays if a.job is not None]) for run in runs]
