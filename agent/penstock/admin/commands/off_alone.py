"""`penstock off` and `penstock on` where no agent answers: on the state file itself, as its owner.

To hand back what is held takes all of an agent: its state, its look at Slurm, the executor, and for programs that run
on companions' nodes the door at which they are told to shrink. So one is put together here, off from its first moment,
and ends when nothing is left to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import closing
from typing import Any, Final

from penstock.app import App
from penstock.config import Config
from penstock.core.backends import make_backend
from penstock.core.off import Off, keep_off, merged, off_in
from penstock.errors import ConfigError, NotNow, StateHeld
from penstock.host.logs import get_logger
from penstock.resize.running.part import MalleablePart
from penstock.shutdown.drain import Drain
from penstock.shutdown.part import OffPart
from penstock.state.leadership import Leadership, hold_state
from penstock.state.ownership import is_readable, state_path
from penstock.statefile.statefile import open_checked

__all__ = ["drain_alone", "lift_alone", "there_is_state"]

_log = get_logger(__name__)
_LOOK: Final = 0.1
_HELD: Final = 10.0  # seconds that somebody else may have the state: a tick is soon over


def there_is_state(config: Config) -> bool:
    """Whether an agent or a tick has ever kept anything. Raises NotPermitted where that is another user's."""
    path = state_path(config)
    return is_readable(path) and path.stat().st_size > 0


async def _leadership(config: Config) -> Leadership:
    deadline = time.monotonic() + _HELD
    while True:
        try:
            return hold_state(config, "command")
        except StateHeld as e:
            if time.monotonic() >= deadline:
                raise StateHeld(f"{e}, and does not answer: it may be waiting for Slurm. End it, and try again") from e
        await asyncio.sleep(_LOOK)


async def drain_alone(config: Config, order: Off, wait: float) -> dict[str, Any]:
    """Write the order down, and carry it out for up to `wait` seconds; what is left, as the door's `left` says it.

    Raises StateHeld where somebody else has the state. Where Slurm does not answer, the order lasts all the same.
    """
    leadership = await _leadership(config)
    try:
        store = open_checked(config, leadership)
        order = merged(off_in(store), order)
        keep_off(store, order)
        slurm = make_backend(config)
        app = App(config, slurm, slurm, store, leadership=leadership)
        try:
            return await _drained(app, order, wait)
        finally:
            await app.close()
    finally:
        leadership.close()


async def _drained(app: App, order: Off, wait: float) -> dict[str, Any]:
    deadline = time.monotonic() + wait
    try:
        await app.start()
    except NotNow as e:
        return _told(order, None, [str(e)])
    assert app.loop is not None
    if any(me.companions or me.phase.value != "idle" for me in app.part(MalleablePart).controller.jobs.values()):
        try:
            await app.open_doors()
        except (ConfigError, OSError) as e:  # programs cannot be told then
            _log.warning("no doors", why=str(e))
    passes = asyncio.ensure_future(app.loop.run())
    try:
        while not app.part(OffPart).drain.settled and time.monotonic() < deadline and not passes.done():
            await asyncio.sleep(_LOOK)
    finally:
        app.loop.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(passes, _HELD)
    seen = app.observer.last
    return _told(order, app.part(OffPart).drain, list(seen.problems) if seen else [])


def _told(order: Off | None, drain: Drain | None, problems: list[str]) -> dict[str, Any]:
    report = None if drain is None or drain.report is None else drain.report.to_dict(_all)
    settled = drain is not None and drain.settled
    told = None if order is None else order.to_dict()
    known = {"off": told, "text": str(order or ""), "unwritten": ""}
    return {**known, "settled": settled, "problems": problems, "report": report}


def _all(_uid: int) -> bool:
    return True


async def lift_alone(config: Config) -> Off | None:
    """Take the order back; what it was, None: it was not off. Raises StateHeld where somebody else has the state."""
    leadership = await _leadership(config)
    try:
        with closing(open_checked(config, leadership)) as store:
            order = off_in(store)
            if order is not None:
                keep_off(store, None)
            return order
    finally:
        leadership.close()
