"""What may be asked of the way out at the agent's door, and what the other operations say while all is off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from dmr.wire import clean
from penstock.core.observe import Observer
from penstock.core.off import REFUSED, Off, refusal
from penstock.core.pauses import PauseControl, as_pauses
from penstock.errors import NotNow, NotPermitted, UserError
from penstock.host.clock import Clock
from penstock.ipc.handlers import LocalOp
from penstock.ipc.operators import Operators
from penstock.off.drain import Drain
from penstock.off.units import known_unit
from penstock.values.documents import show

__all__ = ["way_out"]

_MOST_UNITS: Final = 4


def way_out(
    operations: Mapping[str, LocalOp],
    pause_control: PauseControl,
    drain: Drain,
    observer: Observer,
    operators: Operators,
    clock: Clock,
    wake: Callable[[str], None],
    end: Callable[[], bool],
) -> dict[str, LocalOp]:
    """The operations, with those of the way out: `off`, `on`, `left`, `end`. `end` has the agent end, if it can."""

    async def require_operator(uid: int, what: str) -> None:
        if not await operators.include(uid):
            raise NotPermitted(f"only the agent's own user, root, or an operator of Slurm may {what}")

    def guarded(operation: LocalOp) -> LocalOp:
        async def refused_while_off(uid: int, request: Mapping[str, Any]) -> object:
            if pause_control.off is not None:
                raise refusal(pause_control.off)
            return await operation(uid, request)

        return refused_while_off

    async def off(uid: int, request: Mapping[str, Any]) -> object:
        await require_operator(uid, "turn Penstock off. For your own jobs use `penstock pause --user` with your name")
        units = request.get("units") or []
        if not isinstance(units, list) or len(units) > _MOST_UNITS or not all(map(known_unit, units)):
            raise UserError(f"units: must be systemd units that run Penstock, not {show(units)}")
        order = Off(
            uid,
            clock.now(),
            clean(str(request.get("why", ""))),
            release=bool(request.get("release")),
            drop_slots=bool(request.get("drop_slots")),
            units=tuple(units),
        )
        order = pause_control.turn_off(order)
        drain.begin()
        observer.want()
        wake("it is off")
        return {"off": order.to_dict(), "unwritten": pause_control.unwritten}

    async def on(uid: int, _request: Mapping[str, Any]) -> object:
        await require_operator(uid, "turn Penstock on")
        order = pause_control.turn_on()
        if order is not None:
            observer.want()
            wake("it is on again")
        return {"off": None if order is None else order.to_dict()}

    async def left(uid: int, request: Mapping[str, Any]) -> object:
        """What is left, to its owners; all of it to operators. With `preview` what there is while it is
        on, to those alone: it takes a look at the ledger and the bags."""
        above = await operators.include(uid)
        order = pause_control.off
        report = drain.report if order is not None else None
        if request.get("preview"):
            await require_operator(uid, "list what everybody has")
            snapshot = observer.last
            if snapshot is None or not snapshot.usable:
                raise NotNow("; ".join(snapshot.problems) if snapshot else "the agent has not looked at Slurm yet")
            report = await drain.preview(snapshot)
        problems = observer.last.problems if observer.last else ("the agent has not looked at Slurm yet",)
        return {
            "off": None if order is None else order.to_dict(),
            "text": "" if order is None else str(order),
            "unwritten": pause_control.unwritten,
            "settled": drain.settled,
            "problems": list(problems),
            "report": None if report is None else report.to_dict(lambda whose: above or whose == uid),
        }

    async def end_(uid: int, _request: Mapping[str, Any]) -> object:
        await require_operator(uid, "end the agent")
        if pause_control.off is None:
            raise UserError("the agent is not off: `penstock off` turns it off and ends it")
        return {"ends": end()}

    async def status(uid: int, request: Mapping[str, Any]) -> object:
        return _with_problem(await operations["status"](uid, request), pause_control.off)

    async def pauses(uid: int, request: Mapping[str, Any]) -> object:
        """Commands of users keep to it, too; they know of pauses."""
        told = await operations["pauses"](uid, request)
        assert isinstance(told, list)
        return told + [asdict(p) for p in as_pauses(pause_control.off)]

    more: dict[str, Callable[[int, Mapping[str, Any]], Awaitable[Any]]] = {
        "off": off,
        "on": on,
        "left": left,
        "end": end_,
        "status": status,
        "pauses": pauses,
    }
    return {**operations, **{name: guarded(operations[name]) for name in REFUSED}, **more}


def _with_problem(told: object, off: Off | None) -> object:
    if off is None or not isinstance(told, dict):
        return told
    return {**told, "off": off.to_dict(), "problems": [str(off), *told.get("problems", [])]}
