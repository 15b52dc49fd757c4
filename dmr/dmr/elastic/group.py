"""Elastic jobs whose nodes join and leave one companion at a time: farms, Dask, Ray, torchrun. A machine without I/O.

    STEADY -> JOINING -all ready-> FINISHING -> STEADY
                 |one failed, or late
                 v
              LEAVING (the new ones) -> refused, STEADY

    STEADY -> LEAVING -all gone, or grace over and killed-> FINISHING -> STEADY

A companion joins and leaves as a whole: if `join` fails on one of its three nodes, the other two are told to leave,
and the growth is refused. One of which a node is lost later leaves as a whole too, and the job goes on without it.
What ends on a node of the base is started again there, ever more rarely; without a `start` it is the program itself,
and the job ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dmr.elastic.dialogue import Dialogue, Phase
from dmr.elastic.words import (
    PROGRAM,
    ElasticNode,
    ElasticPlan,
    Event,
    HasEnded,
    Instruction,
    Join,
    KillNodes,
    Leave,
    Left,
    Ready,
    RunProgram,
    Say,
    Signal,
    TimePassed,
)

__all__ = ["Group"]

_TRIES: Final = 5
_REST: Final = 60.0
_GIVEN_UP: Final = 15.0  # after a kill


@dataclass
class _Removal:
    """These leave; then the resize is finished, or refused for this reason, or they are just gone."""

    members: tuple[ElasticNode, ...]
    deadline: float
    why: str = ""  # of a growth that is undone
    lost: bool = False
    told: bool = False  # the leave command has ended, or there is none
    killed: bool = False


class Group(Dialogue):
    """See the module's text."""

    def __init__(self, plan: ElasticPlan, base: Sequence[str], job: int) -> None:
        super().__init__(plan, base, job)
        self._starting: set[str] = set()
        self._dead: list[HasEnded] = []
        self._tries: dict[str, int] = {}
        self._rejoin: dict[str, float] = {}
        self._through: set[str] = set()  # nodes of the base whose program has ended well
        self._removal: _Removal | None = None
        self._late = 0.0

    def begin(self, now: float) -> list[Instruction]:
        """Start the head, and join the base's nodes."""
        done: list[Instruction] = []
        self._late = now + self.plan.ready_timeout
        if self.plan.start:
            self.alive.add(PROGRAM)
            done.append(RunProgram(self.base, again=False))
        for member in self.base if self.plan.base_joins else ():
            done.append(self._join(member))
        return done

    def _join(self, member: ElasticNode) -> Join:
        self.alive.add(member.host)
        self._starting.add(member.host)
        return Join(member)

    def _may_ask(self, now: float) -> bool:
        return now >= self._late or not any(m.host in self._starting for m in self.base)

    # -- events ------------------------------------------------------------------------------------------------------

    def _other(self, event: Event, now: float) -> list[Instruction]:
        match event:
            case Ready(host=host):
                return self._ready(host, now)
            case Left() if self._removal is not None and not self._removal.told:
                self._removal.told = True
                left = self._left()
                return [Signal(left)] if left else self._gone(now)
            case TimePassed() if self._removal is not None:
                return self._removing(self._removal, now)
            case TimePassed() if self.phase is Phase.JOINING and now >= self._late:
                late = sorted(m.host for m in self.moving if m.host in self._starting)
                return self._undo(f"{', '.join(late)} not ready within {self.plan.ready_timeout:g} s", now)
        return []

    def _ready(self, host: str, now: float) -> list[Instruction]:
        if host not in self._starting:
            return []
        self._starting.discard(host)
        self._tries.pop(host, None)
        if self.phase is not Phase.JOINING or any(m.host in self._starting for m in self.moving):
            return []
        new = self.moving
        self.members = (*self.members, *new)
        return self._finish(now)

    def _ended(self, event: HasEnded, now: float) -> list[Instruction]:
        host = event.host
        self._starting.discard(host)
        if host == PROGRAM:
            return self._end(event.code, now)
        if self._removal is not None and any(m.host == host for m in self._removal.members):
            return self._gone(now) if self._removal.told and not self._left() else []
        if any(m.host == host for m in self.base):
            return self._ended_on_base(event, now)
        if self.phase is Phase.JOINING and any(m.host == host for m in self.moving):
            return self._undo(f"join failed on {host} (exit {event.code})", now)
        self._dead.append(event)
        return self._settled(now) if self.phase is Phase.STEADY else []

    def _ended_on_base(self, event: HasEnded, now: float) -> list[Instruction]:
        host = event.host
        if not self.plan.start:
            if event.code:
                return self._end(event.code, now, f"the program ended on {host} with code {event.code}")
            self._through.add(host)
            return self._end(0, now) if len(self._through) == len(self.base) else []
        self._tries[host] = tries = self._tries.get(host, 0) + 1
        what = f"join ended on {host}, a node of the job itself (exit {event.code})"
        if tries > _TRIES:
            return [Say(f"{what}; it is not started again after {_TRIES} times", warning=True)]
        rest = min(2.0**tries, _REST)
        self._rejoin[host] = now + rest
        return [Say(f"{what}; it is started again in {rest:g} s", warning=True)]

    def _settled(self, now: float) -> list[Instruction]:
        done: list[Instruction] = []
        for member in self.base:
            if self._rejoin.get(member.host, now + 1) <= now:
                del self._rejoin[member.host]
                done.append(self._join(member))
        while self._dead and self._removal is None:
            event = self._dead.pop(0)
            job = next((m.job for m in self.members if m.host == event.host), None)
            if job is None:
                continue
            lost = tuple(m for m in self.members if m.job == job)
            names = ", ".join(m.host for m in lost)
            text = f"what ran on {event.host} has ended (exit {event.code}): the job goes on without {names}"
            done += [Say(text, warning=True), *self._remove(_Removal(lost, now + self.plan.grace, lost=True), now)]
        return done

    # -- growing and shrinking ---------------------------------------------------------------------------------------

    def _resize(self, now: float) -> list[Instruction]:
        if self.grows:
            self.phase, self._late = Phase.JOINING, now + self.plan.ready_timeout
            return [self._join(member) for member in self.moving]
        return self._remove(_Removal(self._going, now + self.plan.grace), now)

    def _undo(self, why: str, now: float) -> list[Instruction]:
        return self._remove(_Removal(self.moving, now + self.plan.grace, why=why), now)

    def _remove(self, removal: _Removal, now: float) -> list[Instruction]:
        self._removal, self.phase = removal, Phase.LEAVING
        left = self._left()
        if not left:
            return self._gone(now)
        if self.plan.leave:
            return [Leave(left, self.plan.grace)]
        removal.told = True
        return [Signal(left)]

    def _left(self) -> tuple[ElasticNode, ...]:
        """Those of the removal on whose nodes something still runs."""
        return tuple(m for m in self._removal.members if m.host in self.alive) if self._removal else ()

    def _removing(self, removal: _Removal, now: float) -> list[Instruction]:
        left = self._left()
        if removal.told and not left:
            return self._gone(now)
        if now < removal.deadline:
            return []
        if not removal.killed:
            removal.killed = removal.told = True
            names = ", ".join(m.host for m in left)
            text = f"{names} did not leave within {self.plan.grace:g} s: ended at once"
            return [Say(text, warning=True), KillNodes(left)] if left else self._gone(now)
        # What hangs in the kernel there ends with its companion.
        return self._gone(now) if now >= removal.deadline + _GIVEN_UP else []

    def _gone(self, now: float) -> list[Instruction]:
        removal, self._removal = self._removal, None
        assert removal is not None
        hosts = {m.host for m in removal.members}
        self.alive -= hosts
        self._starting -= hosts
        if removal.why:
            return self._refuse(removal.why, now)
        left = tuple(m for m in self.members if m.host not in hosts)
        if removal.lost:
            self._go_on_with(left)
            self.phase, self._next = Phase.STEADY, now
            return []
        self.members = left
        return self._finish(now)
