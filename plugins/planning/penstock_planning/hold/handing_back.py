"""Held slots, reserved workflows and bags of the agent's user while all is off: what there is of them, and giving up
the slots that nobody uses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing

from penstock.api import JobState, Snapshot, plural
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.core.offitems import ItemState, OffItem, jobs_text, minute_text
from penstock.errors import NotNow, PenstockError
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.state.ownership import is_readable, ledger_path, own_folder
from penstock_planning.broker.bags import Bags
from penstock_planning.hold.reservations import Reservations
from penstock_planning.plan.holding import Hold, HoldPhase

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
            items = [i for n, hold in holds.items() if (i := _of_hold(n, hold, uid, snapshot)) is not None]
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
        if drop and _droppable(hold, snapshot):
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
    return [_of_bag(run.id, uid, run.bag.task.name, [a.job for a in run.arrays if a.job is not None]) for run in runs]


# -- what is told of each ----------------------------------------------------------------------------------------------


def _of_hold(number: int, hold: Hold, uid: int, snapshot: Snapshot) -> OffItem | None:
    """A slot that is held, with the jobs that use it; None: nothing is left of it."""
    wanted = hold.wanted
    if hold.phase.final and hold.settled:
        return None
    # A look at reservations may be some minutes old.
    asked = hold.phase is HoldPhase.HELD or (hold.phase is HoldPhase.ASKED and wanted.method != "request")
    reserved = asked and wanted.method != "var" and hold.used != "VAR"
    there = reserved or any(r.name == wanted.name for r in snapshot.reservations)
    idle = snapshot.jobs.get(hold.job or -1)
    idles = idle is not None and not idle.state.ended
    users = tuple(sorted(j.id for j in snapshot.jobs.values() if j.reservation == wanted.name and not j.state.ended))
    span = f"{plural(wanted.nodes, 'node')} from {minute_text(wanted.start)}"
    text = f"slot {number} ({wanted.name}), {span}"
    give_up = (f"penstock hold cancel {number}", "as its owner, or `penstock off --drop-slots`")
    if hold.phase.final or hold.giving_up:
        return OffItem("slot", uid, ItemState.LEFT, f"{text}: it is being given back", pending=True)
    if users:
        return OffItem(
            "slot", uid, ItemState.LEFT, f"{text}: {jobs_text(users)} in it; Slurm removes it after them", users
        )
    if idles and idle is not None:
        began = idle.state is JobState.RUNNING and snapshot.taken_at >= wanted.start
        if began:
            return OffItem("slot", uid, ItemState.ALONE, f"{text}: its job {idle.id} runs its work", (idle.id,))
        return OffItem(
            "slot", uid, ItemState.LEFT, f"{text}: its job {idle.id} idles until then", (idle.id,), todo=(give_up,)
        )
    if there:
        return OffItem("slot", uid, ItemState.LEFT, f"{text}: reserved, but not used", todo=(give_up,))
    if hold.requested:
        return OffItem(
            "slot", uid, ItemState.LEFT, f"{text}: requested; an operator can still grant it", todo=(give_up,)
        )
    return OffItem("slot", uid, ItemState.WAITS, f"{text}: not requested yet", todo=(give_up,))


def _droppable(hold: Hold, snapshot: Snapshot) -> bool:
    """Whether nobody uses this slot: no job is in it or waits for it, and its own has not begun to work."""
    if hold.phase.final or hold.giving_up:
        return False
    item = _of_hold(0, hold, 0, snapshot)
    return item is not None and bool(item.todo)


def _of_bag(number: int, uid: int, name: str, jobs: Iterable[int]) -> OffItem:
    """A bag of tasks: its job arrays are jobs like any other."""
    numbers = tuple(jobs)
    text = f"bag {number} ({name}): {jobs_text(numbers)}; no task moves to another partition" if numbers else ""
    return OffItem("bag", uid, ItemState.ALONE, text or f"bag {number} ({name})", numbers)
