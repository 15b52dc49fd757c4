"""The state of one malleable job: what the store keeps, and what follows from it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from penstock.api import Job, Offer
from penstock.resize.running.words import Announcement, Companion, ResizePhase, Way

__all__ = ["ResizeState"]


@dataclass(frozen=True, slots=True)
class ResizeState:
    """A malleable job and its resize, as stored. `epoch` numbers the resizes; `marks` are the current one's instants.

    `origin` and `target` are its sizes in processes, before and after. `started` is the job's start: a requeued job, or
    another one of the same number, has another. `accepted_at` is the sender's clock when it accepted: what it sent
    before and arrives later is old. `start_size` is the size (processes) that the job's user chose its time limit for.
    `patience` is how long the grant under way may take, `ordered` the time limit of what is asked for (s). `extend` is
    the time limit that the job needs if a shrink takes place, and `owed` the one that it has earned by one, and Slurm
    is still to be told, while it has no more than `earned` nodes with its companions. `before` is the limit that it had
    when it was raised, until it was seen to be as small then (seconds; 0: none). `failures` counts the growths in a row
    that Slurm had granted and that came to nothing. `program` is `Offer.program`, once Slurm was asked for it.
    """

    job: int
    uid: int
    offer: Offer
    nodes: tuple[str, ...]
    epoch: int = 0
    started: float | None = None
    accepted_at: float = 0.0
    phase: ResizePhase = ResizePhase.IDLE
    since: float = 0.0
    origin: int = 0
    target: int = 0
    target_nodes: tuple[str, ...] = ()
    way: Way = Way.MERGE
    resizer_name: str = ""
    resizer: int | None = None
    companions: tuple[Companion, ...] = ()
    start_size: int = 0
    patience: float = 40.0
    extend: float = 0.0
    owed: float = 0.0
    earned: int = 0
    before: float = 0.0
    ordered: float = 0.0
    failures: int = 0
    beneficiary: int | None = None
    announced: Announcement | None = None
    marks: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""
    program: str = ""

    @property
    def told(self) -> Offer:
        """The offer with what the application does not say itself, as policies see it."""
        own = len(self.own) * self.offer.per_node
        base = min(self.start_size, own or self.start_size) if self.start_size else None
        return replace(self.offer, base=base, program=self.program)

    @property
    def own(self) -> tuple[str, ...]:
        """The nodes that are the job's own."""
        held = {n for c in self.companions for n in c.nodes}
        return tuple(n for n in self.nodes if n not in held)

    @property
    def leaving(self) -> tuple[Companion, ...]:
        """In a shrink: the companions that are to be given back."""
        return tuple(c for c in self.companions if not set(c.nodes) & set(self.target_nodes))

    def lives_in(self, job: Job) -> bool:
        """Whether this is the life of the job that is known, and not one after a requeue or under a reused number."""
        same = self.started is None or job.start is None or abs(self.started - job.start) < 1.0
        return self.job == job.id and self.uid == job.uid and same

    def splits(self, count: int) -> bool:
        """Whether the first `count` nodes can stay without the others: a companion stays or leaves as a whole."""
        stay = set(self.nodes[:count])
        return all(set(c.nodes) <= stay or not set(c.nodes) & stay for c in self.companions)

    # -- from state to state -----------------------------------------------------------------------------------------

    def _back_out(self, why: str, now: float) -> Self:
        """The added nodes are given back."""
        back = ResizePhase.GIVING_BACK if self.way is Way.MERGE else ResizePhase.CLEANING
        return replace(self._to(back, now), note=why, failures=self.failures + 1)

    def _to(self, phase: ResizePhase, now: float, **marks: float) -> Self:
        return replace(self, phase=phase, since=now, marks=MappingProxyType({**self.marks, **marks}))

    def _idle(self, now: float, note: str) -> Self:
        return replace(self._to(ResizePhase.IDLE, now), note=note)._clear()

    def _clear(self) -> Self:
        me = replace(self, resizer_name="", resizer=None, beneficiary=None, target=0, target_nodes=())
        me = replace(me, extend=0.0, ordered=0.0)
        # An announcement is good for one attempt.
        return replace(me, way=Way.MERGE, announced=None if "announced" in me.marks else me.announced)

    # -- the store ---------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form for the store."""
        return asdict(replace(self, marks=dict(self.marks)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; what an older release did not know has its default.

        Up to 0.1.0 a limit was owed as soon as a shrink was accepted: it is owed no longer, but needed if that comes.
        And `requests_nodes` of the offer was `errands`.
        """
        announced = data.get("announced")
        offer = dict(data["offer"])
        if "errands" in offer:
            offer.setdefault("requests_nodes", offer.pop("errands"))
        read = {
            "offer": Offer(**{**offer, "nodes": tuple(offer["nodes"])}),
            "nodes": tuple(data["nodes"]),
            "target_nodes": tuple(data["target_nodes"]),
            "phase": ResizePhase(data["phase"]),
            "way": Way(data.get("way", Way.MERGE)),
            "companions": tuple(Companion(**{**c, "nodes": tuple(c["nodes"])}) for c in data.get("companions", ())),
            "announced": announced and Announcement(**announced),
            "marks": MappingProxyType(dict(data["marks"])),
        }
        me = cls(**{**data, **read})
        if "earned" in data or not me.owed:
            return me
        if me.phase is ResizePhase.IDLE and "released" in me.marks:
            return replace(me, earned=len(me.nodes))
        return replace(me, owed=0.0, extend=0.0 if me.phase is ResizePhase.IDLE else me.owed)
