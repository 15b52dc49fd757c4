"""What may be asked of the way out at the agent's door, and what the other operations say while all is off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from dmr.wire import clean
from penstock.core.off import REFUSED, Off, refusal
from penstock.core.parts import Operation, Site
from penstock.core.pauses import as_pauses
from penstock.errors import NotNow, NotPermitted, UserError
from penstock.shutdown.drain import Drain
from penstock.shutdown.units import known_unit
from penstock.values.documents import show

__all__ = ["OffRequests"]

_MOST_UNITS: Final = 4


class OffRequests:
    """Each operation answers one request. `turned` is called when all was turned off or on, with why; `end` has the
    agent end, if it can."""

    def __init__(self, drain: Drain, site: Site, turned: Callable[[str], None], end: Callable[[], bool]) -> None:
        self._drain, self._turned, self._end = drain, turned, end
        self._control, self._observer = site.executor.pause_control, site.observer
        self._clock, self._callers = site.clock, site.callers

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"off": self.off, "on": self.on, "left": self.left, "end": self.end}

    def around(self, operations: Mapping[str, Operation]) -> dict[str, Operation]:
        """All operations: what begins something is refused while all is off, `status` and `pauses` say that it is."""

        async def status(uid: int, request: Mapping[str, Any]) -> object:
            return _with_problem(await operations["status"](uid, request), self._control.off)

        async def pauses(uid: int, request: Mapping[str, Any]) -> object:
            """Commands of users keep to it, too; they know of pauses."""
            told = await operations["pauses"](uid, request)
            assert isinstance(told, list)
            return told + [asdict(p) for p in as_pauses(self._control.off)]

        guarded = {name: self._refused_while_off(operations[name]) for name in REFUSED}
        return {**operations, **guarded, "status": status, "pauses": pauses}

    def _refused_while_off(self, operation: Operation) -> Operation:
        async def refused(uid: int, request: Mapping[str, Any]) -> object:
            if self._control.off is not None:
                raise refusal(self._control.off)
            return await operation(uid, request)

        return refused

    async def off(self, uid: int, request: Mapping[str, Any]) -> object:
        """Nothing is begun any more, and what is held is handed back."""
        await self._require_above(
            uid, "turn Penstock off. For your own jobs use `penstock pause --user` with your name"
        )
        units = request.get("units") or []
        if not isinstance(units, list) or len(units) > _MOST_UNITS or not all(map(known_unit, units)):
            raise UserError(f"units: must be systemd units that run Penstock, not {show(units)}")
        order = Off(
            uid,
            self._clock.now(),
            clean(str(request.get("why", ""))),
            release=bool(request.get("release")),
            drop_slots=bool(request.get("drop_slots")),
            units=tuple(units),
        )
        order = self._control.turn_off(order)
        self._drain.begin()
        self._observer.want()
        self._turned("it is off")
        return {"off": order.to_dict(), "unwritten": self._control.unwritten}

    async def on(self, uid: int, _request: Mapping[str, Any]) -> object:
        """It goes on."""
        await self._require_above(uid, "turn Penstock on")
        order = self._control.turn_on()
        if order is not None:
            self._observer.want()
            self._turned("it is on again")
        return {"off": None if order is None else order.to_dict()}

    async def left(self, uid: int, request: Mapping[str, Any]) -> object:
        """What is left, to its owners; all of it to operators. With `preview` what there is while it is
        on, to those alone: it takes a look at the ledger and the bags."""
        above = await self._callers.above(uid)
        order = self._control.off
        report = self._drain.report if order is not None else None
        if request.get("preview"):
            await self._require_above(uid, "list what everybody has")
            snapshot = self._observer.last or await self._observer.look()
            if not snapshot.usable:
                raise NotNow("; ".join(snapshot.problems))
            report = await self._drain.preview(snapshot)
        last = self._observer.last
        problems = last.problems if last else ("the agent has not looked at Slurm yet",)
        return {
            "off": None if order is None else order.to_dict(),
            "text": "" if order is None else str(order),
            "unwritten": self._control.unwritten,
            "settled": self._drain.settled,
            "problems": list(problems),
            "report": None if report is None else report.to_dict(lambda whose: above or whose == uid),
        }

    async def end(self, uid: int, _request: Mapping[str, Any]) -> object:
        """The agent's process ends."""
        await self._require_above(uid, "end the agent")
        if self._control.off is None:
            raise UserError("the agent is not off: `penstock off` turns it off and ends it")
        return {"ends": self._end()}

    async def _require_above(self, uid: int, what: str) -> None:
        if not await self._callers.above(uid):
            raise NotPermitted(f"only the agent's own user, root, or an operator of Slurm may {what}")


def _with_problem(told: object, off: Off | None) -> object:
    if off is None or not isinstance(told, dict):
        return told
    return {**told, "off": off.to_dict(), "problems": [str(off), *told.get("problems", [])]}
