"""One resize of one job, from the decision to the end, as a machine without I/O (DMR paper, section 5.2).

    grow    IDLE -> ALLOCATING -granted-> MERGING -merged-> OFFERED -accept-> RESIZING -done-> IDLE
                        |failed              |refused          |deadline, refusal   |it did not
                        v                    v                 v                    v
                     CLEANING <--------------+            GIVING_BACK <-------------+      both end in IDLE

    grow by a companion: JOINING in the place of MERGING, CLEANING in that of GIVING_BACK

    shrink  IDLE -> PROPOSED -accept-> LEAVING -done-> RELEASING -steps gone, nodes returned-> IDLE
                        |no longer wanted, refusal
                        v
                      IDLE

An expansion is granted by Slurm before the application hears of it; a shrink is confirmed by the application before
Slurm hears of it. Three numbers are kept apart: `target` (desired), the job's nodes in the snapshot (granted) and
`nodes` (observed: where the ranks run, the job's own nodes and those that companions hold for it).

`MalleableJob` is the whole state, written to the store before the instructions that came with it are carried out.
Each method returns the next state and the instructions; called again with the same facts it asks for nothing new that
would do harm, which is what makes a restart after a kill safe. Whatever the application says carries the epoch of the
resize it speaks of.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from penstock.api import Job, JobState, Offer, ResizeVerdict, Step
from penstock.resize.running.state import ResizeState
from penstock.resize.running.words import (
    Allocate,
    Answer,
    AskSteps,
    CancelResizer,
    Companion,
    Confirm,
    Deadlines,
    Extend,
    Instruction,
    LookAt,
    Merge,
    ResizePhase,
    ResizeTerms,
    Shrink,
    Way,
)
from penstock.values.backoff import backoff

__all__ = ["MalleableJob"]

_SLURMS_OWN = ("batch", "extern")
_LONGEST_REST = 3600.0
_STARTING = "starting"
_USUAL = ResizeTerms()


class MalleableJob(ResizeState):
    """What happens to a job and what it then needs; the state is `ResizeState`'s."""

    __slots__ = ()

    @classmethod
    def registered(cls, job: Job, offer: Offer, epoch: int) -> MalleableJob:
        """A job whose application checks for the first time."""
        nodes = offer.nodes or job.nodes
        return cls(job.id, job.uid, offer, nodes, epoch, started=job.start, start_size=offer.size)

    # -- what the application says -----------------------------------------------------------------------------------

    def checked(self, offer: Offer, epoch: int, now: float, sent: float = math.inf, starting: int = 0) -> MalleableJob:
        """A check: the offer is taken, and what it implies about a resize whose messages were lost. `starting`: the
        application goes on, and has new processes started for that epoch."""
        if sent < self.accepted_at:
            return self
        me = replace(self, offer=offer)
        if starting == me.epoch and me._open and _STARTING not in me.marks:
            me = replace(me, marks=MappingProxyType({**me.marks, _STARTING: now}))
        if offer.maximum != self.offer.maximum:  # what hindered it to grow may be over
            me = replace(me, failures=0)
        if epoch > me.epoch:  # the store was lost; the application knows better
            ahead = replace(
                me, epoch=epoch, nodes=offer.nodes or me.nodes, note="the application has resized since", owed=0.0
            )
            return ahead._to(ResizePhase.CLEANING, now) if me.resizer_name else ahead._idle(now, ahead.note)
        if me.phase in (ResizePhase.RESIZING, ResizePhase.LEAVING):
            if epoch == me.epoch and offer.size == me.target:
                return replace(me, offer=self.offer).done(epoch, {}, now)
            if epoch < me.epoch:  # it accepted, and goes on as before: it did not resize
                me = me.refused(me.epoch, "the application went on with its old size", now)
        if me.phase is ResizePhase.IDLE:
            return me._located(offer.nodes or (me.nodes if offer.size == self.offer.size else ()), now)
        if offer.size == self.offer.size:
            return me
        return replace(me, offer=replace(offer, size=self.offer.size))

    def _located(self, nodes: tuple[str, ...], now: float) -> MalleableJob:
        """Where the ranks run, between resizes. It may be another program in the same job, started elsewhere or with
        another size: a companion that it does not use is given back."""
        if nodes == self.nodes:
            return self
        me = replace(self, nodes=nodes)
        unused = [c for c in me.companions if nodes and not set(c.nodes) & set(nodes)]
        if not unused:
            return me
        me = replace(me, origin=me.offer.size, target=me.offer.size, target_nodes=nodes)
        return replace(me, note="no rank runs on a companion's nodes", marks=_EMPTY)._to(ResizePhase.RELEASING, now)

    def accepted(self, epoch: int, now: float, sent: float = 0.0) -> MalleableJob | None:
        """The application takes the resize up; None when this epoch is not on offer (any more)."""
        if epoch != self.epoch:
            return None
        if self.phase is ResizePhase.OFFERED:
            return replace(self._to(ResizePhase.RESIZING, now, accepted=now), accepted_at=sent)
        if self.phase is ResizePhase.PROPOSED:
            return replace(self._to(ResizePhase.LEAVING, now, accepted=now), accepted_at=sent)
        return self if self.phase in (ResizePhase.RESIZING, ResizePhase.LEAVING) else None

    def refused(self, epoch: int, why: str, now: float) -> MalleableJob:
        """The application will not, or could not."""
        if epoch != self.epoch:
            return self
        if self.phase in (ResizePhase.OFFERED, ResizePhase.RESIZING):
            return self._back_out(why, now)
        if self.phase in (ResizePhase.PROPOSED, ResizePhase.LEAVING):
            return self._idle(now, why)
        return self

    def done(self, epoch: int, timings: Mapping[str, float], now: float) -> MalleableJob:
        """The new ranks run and hold the data; the old ones have left or are leaving."""
        if epoch != self.epoch or self.phase not in (ResizePhase.RESIZING, ResizePhase.LEAVING):
            return self
        # How long its steps take now, it says with the next check; what it said is about the size before.
        offer = replace(self.offer, size=self.target, nodes=self.target_nodes, step_seconds=None)
        marks = {"done": now, **{f"app_{k}": v for k, v in timings.items()}}
        if self.phase is ResizePhase.LEAVING:
            return replace(self._to(ResizePhase.RELEASING, now, **marks), offer=offer, nodes=self.target_nodes)
        me = replace(
            self._to(ResizePhase.IDLE, now, **marks), offer=offer, nodes=self.target_nodes, note="", failures=0
        )
        if self.way is Way.COMPANION and self.resizer is not None:
            since = self.marks.get("joined", now)
            added = self.target_nodes[len(self.nodes) :]
            new = Companion(self.resizer_name, self.resizer, added, since, self.marks.get("until"))
            me = replace(me, companions=(*self.companions, new))
        return me._clear()

    def reply(self) -> Answer:
        """What a check is answered."""
        if self.phase is ResizePhase.OFFERED:
            companion = (self.resizer or 0) if self.way is Way.COMPANION else 0
            return Answer("expand", self.target, self.target_nodes, companion)
        if self.phase is ResizePhase.PROPOSED:
            return Answer("shrink", self.target, self.target_nodes)
        return Answer("none", self.offer.size, self.nodes)

    # -- what the policy says ----------------------------------------------------------------------------------------

    def decided(
        self,
        verdict: ResizeVerdict,
        job: Job,
        name: str,
        limits: Deadlines,
        now: float,
        terms: ResizeTerms = _USUAL,
    ) -> MalleableJob:
        """A verdict in IDLE starts a resize, in PROPOSED it may withdraw the one not yet accepted. `name` is what the
        allocation is called by which it grows."""
        if self.phase is ResizePhase.PROPOSED and verdict.size >= self.offer.size:
            return self._idle(now, "no longer wanted: " + verdict.reasons[0].text)
        if self.phase is not ResizePhase.IDLE or verdict.size == self.offer.size:
            return self
        if (self._rests(limits, now) and not terms.due) or self.owed or self.before:
            return self
        fresh = 0 <= now - self.marks.get("released", -math.inf) < limits.regrow
        if verdict.size > self.offer.size and (fresh or self._failed_lately(limits, now)):
            return self
        per_node = self.offer.per_node
        me = self if self.nodes else replace(self, nodes=(*job.nodes, *(n for c in self.companions for n in c.nodes)))
        if len(me.nodes) * per_node != me.offer.size or verdict.size % per_node:
            return replace(self, note="the ranks do not fill whole nodes")
        if set(me.own) != set(job.nodes):  # never touch nodes that may serve something else of the user's
            return replace(self, note="the ranks do not use all of the job's nodes")
        me = replace(me, epoch=me.epoch + 1, origin=me.offer.size, target=verdict.size, note="", way=terms.way)
        marks = {
            "decided": now,
            **({"announced": now} if terms.announced else {}),
            **({"lent": now} if terms.loan else {}),
        }
        me = replace(me, beneficiary=verdict.beneficiary, extend=terms.extend, marks=MappingProxyType(marks))
        if verdict.size > me.offer.size:
            patience = limits.grant if terms.patience is None else terms.patience
            remaining = 60.0 if job.end is None else max(60.0, job.end - now)
            ordered = remaining if terms.loan is None else min(remaining, terms.loan)
            me = replace(me, resizer_name=name, resizer=None, patience=patience, ordered=ordered)
            return me._to(ResizePhase.ALLOCATING, now)
        return replace(me._to(ResizePhase.PROPOSED, now), target_nodes=me.nodes[: verdict.size // per_node])

    def offer_now(self, limits: Deadlines, now: float) -> Offer:
        """The offer as a policy that decides jointly sees it: with a target where it cannot be decided about."""
        offer, held = self.told, self._rests(limits, now) or bool(self.owed or self.before)
        if held or self.phase in (ResizePhase.CLEANING, ResizePhase.GIVING_BACK):
            return replace(offer, target=offer.size)
        if self.phase in (ResizePhase.IDLE, ResizePhase.PROPOSED):
            return replace(offer, maximum=offer.size) if self._failed_lately(limits, now) else offer
        return replace(offer, target=self.target, coming=self.missing if self.phase is ResizePhase.ALLOCATING else 0)

    @property
    def _open(self) -> bool:
        """Whether a resize is on offer."""
        return self.phase in (ResizePhase.OFFERED, ResizePhase.PROPOSED)

    @property
    def missing(self) -> int:
        """How many nodes it lacks for the size that it is to have."""
        return self.target // self.offer.per_node - len(self.nodes)

    def _rests(self, limits: Deadlines, now: float) -> bool:
        """Between two resizes, unless the application itself asks for the next one (DMR paper, 4.1)."""
        settled = self._content and self.phase is ResizePhase.IDLE and bool(self.since)
        return settled and 0 <= now - self.since < limits.cooldown

    def _failed_lately(self, limits: Deadlines, now: float) -> bool:
        """Not to be grown yet: each growth in a row that came to nothing doubles the rest, to an hour at most."""
        rest = backoff(limits.cooldown, self.failures, max(limits.cooldown, _LONGEST_REST))
        return self._content and self.failures > 0 and 0 <= now - self.since < rest

    @property
    def _content(self) -> bool:
        return self.offer.minimum <= self.offer.size <= self.offer.maximum

    # -- what Slurm says ---------------------------------------------------------------------------------------------

    def granted(self, resizer: int, now: float) -> MalleableJob:
        """Slurm granted the resizer's or the companion's nodes."""
        if self.phase is not ResizePhase.ALLOCATING:
            return self
        phase = ResizePhase.MERGING if self.way is Way.MERGE else ResizePhase.JOINING
        return replace(self._to(phase, now, granted=now), resizer=resizer)

    def grant_failed(self, why: str, now: float) -> MalleableJob:
        """No nodes, and the request is withdrawn or may still be on its way: make sure nothing is left of it."""
        return replace(self._to(ResizePhase.CLEANING, now), note=why) if self.phase is ResizePhase.ALLOCATING else self

    def not_asked(self, why: str, now: float) -> MalleableJob:
        """The request was not sent at all: it is no longer what was decided about, or the owner could not have it."""
        return self._idle(now, why) if self.phase is ResizePhase.ALLOCATING else self

    def merged(self, job: Job, now: float) -> MalleableJob:
        """The job has the nodes: offer them. `job` is read after the merge."""
        if self.phase is not ResizePhase.MERGING:
            return self
        extra = tuple(n for n in job.nodes if n not in self.nodes)
        nodes = (*self.nodes, *extra)[: self.target // self.offer.per_node]
        if len(nodes) * self.offer.per_node < self.target:
            return replace(self._to(ResizePhase.GIVING_BACK, now), note="fewer nodes than requested were added")
        return replace(self._to(ResizePhase.OFFERED, now, merged=now), target_nodes=nodes)

    def joined(self, companion: Job | None, now: float, *, trusted: bool = True) -> MalleableJob:
        """How the companion looks now: offer its nodes. Who is not `trusted` may have asked for a longer one than was
        ordered."""
        if self.phase is not ResizePhase.JOINING or (companion and companion.state is JobState.CONFIGURING):
            return self  # its nodes boot
        if companion is None or not companion.running:
            return self._back_out("the companion ended before its nodes were used", now)
        nodes = (*self.nodes, *companion.nodes)
        if len(nodes) * self.offer.per_node != self.target or len(set(nodes)) < len(nodes):
            return self._back_out("the companion does not have the nodes that were requested", now)
        longest = 60.0 * math.ceil(self.ordered / 60.0)
        if not trusted and self.ordered and (companion.time_limit is None or companion.time_limit > longest):
            return self._back_out("the companion has a longer time limit than requested", now)
        lent = {"until": companion.end} if "lent" in self.marks and companion.end is not None else {}
        return replace(self._to(ResizePhase.OFFERED, now, joined=now, **lent), target_nodes=nodes)

    def merge_failed(self, why: str, now: float) -> MalleableJob:
        """Slurm refused the merge for good."""
        return replace(self._to(ResizePhase.CLEANING, now), note=why) if self.phase is ResizePhase.MERGING else self

    def withdrawn(self, why: str, now: float) -> MalleableJob:
        """A growth that the application has not taken up is taken back, through no fault of the job."""
        match self.phase:
            case ResizePhase.ALLOCATING:
                return self.grant_failed(why, now)
            case ResizePhase.MERGING:
                return self.merge_failed(why, now)
            case ResizePhase.JOINING | ResizePhase.OFFERED:
                return replace(self._back_out(why, now), failures=self.failures)
            case _:
                return self

    def gone(self, name: str, job: Job, limits: Deadlines, now: float) -> MalleableJob:
        """No resizer or companion of this name is pending or running (any more)."""
        me = replace(self, companions=tuple(c for c in self.companions if c.name != name))
        if name != me.resizer_name or me.phase is not ResizePhase.CLEANING or now - me.since < limits.settle:
            return me
        if me.way is Way.MERGE and set(job.nodes) > set(me.own):  # it was merged after all
            return me._to(ResizePhase.GIVING_BACK, now)
        return me._idle(now, me.note)

    def lost(self, ended: Collection[int], now: float) -> MalleableJob:
        """These jobs have ended by themselves (time limit, failed node, scancel): what ran on a companion is dead.

        The application may go on or not; until it says where its ranks run now, it is left alone.
        """
        me = self
        returned = self.leaving if self.phase is ResizePhase.RELEASING else ()
        dead = {n for c in self.companions if c.job in ended and c not in returned for n in c.nodes}
        if dead:
            note = "a companion ended by itself; nothing runs on its nodes any more"
            me = replace(me, companions=tuple(c for c in me.companions if c.job not in ended), note=note)
            me = replace(me, nodes=_without(me.nodes, dead), target_nodes=_without(me.target_nodes, dead))
            if me.phase is ResizePhase.OFFERED:
                return me._back_out(note, now)
            if me.phase is ResizePhase.PROPOSED:
                return me._idle(now, note)
        used = me.way is Way.COMPANION and me.phase in (ResizePhase.OFFERED, ResizePhase.RESIZING)
        return me._back_out("the new companion ended by itself", now) if used and me.resizer in ended else me

    def shrunk(self, now: float) -> MalleableJob:
        """Slurm has taken the job's own nodes back."""
        if self.phase is ResizePhase.RELEASING:
            return self._released(now)
        if self.phase is ResizePhase.GIVING_BACK:
            return replace(self, marks=MappingProxyType({**self.marks, "released": now}))._idle(now, self.note)
        return self

    def _released(self, now: float) -> MalleableJob:
        """The shrink has come: what it earns is owed from now on."""
        me = replace(self, owed=self.extend, earned=len(self.nodes)) if self.extend else self
        return me._to(ResizePhase.IDLE, now, released=now)._clear()

    def raising(self, before: float) -> MalleableJob:
        """The limit is about to be raised from so many seconds; a repetition does not know any more from where."""
        return self if self.before else replace(self, before=before)

    def extended(self) -> MalleableJob:
        """Slurm knows the new time limit; whether the job is as small as then is still to be seen."""
        return replace(self, owed=0.0)

    def kept(self, why: str = "") -> MalleableJob:
        """The limit is what it shall be from now on: the raised one, or the old one, and then why."""
        return replace(self, owed=0.0, earned=0, before=0.0, note=why or self.note)

    def steps_seen(
        self, steps: Mapping[int, Sequence[Step]], limits: Deadlines, now: float
    ) -> tuple[MalleableJob, tuple[Instruction, ...]]:
        """The running steps of the jobs that were asked for: whether those who leave have left, or nobody came."""
        if self.phase is ResizePhase.RESIZING:
            if self.way is Way.COMPANION:
                nobody = self.resizer is not None and not _working(steps.get(self.resizer, ()))
            else:
                nobody = _within(steps.get(self.job, ()), self.own)
            return (self._back_out("no new rank is running", now) if nobody else self), ()
        if self.phase is not ResizePhase.RELEASING:
            return self, ()
        # The application has confirmed: what still hangs on a companion's nodes after so long does nothing any more.
        late = now - self.since > limits.resize
        free = [c for c in self.leaving if late or not _working(steps.get(c.job, ()))]
        if self.leaving:
            return self, tuple(CancelResizer(self.job, c.name) for c in free)
        clear = self.job in steps and _within(steps[self.job], self.own)
        return self, (Shrink(self.job, self.own),) if clear else ()

    # -- what to do now ----------------------------------------------------------------------------------------------

    def advance(self, job: Job, limits: Deadlines, now: float) -> tuple[MalleableJob, tuple[Instruction, ...]]:
        """The next state and what it needs done. Safe to repeat after a crash, as every instruction is."""
        me = self
        ahead = me.announced.at if me.announced else -math.inf
        since, patience = max(me.since, ahead), limits.accept
        if _STARTING in me.marks:  # it takes the resize up when its new processes are there
            since, patience = me.marks[_STARTING], limits.resize
        if me.phase is ResizePhase.OFFERED and now - since > patience:
            me = me._back_out("the application did not take the nodes up in time", now)
        if me.phase is ResizePhase.JOINING and now - me.since > limits.accept:
            me = me._back_out("the companion's nodes were not ready in time", now)
        if me.phase is ResizePhase.PROPOSED and now - since > patience:
            me = me._idle(now, "the application did not answer in time")
        # Without a shrink that was asked for, only companions are given back.
        returned = set(job.nodes) == set(me.own) or "done" not in me.marks
        if me.phase is ResizePhase.RELEASING and not me.leaving and returned:
            me = me._released(now)
        return me, me._needs(limits, now)

    def _needs(self, limits: Deadlines, now: float) -> tuple[Instruction, ...]:
        match self.phase:
            case ResizePhase.IDLE if self.owed:
                return (Extend(self.job, self.owed, self.earned),)
            case ResizePhase.IDLE if self.before:
                return (Confirm(self.job, self.before, self.earned),)
            case ResizePhase.ALLOCATING:
                return (Allocate(self.job, self.resizer_name, self.missing, self.ordered, self.way, self.patience),)
            case ResizePhase.MERGING if self.resizer is not None:
                return (Merge(self.resizer, self.job),)
            case ResizePhase.JOINING if self.resizer is not None:
                return (LookAt(self.resizer),)
            case ResizePhase.CLEANING:
                return (CancelResizer(self.job, self.resizer_name),)
            case ResizePhase.GIVING_BACK:
                return (Shrink(self.job, self.own),)
            case ResizePhase.RELEASING:
                return (AskSteps(tuple(c.job for c in self.leaving) or (self.job,)),)
            case ResizePhase.RESIZING if now - self.since > (
                limits.restart if self.offer.method == "restart" else limits.resize
            ):
                asked = self.resizer if self.way is Way.COMPANION and self.resizer is not None else self.job
                return (AskSteps((asked,)),)
            case _:
                return ()


_EMPTY: Mapping[str, float] = MappingProxyType({})


def _working(steps: Collection[Step]) -> bool:
    """Whether anything but what Slurm itself starts is among the steps."""
    return any(s.id not in _SLURMS_OWN for s in steps)


def _within(steps: Collection[Step], nodes: Collection[str]) -> bool:
    """Whether no step of an application touches another node."""
    return all(set(s.nodes) <= set(nodes) for s in steps if s.id not in _SLURMS_OWN)


def _without(nodes: tuple[str, ...], dead: Collection[str]) -> tuple[str, ...]:
    return tuple(n for n in nodes if n not in dead)
