"""Mending a reserved plan that the world has overtaken: which slots are exchanged, and why. Pure.

A slot is exchanged when its reservation is gone, or when those that its stage comes after will end too late for the
stage to end in it. Then later stages may need other slots, too. Of a stage that has failed nothing is saved: what comes
after it is dropped.

Where all is well, slots move to where they can begin earlier behind all who wait: others end before their time limits,
and a plan that waits for its turn falls behind the queue (`penstock bench provision --part practice`). If the plan ends
earlier when it is made anew, with the nodes of its own slots free, it is; otherwise its slots move up one behind the
other. A slot that was bought at the price of a delay is given up for another, if that costs less than the time saved is
worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, NamedTuple, Protocol

from penstock_planning.hold.exchanges import CAN_BEGIN_EARLIER, MAKES_ROOM, PLAN_ENDS_EARLIER
from penstock_planning.plan.dag import one_site, ranks
from penstock_planning.plan.moving import Place, in_order

__all__ = ["Drop", "Free", "Holes", "SlotChange", "StageNow", "StageProgress", "repair"]

_GRACE: Final = 30.0
"""Seconds after a slot's begin in which its job may begin: some rounds of Slurm's scheduler."""
_EARLIER: Final = 120.0
"""Seconds that an exchange for an earlier slot has to gain. Reservations begin at full minutes."""
_AT_ONCE: Final = 20
"""Slots that move up in a pass, each of which takes a request."""
_ANEW: Final = 100
"""Slots of a plan that is made anew: it moves as a whole or not at all."""
_REQUEST: Final = 0.2
"""Seconds that each request beyond those may take."""


class StageProgress(StrEnum):
    """How far a stage is; the last two are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether its job has ended."""
        return self in (StageProgress.DONE, StageProgress.FAILED)


@dataclass(frozen=True, slots=True)
class StageNow:
    """A stage as it stands. `slot` is the begin and end of its reservation (None: it has none any more) on the nodes
    `on`, `ends` when a running one has ended at the latest, `penalty` what giving up the slot costs."""

    name: str
    nodes: int
    duration: float
    after: tuple[str, ...]
    standing: StageProgress
    slot: tuple[float, float] | None
    ends: float = 0.0
    penalty: float = 0.0
    on: tuple[str, ...] = ()


class Free(NamedTuple):
    """A slot that can be had: when it begins, and its nodes."""

    start: float
    nodes: tuple[str, ...]


class Holes(Protocol):
    """What is free."""

    def find(self, nodes: int, duration: float, after: float) -> Free | None:
        """The earliest slot of so many nodes for so many seconds from an instant on."""
        ...

    def take(self, hole: Free, duration: float) -> None:
        """From now on it is not free."""
        ...

    def give(self, slot: Free, duration: float) -> None:
        """From now on a slot of the plan is free."""
        ...


@dataclass(frozen=True, slots=True)
class SlotChange:
    """A stage gets this slot instead of the one that it has; `moves`: its reservation moves there."""

    stage: str
    to: Free
    why: str
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """A stage is given up, and its slot with it."""

    stage: str
    why: str


def repair(
    stages: Sequence[StageNow], now: float, holes: Holes, second: float = 0.0, notice: float = 0.0
) -> list[SlotChange | Drop]:
    """What to change, stages in an order in which none stands before one that it comes after.

    `second` is what ending a second earlier is worth, in units of the penalties. An earlier slot begins `notice`
    seconds from now or later: what must be asked for ahead is not to be had at once by exchanging it. A slot that is
    of no use is exchanged alone: what becomes of those behind it is seen in the next pass.
    """
    out: list[SlotChange | Drop] = []
    ends: dict[str, float] = {}
    lost: set[str] = set()
    wrong = False
    for stage in stages:
        ready = max((ends[parent] for parent in stage.after), default=now)
        ends[stage.name] = now if stage.standing is StageProgress.DONE else stage.ends
        if stage.standing is StageProgress.FAILED:
            lost.add(stage.name)
        if stage.standing is not StageProgress.WAITING:
            continue
        if gone := [parent for parent in stage.after if parent in lost]:
            lost.add(stage.name)
            out.append(Drop(stage.name, f"stage {gone[0]}, which it comes after, has failed"))
            continue
        why = _unusable(stage, ready, now)
        to = None
        if why and not any(isinstance(change, SlotChange) for change in out):
            to = holes.find(stage.nodes, stage.duration, max(ready, now))
        elif not why and not wrong and stage.penalty:
            to = _earlier(stage, max(ready, now + notice), holes, second)
        if to is not None:
            holes.take(to, stage.duration)
            out.append(SlotChange(stage.name, to, why or CAN_BEGIN_EARLIER))
        wrong = wrong or bool(why)
        start = to.start if to is not None else max(ready, now) if stage.slot is None else max(ready, stage.slot[0])
        ends[stage.name] = start + stage.duration
    if out or wrong:
        return out
    out += _made_anew(stages, now, holes, now + notice)
    return out or list(_move_up(stages, now, holes, now + notice))


def _made_anew(stages: Sequence[StageNow], now: float, holes: Holes, soonest: float) -> list[SlotChange]:
    """How the slots move to where they are if the plan is made anew, what is longest to the plan's end first (HEFT's
    order), with all of them free; empty if it would not end earlier."""
    soonest += _REQUEST * max(0, len(stages) - _AT_ONCE)
    slots = {s.name: Place(*s.slot, frozenset(s.on)) for s in stages if s.slot and s.standing is StageProgress.WAITING}
    free = {s.name: s for s in stages if s.name in slots and not s.penalty and slots[s.name].start >= soonest}
    if not free or len(free) > _ANEW:
        return []
    ends = {s.name: now if s.standing.final else s.ends for s in stages}
    ends |= {s.name: slots[s.name].start + s.duration for s in stages if s.name in slots}
    last = max(ends.values())
    for stage in free.values():
        holes.give(_free(slots[stage.name]), stage.duration)
    to: dict[str, Free] = {}
    for stage in sorted(free.values(), key=_upward(stages), reverse=True):
        ready = max((ends[parent] for parent in stage.after), default=soonest)
        found = holes.find(stage.nodes, stage.duration, max(ready, soonest))
        if found is None:
            break
        holes.take(found, stage.duration)
        to[stage.name], ends[stage.name] = found, found.start + stage.duration
    fits = all(ends[p] <= slots[s.name].start for s in stages if s.name in slots.keys() - free.keys() for p in s.after)
    out: list[SlotChange] = []
    if len(to) == len(free) and fits and max(ends.values()) <= last - _EARLIER:
        out = _moves({name: slots[name] for name in free}, to, free, holes)
    if not out:
        for name, hole in to.items():
            holes.give(hole, free[name].duration)
        for name, stage in free.items():
            holes.take(_free(slots[name]), stage.duration)
    return out


def _moves(
    now: Mapping[str, Place], to: Mapping[str, Free], stages: Mapping[str, StageNow], holes: Holes
) -> list[SlotChange]:
    """The moves in an order that Slurm takes; empty if there is none."""
    then = {n: Place(f.start, f.start + now[n].end - now[n].start, frozenset(f.nodes)) for n, f in to.items()}
    behind = max(place.end for place in (*now.values(), *then.values()))
    aside: dict[str, Free] = {}

    def make_room(name: str) -> Place | None:
        found = holes.find(stages[name].nodes, stages[name].duration, behind)
        if found is None:
            return None
        holes.take(found, stages[name].duration)
        aside[name] = found
        return Place(found.start, found.start + now[name].end - now[name].start, frozenset(found.nodes))

    moves = in_order(now, then, make_room) or []
    for name, hole in aside.items():
        holes.give(hole, stages[name].duration)
    out = []
    for name, place in moves:
        if place != then[name]:
            out.append(SlotChange(name, aside[name], MAKES_ROOM, moves=True))
        elif place != now[name]:
            why = CAN_BEGIN_EARLIER if place.start < now[name].start else PLAN_ENDS_EARLIER
            out.append(SlotChange(name, to[name], why, moves=True))
    return out


def _upward(stages: Sequence[StageNow]) -> Callable[[StageNow], Fraction]:
    """HEFT's rank: the seconds from a stage's begin to the end of all that comes after it."""
    dag = one_site([(stage.name, stage.nodes, stage.duration, stage.after) for stage in stages])
    rank = {stage.name: rank for stage, rank in zip(stages, ranks(dag), strict=True)}
    return lambda stage: rank[stage.name]


def _free(place: Place) -> Free:
    return Free(place.start, tuple(sorted(place.nodes)))


def _move_up(stages: Sequence[StageNow], now: float, holes: Holes, soonest: float) -> Iterator[SlotChange]:
    """The slots that move, each behind those that its stage comes after; the next one may take what one has left."""
    ends: dict[str, float] = {}
    moved = 0
    for stage in stages:
        ends[stage.name] = now if stage.standing is StageProgress.DONE else stage.ends
        if stage.standing is not StageProgress.WAITING or stage.slot is None:
            continue
        ready = max((ends[parent] for parent in stage.after), default=soonest)
        start, to = stage.slot[0], None
        if start - max(ready, soonest) >= _EARLIER and not stage.penalty and moved < _AT_ONCE:
            own = Free(start, stage.on)
            holes.give(own, stage.duration)  # it may overlap with itself
            to = holes.find(stage.nodes, stage.duration, max(ready, soonest))
            if to is None or start - to.start < _EARLIER:
                to = None
            holes.take(to or own, stage.duration)
        if to is not None:
            moved += 1
            yield SlotChange(stage.name, to, CAN_BEGIN_EARLIER, moves=True)
        ends[stage.name] = (start if to is None else to.start) + stage.duration


def _unusable(stage: StageNow, ready: float, now: float) -> str:
    """Why a stage cannot run in its slot; empty if it can."""
    if stage.slot is None:
        return "its slot is gone"
    begin = max(ready, stage.slot[0], now - _GRACE)
    if begin + stage.duration > stage.slot[1]:
        return "what it comes after ends too late for its slot" if ready > now else "it did not begin in time"
    return ""


def _earlier(stage: StageNow, soonest: float, holes: Holes, second: float) -> Free | None:
    assert stage.slot is not None
    if stage.slot[0] - soonest < _EARLIER:
        return None
    to = holes.find(stage.nodes, stage.duration, soonest)
    gain = 0.0 if to is None else stage.slot[0] - to.start
    return to if gain >= _EARLIER and stage.penalty <= gain * second else None
