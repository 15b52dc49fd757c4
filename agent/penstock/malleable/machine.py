"""One resize of one job, from the decision to the end, as a machine without I/O (paper 003, section 5.2).

    grow    IDLE -> ALLOCATING -granted-> MERGING -merged-> OFFERED -accept-> RESIZING -done-> IDLE
                        |failed              |refused          |deadline, refusal   |it did not
                        v                    v                 v                    v
                     CLEANING <--------------+            GIVING_BACK <-------------+      both end in IDLE

    shrink  IDLE -> PROPOSED -accept-> LEAVING -done-> RELEASING -steps gone, nodes returned-> IDLE
                        |no longer wanted, refusal
                        v
                      IDLE

An expansion is granted by Slurm before the application hears of it; a shrink is confirmed by the application before
Slurm hears of it. Three numbers are kept apart: `target` (desired), the job's nodes in the snapshot (granted) and
`nodes` (observed: where the ranks run).

`MalleableJob` is the whole state, written to the store before the instructions that came with it are carried out.
Each method returns the next state and the instructions; called again with the same facts it asks for nothing new that
would do harm, which is what makes a restart after a kill safe. Whatever the application says carries the epoch of the
resize it speaks of.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from penstock.api import Job, Offer, ResizeVerdict, Step

__all__ = [
    "Allocate",
    "AskSteps",
    "CancelResizer",
    "Deadlines",
    "Instruction",
    "MalleableJob",
    "Merge",
    "Phase",
    "Shrink",
]


class Phase(StrEnum):
    """Where a resize stands."""

    IDLE = "idle"
    ALLOCATING = "allocating"
    MERGING = "merging"
    CLEANING = "cleaning"
    OFFERED = "offered"
    RESIZING = "resizing"
    GIVING_BACK = "giving-back"
    PROPOSED = "proposed"
    LEAVING = "leaving"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Allocate:
    """Ask Slurm for `nodes` nodes under the unique `name`, to be merged into `job`; `time_limit` in seconds."""

    job: int
    name: str
    nodes: int
    time_limit: float


@dataclass(frozen=True, slots=True)
class Merge:
    """Move the nodes of `resizer` into `job`."""

    resizer: int
    job: int


@dataclass(frozen=True, slots=True)
class Shrink:
    """Keep only these nodes of `job`."""

    job: int
    keep: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CancelResizer:
    """Find the allocation with this name and cancel it, whatever its state."""

    job: int
    name: str


@dataclass(frozen=True, slots=True)
class AskSteps:
    """Look at the running steps of `job` and come back with `steps_seen`."""

    job: int


Instruction = Allocate | Merge | Shrink | CancelResizer | AskSteps


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds: how long a grant may take, how long the application may take to accept it, and the rest between resizes.

    `resize` is how long the application may take to resize once it has accepted before the agent looks whether it still
    does. `settle` is how long a lost request may still surface in Slurm after the agent was killed while sending it.
    `regrow` is how long a job does not grow after it gave nodes back: a step that starts on such a node within the same
    second is refused by slurmd ("Job credential revoked"), and MPICH's mpiexec then ends the whole application.
    """

    grant: float = 40.0
    accept: float = 120.0
    resize: float = 600.0
    cooldown: float = 10.0
    settle: float = 5.0
    regrow: float = 5.0


@dataclass(frozen=True, slots=True)
class MalleableJob:
    """A registered job and its resize. `epoch` numbers the resizes; `marks` are the current one's instants.

    `origin` and `target` are its sizes in processes, before and after. `started` is the job's start: a requeued job, or
    another one of the same number, has another. `accepted_at` is the sender's clock when it accepted: what it sent
    before and arrives later is old.
    """

    job: int
    uid: int
    offer: Offer
    nodes: tuple[str, ...]
    epoch: int = 0
    started: float | None = None
    accepted_at: float = 0.0
    phase: Phase = Phase.IDLE
    since: float = 0.0
    origin: int = 0
    target: int = 0
    target_nodes: tuple[str, ...] = ()
    resizer_name: str = ""
    resizer: int | None = None
    beneficiary: int | None = None
    marks: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""

    # -- what the application says -----------------------------------------------------------------------------------

    def checked(self, offer: Offer, epoch: int, now: float, sent: float = math.inf) -> MalleableJob:
        """A check: the offer is taken, and what it implies about a resize whose messages were lost."""
        if sent < self.accepted_at:
            return self
        me = replace(self, offer=offer)
        if epoch > me.epoch:  # the store was lost; the application knows better
            ahead = replace(me, epoch=epoch, nodes=offer.nodes or me.nodes, note="the application is ahead")
            return ahead._to(Phase.CLEANING, now) if me.resizer_name else ahead._idle(now, ahead.note)
        if me.phase in (Phase.RESIZING, Phase.LEAVING):
            if epoch == me.epoch and offer.size == me.target:
                return replace(me, offer=self.offer).done(epoch, {}, now)
            if epoch < me.epoch:  # it accepted, and goes on as before: it did not resize
                me = me.refused(me.epoch, "the application went on with its old size", now)
        if me.phase is Phase.IDLE:  # perhaps another program in the same job, started elsewhere or with another size
            return replace(me, nodes=offer.nodes or (me.nodes if offer.size == self.offer.size else ()))
        if offer.size == self.offer.size:
            return me
        return replace(me, offer=replace(offer, size=self.offer.size))

    def accepted(self, epoch: int, now: float, sent: float = 0.0) -> MalleableJob | None:
        """The application takes the resize up; None when this epoch is not on offer (any more)."""
        if epoch != self.epoch:
            return None
        if self.phase is Phase.OFFERED:
            return replace(self._to(Phase.RESIZING, now, accepted=now), accepted_at=sent)
        if self.phase is Phase.PROPOSED:
            return replace(self._to(Phase.LEAVING, now, accepted=now), accepted_at=sent)
        return self if self.phase in (Phase.RESIZING, Phase.LEAVING) else None

    def refused(self, epoch: int, why: str, now: float) -> MalleableJob:
        """The application will not, or could not."""
        if epoch != self.epoch:
            return self
        if self.phase in (Phase.OFFERED, Phase.RESIZING):
            return replace(self._to(Phase.GIVING_BACK, now), note=why)
        if self.phase in (Phase.PROPOSED, Phase.LEAVING):
            return self._idle(now, why)
        return self

    def done(self, epoch: int, timings: Mapping[str, float], now: float) -> MalleableJob:
        """The new ranks run and hold the data; the old ones have left or are leaving."""
        if epoch != self.epoch:
            return self
        offer = replace(self.offer, size=self.target, nodes=self.target_nodes)
        marks = {"done": now, **{f"app_{k}": v for k, v in timings.items()}}
        if self.phase is Phase.RESIZING:
            me = replace(self._to(Phase.IDLE, now, **marks), offer=offer, nodes=self.target_nodes, note="")
            return me._clear()
        if self.phase is Phase.LEAVING:
            return replace(self._to(Phase.RELEASING, now, **marks), offer=offer, nodes=self.target_nodes)
        return self

    def reply(self) -> tuple[str, int, tuple[str, ...]]:
        """What a check is answered: action, size, and the nodes the ranks shall run on."""
        if self.phase is Phase.OFFERED:
            return "expand", self.target, self.target_nodes
        if self.phase is Phase.PROPOSED:
            return "shrink", self.target, self.target_nodes
        return "none", self.offer.size, self.nodes

    # -- what the policy says ----------------------------------------------------------------------------------------

    def decided(self, verdict: ResizeVerdict, job: Job, name: str, limits: Deadlines, now: float) -> MalleableJob:
        """A verdict in IDLE starts a resize, in PROPOSED it may withdraw the one not yet accepted."""
        if self.phase is Phase.PROPOSED and verdict.size >= self.offer.size:
            return self._idle(now, "no longer wanted: " + verdict.reasons[0].text)
        if self.phase is not Phase.IDLE or verdict.size == self.offer.size:
            return self
        if self.since and now - self.since < limits.cooldown:
            return self
        if verdict.size > self.offer.size and now - self.marks.get("released", -math.inf) < limits.regrow:
            return self
        per_node = self.offer.per_node
        nodes = self.nodes or job.nodes
        if len(nodes) * per_node != self.offer.size or verdict.size % per_node:
            return replace(self, note="the ranks do not fill whole nodes")
        if set(nodes) != set(job.nodes):  # never touch nodes that may serve something else of the user's
            return replace(self, note="the ranks do not use all of the job's nodes")
        fresh = replace(self, epoch=self.epoch + 1, origin=self.offer.size, target=verdict.size, note="")
        fresh = replace(fresh, beneficiary=verdict.beneficiary, nodes=nodes)
        fresh = replace(fresh, marks=MappingProxyType({"decided": now}))
        if verdict.size > self.offer.size:
            return replace(fresh._to(Phase.ALLOCATING, now), resizer_name=name, resizer=None)
        survivors = fresh.nodes[: verdict.size // per_node]
        return replace(fresh._to(Phase.PROPOSED, now), target_nodes=survivors)

    # -- what Slurm says ---------------------------------------------------------------------------------------------

    def granted(self, resizer: int, now: float) -> MalleableJob:
        """Slurm granted the resizer's nodes."""
        if self.phase is not Phase.ALLOCATING:
            return self
        return replace(self._to(Phase.MERGING, now, granted=now), resizer=resizer)

    def grant_failed(self, why: str, now: float) -> MalleableJob:
        """No nodes, and the request is withdrawn or may still be on its way: make sure nothing is left of it."""
        return replace(self._to(Phase.CLEANING, now), note=why) if self.phase is Phase.ALLOCATING else self

    def merged(self, job: Job, now: float) -> MalleableJob:
        """The job has the nodes: offer them. `job` is read after the merge."""
        if self.phase is not Phase.MERGING:
            return self
        extra = tuple(n for n in job.nodes if n not in self.nodes)
        nodes = (*self.nodes, *extra)[: self.target // self.offer.per_node]
        if len(nodes) * self.offer.per_node < self.target:
            return replace(self._to(Phase.GIVING_BACK, now), note="fewer nodes than asked for arrived")
        return replace(self._to(Phase.OFFERED, now, merged=now), target_nodes=nodes)

    def merge_failed(self, why: str, now: float) -> MalleableJob:
        """Slurm refused the merge for good."""
        return replace(self._to(Phase.CLEANING, now), note=why) if self.phase is Phase.MERGING else self

    def resizer_gone(self, job: Job, limits: Deadlines, now: float) -> MalleableJob:
        """No resizer of this name is pending or running (any more)."""
        if self.phase is Phase.CLEANING and now - self.since >= limits.settle:
            if set(job.nodes) > set(self.nodes):  # it was merged after all
                return self._to(Phase.GIVING_BACK, now)
            return self._idle(now, self.note)
        return self

    def shrunk(self, now: float) -> MalleableJob:
        """Slurm has taken the nodes back."""
        if self.phase is Phase.RELEASING:
            return self._to(Phase.IDLE, now, released=now)._clear()
        if self.phase is Phase.GIVING_BACK:
            return replace(self, marks=MappingProxyType({**self.marks, "released": now}))._idle(now, self.note)
        return self

    def clear_beyond(self, keep: Collection[str], steps: Collection[Step]) -> bool:
        """Whether no step but batch and extern touches a node that is not in `keep`."""
        return all(set(s.nodes) <= set(keep) for s in steps if s.id not in ("batch", "extern"))

    # -- what to do now ----------------------------------------------------------------------------------------------

    def advance(self, job: Job, limits: Deadlines, now: float) -> tuple[MalleableJob, tuple[Instruction, ...]]:
        """The next state and what it needs done. Safe to repeat after a crash, as every instruction is."""
        me = self
        if me.phase is Phase.OFFERED and now - me.since > limits.accept:
            me = replace(me._to(Phase.GIVING_BACK, now), note="the application did not take the nodes up in time")
        if me.phase is Phase.PROPOSED and now - me.since > limits.accept:
            me = me._idle(now, "the application did not answer in time")
        match me.phase:
            case Phase.ALLOCATING:
                missing = me.target // me.offer.per_node - len(me.nodes)
                remaining = 60.0 if job.end is None else max(60.0, job.end - now)
                return me, (Allocate(me.job, me.resizer_name, missing, remaining),)
            case Phase.MERGING if me.resizer is not None:
                return me, (Merge(me.resizer, me.job),)
            case Phase.CLEANING:
                return me, (CancelResizer(me.job, me.resizer_name),)
            case Phase.GIVING_BACK:
                return me, (Shrink(me.job, me.nodes),)
            case Phase.RELEASING:
                return me, (AskSteps(me.job),)
            case Phase.RESIZING if now - me.since > limits.resize:
                return me, (AskSteps(me.job),)
            case _:
                return me, ()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _to(self, phase: Phase, now: float, **marks: float) -> MalleableJob:
        return replace(self, phase=phase, since=now, marks=MappingProxyType({**self.marks, **marks}))

    def _idle(self, now: float, note: str) -> MalleableJob:
        return replace(self._to(Phase.IDLE, now), note=note)._clear()

    def _clear(self) -> MalleableJob:
        return replace(self, resizer_name="", resizer=None, beneficiary=None, target=0, target_nodes=())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form for the store."""
        out: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        out["offer"] = {f.name: getattr(self.offer, f.name) for f in fields(Offer)}
        out["marks"] = dict(self.marks)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MalleableJob:
        """The inverse of `to_dict`."""
        offer = dict(data["offer"])
        offer["nodes"] = tuple(offer["nodes"])
        return cls(
            **{
                **data,
                "offer": Offer(**offer),
                "nodes": tuple(data["nodes"]),
                "target_nodes": tuple(data["target_nodes"]),
                "phase": Phase(data["phase"]),
                "marks": MappingProxyType(dict(data["marks"])),
            }
        )
