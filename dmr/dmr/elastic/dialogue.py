"""What every kind of elastic job has to say to the agent, and hears from it. A machine without I/O.

    STEADY -offer-> ACCEPTING -accepted-> NOTIFYING -> (the kind's own phases) -> FINISHING -> STEADY
                        |withdrawn            |refused              |failed: the nodes go back
                        v                     v                     v
                      STEADY                STEADY                STEADY

`on` takes an event and returns instructions. An expansion is granted by Slurm before it is offered, and refused or
finished by us; a shrink is finished by us before Slurm hears of it. So whoever dies in between, the other side goes on:

- the agent: the job keeps its size, what is under way comes to its end here, and the next agent hears of it;
- this supervisor: the batch script has ended with it, and so has the job; the agent gives its companions back, and
  without an agent they end with their time limit, which is not longer than the job's. (At its own end it gives them
  back itself.)
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from dmr import plan as sizes
from dmr.elastic.words import (
    Accepted,
    AcceptResize,
    AskAgent,
    ElasticNode,
    ElasticPlan,
    Event,
    Exit,
    FinishHeard,
    FinishResize,
    HasEnded,
    Instruction,
    KillNodes,
    Notified,
    Notify,
    Offered,
    RefuseResize,
    Say,
    Signal,
    StopAsked,
    TimePassed,
    Wanted,
)

__all__ = ["Dialogue", "Phase"]

_TELLS: Final = 5  # times that the end of a resize is told, if no answer comes
_LAST_WORDS: Final = 20.0  # between SIGTERM and SIGKILL Slurm leaves 30 s (KillWait)
_AFTER_KILL: Final = 10.0


class Phase(StrEnum):
    """Where the job stands."""

    STEADY = "steady"
    ACCEPTING = "accepting"
    NOTIFYING = "notifying"
    JOINING = "joining"
    LEAVING = "leaving"
    SAVING = "saving"
    STARTING = "starting"
    FINISHING = "finishing"
    ENDING = "ending"
    OVER = "over"


class Dialogue:
    """Asks, accepts, refuses and finishes; a kind of job says what is between.

    Args:
        plan: what the job says about itself.
        base: the nodes of the job itself, the first is where this runs.
        job: the job's number.
    """

    def __init__(self, plan: ElasticPlan, base: Sequence[str], job: int) -> None:
        self.plan = plan
        self.base = tuple(ElasticNode(host, job) for host in base)
        self.members = self.base
        self.phase = Phase.STEADY
        self.epoch = 0
        self.alive: set[str] = set()  # where something of ours runs
        self.offer = Offered()
        self._wanted = plan.maximum
        self._asked = False
        self._next = 0.0
        self._begun = 0.0
        self._tells = 0
        self._reason = ""
        self._code = 0
        self._deadline = 0.0
        self._going: tuple[ElasticNode, ...] = ()  # with the shrink on offer
        self._dropped: set[int] = set()

    # -- to be said by a kind of job ---------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Instruction]:
        """What is to be done first."""
        raise NotImplementedError

    def _resize(self, now: float) -> list[Instruction]:
        """The resize of `offer` is accepted, and nobody has anything against it."""
        raise NotImplementedError

    def _ended(self, event: HasEnded, now: float) -> list[Instruction]:
        raise NotImplementedError

    def _other(self, event: Event, now: float) -> list[Instruction]:
        """What is not about the agent, outside of the end."""
        raise NotImplementedError

    def _settled(self, now: float) -> list[Instruction]:
        """In STEADY: what is to be done before the agent is asked again."""
        return []

    def _may_ask(self, now: float) -> bool:
        return True

    # -- events ------------------------------------------------------------------------------------------------------

    def on(self, event: Event, now: float) -> list[Instruction]:
        """What follows from an event at this instant (s)."""
        if self.phase is Phase.OVER:
            return []
        match event:
            case StopAsked(number=number):
                return [] if self.phase is Phase.ENDING else self._end(128 + number, now, f"ended by signal {number}")
            case HasEnded(host=host):
                self.alive.discard(host)
                return self._over(now) if self.phase is Phase.ENDING else self._ended(event, now)
            case TimePassed() if self.phase is Phase.ENDING:
                return self._over(now)
            case Wanted(nodes=nodes):
                self._wanted = nodes
                return []
            case Offered():
                return self._offered(event)
            case Accepted(ok=ok) if self.phase is Phase.ACCEPTING:
                return self._accepted(ok, now)
            case Notified(ok=ok, why=why) if self.phase is Phase.NOTIFYING:
                return self._notified(ok, why, now)
            case FinishHeard(ok=ok) if self.phase is Phase.FINISHING:
                return self._heard(ok, now)
        if self.phase is Phase.ENDING:
            return []
        done = self._other(event, now)
        if isinstance(event, TimePassed) and self.phase is Phase.STEADY:
            done += self._settled(now)
            if self.phase is Phase.STEADY:
                done += self._ask(now)
        return done

    # -- the agent ---------------------------------------------------------------------------------------------------

    def _ask(self, now: float) -> list[Instruction]:
        if self._asked or now < self._next or not self._may_ask(now):
            return []
        self._asked, self._next = True, now + self.plan.interval
        least = max(self.plan.minimum, len(self.base))
        most = max(least, min(self.plan.maximum, self._wanted))
        # Nobody is asked to give up what is lent to an elastic job, if it does not say down to where it may be.
        preferred = min(max(least, self.plan.preferred or 0), most)
        hosts = tuple(m.host for m in self.members)
        again, leaves = bool(self.plan.again), self.plan.leaves_within
        return [AskAgent(self.epoch, hosts, least, most, self.plan.factor, preferred, again, leaves)]

    def _offered(self, offer: Offered) -> list[Instruction]:
        self._asked = False
        if self.phase is not Phase.STEADY:
            return []
        said: list[Instruction] = []
        reason = offer.reason if offer.answered else "no agent answers; the job keeps its size"
        if reason and reason != self._reason:
            said.append(Say(reason))
        self._reason = reason
        if offer.action == "none":
            return said
        if why := self._objection(offer):
            return [*said, RefuseResize(offer.epoch, why), Say(f"a resize is refused: {why}", warning=True)]
        self.offer, self.phase = offer, Phase.ACCEPTING
        self._going = tuple(m for m in self.members if m.host not in set(offer.nodes))
        return [*said, AcceptResize(offer.epoch)]

    def _objection(self, offer: Offered) -> str:
        """Why this resize must not be done, or ""."""
        now, then = {m.host for m in self.members}, set(offer.nodes)
        if offer.epoch <= self.epoch:
            return f"epoch {offer.epoch} is over"
        if not sizes.reachable(len(now), len(then), self.plan.factor):
            return f"{len(then)} nodes cannot be reached from {len(now)} by factor {self.plan.factor}"
        if offer.action == "shrink":
            if not then < now:
                return "a shrink to nodes that the job does not have"
            if not {m.host for m in self.base} <= then:
                return "the base's own nodes are never given back"
            return ""
        if not now < then:
            return "a growth that does not keep the job's nodes"
        if len(then) > self.plan.maximum:
            return f"{len(then)} nodes are more than the maximum of {self.plan.maximum}"
        if not offer.companion:
            return "an elastic job grows by companions only, and `malleable.backend` is set to merge"
        return ""

    def _accepted(self, ok: bool, now: float) -> list[Instruction]:
        if not ok:  # its answer may be lost alone: then the agent must hear that nothing happens
            self.phase = Phase.STEADY
            return [RefuseResize(self.offer.epoch, "no answer to accept arrived in time, or it was withdrawn")]
        self._begun = now
        if not self.plan.notify:
            return self._resize(now)
        self.phase = Phase.NOTIFYING
        return [Notify("grow" if self.grows else "shrink", self.moving)]

    def _notified(self, ok: bool, why: str, now: float) -> list[Instruction]:
        if ok or not self.grows:
            said: list[Instruction] = [] if ok else [Say(f"the notification of a shrink failed: {why}", warning=True)]
            return said + self._resize(now)
        return self._refuse(f"the notification command refused: {why}", now)

    def _refuse(self, why: str, now: float) -> list[Instruction]:
        self.phase, self._next = Phase.STEADY, now + self.plan.interval
        what = "a growth" if self.grows else "a shrink"
        return [RefuseResize(self.offer.epoch, why), Say(f"{what} is given up: {why}", warning=True)]

    def _finish(self, now: float) -> list[Instruction]:
        """The resize has taken place: `members` are those of the new size."""
        before = len(self.members) + (-len(self.moving) if self.grows else len(self.moving))
        self.epoch, self.phase, self._tells = self.offer.epoch, Phase.FINISHING, 1
        seconds = now - self._begun
        text = f"{before} -> {len(self.members)} nodes in {seconds:.1f} s: {','.join(m.host for m in self.moving)}"
        return [Say(f"{'grown' if self.grows else 'shrunk'} {text}"), self._finished(now)]

    def _finished(self, now: float) -> FinishResize:
        return FinishResize(self.epoch, tuple(m.host for m in self.members), now - self._begun)

    def _heard(self, ok: bool, now: float) -> list[Instruction]:
        if not ok and self._tells < _TELLS:
            self._tells += 1
            return [self._finished(now)]
        # If it was lost for good, the next question tells, by its epoch and nodes.
        self.phase, self._next = Phase.STEADY, now
        return []

    @property
    def grows(self) -> bool:
        """Whether the resize on offer is a growth."""
        return self.offer.action == "expand"

    @property
    def moving(self) -> tuple[ElasticNode, ...]:
        """The nodes that come or go with the resize on offer."""
        if self.grows:
            base = {m.host for m in self.base}
            held = {m.host for m in self.members if m.job != self.offer.companion} | base
            return tuple(ElasticNode(host, self.offer.companion) for host in self.offer.nodes if host not in held)
        return self._going

    def _go_on_with(self, members: tuple[ElasticNode, ...]) -> None:
        """The others are of no use any more, and nobody has asked for them: the agent hears of it with the next
        question, and gives them back."""
        self._dropped |= {m.job for m in self.members} - {m.job for m in members}
        self.members = members

    @property
    def companions(self) -> frozenset[int]:
        """Jobs that may still hold nodes for this one."""
        found = {m.job for m in (*self.members, *self.moving)} | self._dropped
        return frozenset(found - {m.job for m in self.base})

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self, code: int, now: float, why: str = "") -> list[Instruction]:
        self.phase, self._code = Phase.ENDING, code
        self._deadline = now + min(self.plan.grace, _LAST_WORDS)
        said: list[Instruction] = [Say(why, warning=code != 0)] if why else []
        running = self._running()
        return [*said, *([Signal(running)] if running else []), *self._over(now)]

    def _running(self) -> tuple[ElasticNode, ...]:
        known = {m.host: m for m in (*self.moving, *self.members)}
        return tuple(known.get(host, ElasticNode(host, self.base[0].job)) for host in sorted(self.alive))

    def _over(self, now: float) -> list[Instruction]:
        """What is left to do at the end."""
        late = now - self._deadline
        if self.alive and late < _AFTER_KILL:
            return [KillNodes(self._running())] if late >= 0 else []
        self.phase = Phase.OVER
        return [Exit(self._code)]
