"""Elastic jobs whose program is started again with each size, from its own checkpoint. A machine without I/O.

    STEADY -> SAVING -it has ended-> STARTING (on the new set of nodes) -it runs-> FINISHING -> STEADY
                 |not within grace      |it failed
                 v                      v
          refused, STEADY        started on the former nodes, refused, STEADY

A program that does not end within grace is left alone, and the resize is refused: what it has computed counts more. If
it ends later after all, it is started again where it was. One that fails while it uses companions may have lost one: it
is started again on the job's own nodes. Without companions the job ends as its program does.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmr.elastic.dialogue import Dialogue, Phase
from dmr.elastic.words import (
    PROGRAM,
    ElasticNode,
    ElasticPlan,
    Event,
    HasEnded,
    Instruction,
    Leave,
    Ready,
    RunProgram,
    Say,
    Signal,
    TimePassed,
)

__all__ = ["Resuming"]


class Resuming(Dialogue):
    """See the module's text."""

    def __init__(self, plan: ElasticPlan, base: Sequence[str], job: int) -> None:
        super().__init__(plan, base, job)
        self._program = ElasticNode(PROGRAM, job)
        self._told = False  # to end
        self._late = 0.0
        self._failed = ""  # why the former size is started again
        self._resizes = False  # STARTING belongs to a resize

    def begin(self, now: float) -> list[Instruction]:
        """Start the program on the job's own nodes."""
        return self._run(self.base, now, again=False)

    def _run(self, members: Sequence[ElasticNode], now: float, *, again: bool = True) -> list[Instruction]:
        self.alive.add(PROGRAM)
        self.phase, self._told = Phase.STARTING, False
        return [RunProgram(tuple(members), again)]

    def _other(self, event: Event, now: float) -> list[Instruction]:
        match event:
            case Ready() if self.phase is Phase.STARTING:
                return self._started(now)
            case TimePassed() if self.phase is Phase.SAVING and now >= self._late:
                return self._refuse(f"the program did not end within {self.plan.grace:g} s; it goes on", now)
        return []

    def _resize(self, now: float) -> list[Instruction]:
        self.phase, self._late, self._told = Phase.SAVING, now + self.plan.grace, True
        return [Leave((self._program,), self.plan.grace)] if self.plan.leave else [Signal((self._program,))]

    def _started(self, now: float) -> list[Instruction]:
        if not self._resizes:
            self.phase = Phase.STEADY
            return []
        self._resizes = False
        if self._failed:
            return self._refuse(self._failed, now)
        self.members = self._target()
        return self._finish(now)

    def _target(self) -> tuple[ElasticNode, ...]:
        return (*self.members, *self.moving) if self.grows else tuple(m for m in self.members if m not in self._going)

    def _ended(self, event: HasEnded, now: float) -> list[Instruction]:
        if event.host != PROGRAM:
            return []
        over = event.finished or (event.code == 0 and not event.saved)
        if self.phase is Phase.SAVING:
            if over:
                return self._end(event.code, now)
            self._resizes, self._failed = True, ""
            if not event.saved:
                self._failed = f"the program ended with code {event.code}, and without a new checkpoint"
                return self._run(self.members, now)
            return self._run(self._target(), now)
        if self.phase is Phase.STARTING and event.code and self._resizes and not self._failed:
            self._failed = f"the program failed on the new set of nodes (exit {event.code})"
            return [
                Say(f"{self._failed}; it is started on the former ones", warning=True),
                *self._run(self.members, now),
            ]
        if self._told and not over:  # later than it should have been
            return self._run(self.members, now)
        if event.code and self.members != self.base:
            self._go_on_with(self.base)
            self._resizes = False
            text = f"the program failed (exit {event.code}), perhaps with a companion: the job's own nodes go on"
            return [Say(text, warning=True), *self._run(self.base, now)]
        return self._end(event.code, now)
