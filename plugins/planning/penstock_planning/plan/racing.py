"""A queued job beside a slot that was asked for: which of the two it begins in. Pure.

There is one job. It waits in the queue like any other, and is put into its slot when that begins and it could run: so
no work is done twice, whoever is killed when, and whatever comes first counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock_planning.plan.repair import StageProgress

__all__ = ["Beside", "RaceMove", "race"]

_AHEAD: Final = 60.0
"""Seconds before the slot's begin from which on the job may be put into it: the time between two passes."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A stage whose job is queued. `slot` is the begin and end of its reservation (None: there is none, or not yet),
    `open` whether one is held or asked for, `ready` whether all that it comes after has completed, `limit` its time
    limit (s), `inside` whether its job stands for the slot."""

    standing: StageProgress
    slot: tuple[float, float] | None
    open: bool
    ready: bool
    limit: float
    inside: bool


class RaceMove(StrEnum):
    """ENTER: the job is put into its slot. LEAVE: it goes back into the queue. GIVE_UP: so is the slot."""

    ENTER = "enter"
    LEAVE = "leave"
    GIVE_UP = "give up"


def race(stage: Beside, now: float) -> tuple[RaceMove, ...]:
    """What is to be done now, in this order."""
    if stage.standing is StageProgress.RUNNING and not stage.inside and stage.open:
        return (RaceMove.GIVE_UP,)
    if stage.standing is not StageProgress.WAITING:
        return ()
    if stage.slot is None:
        return (RaceMove.LEAVE,) if stage.inside else ()
    begin, end = stage.slot
    if now + stage.limit > end:  # Slurm starts no job there that might still run at its end
        return (RaceMove.LEAVE, RaceMove.GIVE_UP) if stage.inside else (RaceMove.GIVE_UP,)
    if stage.ready and not stage.inside and now >= begin - _AHEAD:
        return (RaceMove.ENTER,)
    return ()
