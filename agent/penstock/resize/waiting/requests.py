"""What owners say of their moldable jobs at the agent's door: which shapes a job may have, and which to begin with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.callers import Callers
from penstock.core.parts import Operation, StatusShare
from penstock.errors import UserError
from penstock.resize.waiting.controller import MoldableController
from penstock.resize.waiting.model import Checkpoint, MoldShape, read_checkpoint, read_shapes
from penstock.values.documents import show

__all__ = ["MoldableRequests"]

_LONGEST: Final = 4096


class MoldableRequests:
    """Each operation answers one request."""

    def __init__(self, moldable: MoldableController, callers: Callers) -> None:
        self._moldable = moldable
        self._callers = callers

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"shape": self.shape, "mold": self.mold}

    async def shape(self, uid: int, request: Mapping[str, Any]) -> object:
        """The shape that a job of these would end first with, behind all who wait: its owner is about to submit it."""
        self._callers.require_served(uid)
        chosen = await self._moldable.shape_for(_text(request, "partition", ""), _shapes(request))
        return {"nodes": chosen.nodes, "limit": chosen.limit}

    async def mold(self, uid: int, request: Mapping[str, Any]) -> object:
        """A job of the caller's may have any of these shapes."""
        self._callers.require_served(uid)
        number = request.get("job")
        if type(number) is not int or not 0 < number < 2**63:
            raise UserError(f"job: must be the number of a job, not {show(number)}")
        me = await self._moldable.register(uid, number, _shapes(request), _checkpoint(request), _submitted(request))
        # Nobody else's files are looked at.
        return {"job": me.job, "puts_back": me.checkpoint is not None and uid == os.geteuid()}

    def status(self, uid: int) -> StatusShare:
        """The user's moldable jobs; root's are everybody's."""
        told = [me.to_dict() for me in self._moldable.jobs.values() if uid in (0, me.uid)]
        return StatusShare({"moldable": told}, jobs=[job["job"] for job in told])


def _shapes(request: Mapping[str, Any]) -> tuple[MoldShape, ...]:
    try:
        return read_shapes(_text(request, "shapes"))
    except UserError as e:
        raise UserError(f"shapes: {e}") from e


def _checkpoint(request: Mapping[str, Any]) -> Checkpoint | None:
    if request.get("checkpoint") is None:
        return None
    try:
        return read_checkpoint(_text(request, "checkpoint"))
    except UserError as e:
        raise UserError(f"checkpoint: {e}") from e


def _submitted(request: Mapping[str, Any]) -> float | None:
    """When the job was submitted, as its owner's command has seen it; older commands do not say."""
    value = request.get("born")
    if value is not None and not (isinstance(value, int | float) and 0 <= value < 2**33):
        raise UserError(f"born: must be seconds since 1970, not {show(value)}")
    return None if value is None else float(value)


def _text(request: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = request.get(key, default)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise UserError(f"{key}: must be a text")
    return value
