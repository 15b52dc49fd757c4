"""What users ask of pauses at the agent's door."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from dmr.wire import clean
from penstock.core.parts import Operation, Site
from penstock.core.pauses import FEATURES, Pause
from penstock.errors import NotFound, NotPermitted, UserError
from penstock.values.documents import show

__all__ = ["PauseRequests"]

_PARTITION: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)


class PauseRequests:
    """Each operation answers one request."""

    def __init__(self, site: Site) -> None:
        self._control, self._observer = site.executor.pause_control, site.observer
        self._clock, self._callers, self._wake = site.clock, site.callers, site.wake

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"pause": self.pause, "pauses": self.pauses, "resume": self.resume}

    async def pauses(self, uid: int, _request: Mapping[str, Any]) -> object:
        """Those that are about the jobs of whoever asks: their own commands keep to them, too."""
        return [asdict(p) for p in self._control.pauses if p.uid in (None, uid)]

    async def pause(self, uid: int, request: Mapping[str, Any]) -> object:
        """From now on what is named is left alone."""
        wanted = await self._scope(uid, request)
        above = await self._callers.above(uid)
        for there in self._control.pauses:
            # Else a user could make it their own, and lift it then.
            if there.scope == wanted.scope and there.by != uid and not above:
                raise NotPermitted(f"somebody else has paused it already: {there}")
        self._control.pause(wanted)
        return {"pauses": [str(wanted)], "unwritten": self._control.unwritten}

    async def resume(self, uid: int, request: Mapping[str, Any]) -> object:
        """A pause is lifted, or all."""
        wanted, above = await self._scope(uid, request), await self._callers.above(uid)
        everything = wanted.scope == (None, None, None)
        lifted = [p for p in self._control.pauses if everything or p.scope == wanted.scope]
        if not lifted:
            raise NotFound("this is not paused; what is: " + ("; ".join(map(str, self._control.pauses)) or "nothing"))
        if not above and any(p.by != uid for p in lifted):
            raise NotPermitted(f"not paused by you: {lifted[0]}")
        self._control.resume(lifted)
        self._wake("a pause is over")
        return {"pauses": [str(p) for p in lifted]}

    async def _scope(self, uid: int, request: Mapping[str, Any]) -> Pause:
        """What a pause is to be about. Users may speak of their own jobs, the agent's user of all."""
        feature, whose, partition = (request.get(key) for key in ("feature", "uid", "partition"))
        if feature is not None and feature not in FEATURES:
            raise UserError(f"feature: must be one of {', '.join(FEATURES)}, not {show(feature)}")
        if (whose is not None and type(whose) is not int) or (partition is not None and not isinstance(partition, str)):
            raise UserError(f"uid must be a number and partition a text, not {show(whose)} and {show(partition)}")
        snapshot = self._observer.last
        if partition is not None and snapshot and snapshot.partitions and partition not in snapshot.partitions:
            known = ", ".join(sorted(snapshot.partitions))
            raise UserError(f"partition: there is no partition {partition[:60]!r} (partitions: {known})")
        if partition is not None and not _PARTITION.fullmatch(partition):
            raise UserError(f"partition: {partition[:60]!r} cannot be the name of a partition")
        if whose == uid:
            self._callers.require_served(uid)
        else:
            await self._callers.require_above(
                uid, "this for all users; for your own jobs alone, use `--user` with your name"
            )
        return Pause(feature, whose, partition, uid, self._clock.now(), clean(str(request.get("why", ""))))
