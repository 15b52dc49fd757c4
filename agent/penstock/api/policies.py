"""Decisions with their reasons, and the Protocols of policies. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, TypeGuard, runtime_checkable

from penstock.api.cluster import Snapshot
from penstock.api.jobs import Job

__all__ = [
    "Decision",
    "JointPolicy",
    "Offer",
    "RanksQueue",
    "Reason",
    "ResizePolicy",
    "ResizeVerdict",
    "Verb",
    "is_joint",
]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a stable `code` for machines and tests, a sentence for people."""

    code: str
    text: str


class Verb(StrEnum):
    """What the agent can decide to do."""

    SUBMIT = "submit"
    ADOPT = "adopt"
    RELEASE = "release"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    CHANGE = "change"
    RESERVE = "reserve"
    UNRESERVE = "unreserve"
    EXPAND = "expand"
    SHRINK = "shrink"
    NOTHING = "nothing"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing the agent decided about one subject ("job 12", "workflow 3/align"), with everything that led to it."""

    verb: Verb
    subject: str
    reasons: tuple[Reason, ...]
    details: Mapping[str, str | int | float | None] = field(default_factory=lambda: MappingProxyType({}))

    def because(self, code: str, text: str) -> Decision:
        """The same decision with one more reason."""
        return replace(self, reasons=(*self.reasons, Reason(code, text)))

    def rewritten(self, verb: Verb, code: str, text: str) -> Decision:
        """Another verb in its place (a cap, a budget, a dry run), keeping the history of reasons."""
        return replace(self, verb=verb, reasons=(*self.reasons, Reason(code, text)))


@dataclass(frozen=True, slots=True)
class Offer:
    """What a malleable application says of itself at a check (DMR paper, section 5.1); sizes are processes.

    `factor` f >= 2 makes current * f**k and current / f**k reachable within [minimum, maximum]; 1 makes any size so.
    `nodes` are by rank, () where not said: a shrink keeps the first `size // per_node`, and frees the rest. `method`,
    `companion`, `requests_nodes`, `leaves_within`, `steps_left` and `step_seconds` are `dmr.wire.Check`'s.

    Not from the application: `target` is the size that a resize under way gives it, or its own size while it may not be
    resized again yet, None when a policy may choose; `coming`: for how many idle nodes that resize still waits. `base`:
    its size without the nodes that it was given since it began, which it can always go back to. `program` is the same
    word for all runs of one program, and begins with `?` where only the job's name tells ("": not known yet).
    """

    job: int
    size: int
    minimum: int
    maximum: int
    factor: int = 1
    preferred: int | None = None
    per_node: int = 1
    nodes: tuple[str, ...] = ()
    method: str = "replace"
    companion: bool = False
    steps_left: int | None = None
    step_seconds: float | None = None
    target: int | None = None
    coming: int = 0
    requests_nodes: bool = False
    leaves_within: float | None = None
    base: int | None = None
    program: str = ""

    @property
    def shortest_loan(self) -> float | None:
        """Seconds, whole minutes, for which nodes must be free to be lent to it: five times what it takes to leave
        them. None: it is to have them as long as its job may run."""
        return None if self.leaves_within is None else 60.0 * math.ceil(5.0 * max(self.leaves_within, 1.0) / 60.0)

    def reachable(self) -> tuple[int, ...]:
        """The sizes the job can be resized to, ascending, without its own; only those that fill whole nodes."""
        if self.factor == 1:
            first = -(-max(self.minimum, 1) // self.per_node) * self.per_node
            sizes = set(range(first, self.maximum + 1, self.per_node))
        else:
            sizes = set()
            up = self.size * self.factor
            while up <= self.maximum:
                sizes.add(up)
                up *= self.factor
            down = self.size
            while down % self.factor == 0 and down // self.factor >= 1:
                down //= self.factor
                sizes.add(down)
        return tuple(
            sorted(
                s
                for s in sizes
                if s != self.size and self.minimum <= s <= self.maximum and s >= 1 and s % self.per_node == 0
            )
        )


@dataclass(frozen=True, slots=True)
class ResizeVerdict:
    """A policy's answer for one job: the size in processes it should have, and why. Its current size means no action.

    `beneficiary` is the pending job that a shrink is meant for.
    """

    size: int
    reasons: tuple[Reason, ...]
    beneficiary: int | None = None


class ResizePolicy(Protocol):
    """Decides whether a running malleable job should grow or shrink. One policy, one file.

    Found by the entry point `penstock.policies`.

    Called once per pass and job with a usable snapshot only; must be fast, without I/O and clock, and decide by what
    it is shown (it may remember what it was shown before). The core owns everything else: it checks that the size is
    reachable, that the nodes are idle, cool-downs and deadlines, and it records the reasons whatever they are. A
    complete policy that never does anything:

        class Noop:
            '''Leaves every job as it is.'''

            name = "noop"

            def decide(self, offer, job, snapshot):
                return ResizeVerdict(offer.size, (Reason("noop", "this policy never resizes"),))

    A policy that weighs jobs against each other is a `JointPolicy` instead.
    """

    name: str

    def decide(self, offer: Offer, job: Job, snapshot: Snapshot) -> ResizeVerdict:
        """The size that `job`, which made `offer`, should have in the situation of `snapshot`."""
        ...


class JointPolicy(Protocol):
    """Decides for all malleable jobs at once: the other form of a policy, found by the same entry point.

    Called once per pass with the offers of all running malleable jobs. Those with a `target` cannot be decided about:
    they are there to be counted. A job without a verdict stays as it is. Several jobs may shrink for one beneficiary.
    """

    name: str

    def decide_all(self, offers: Sequence[Offer], snapshot: Snapshot) -> Mapping[int, ResizeVerdict]:
        """The verdicts by job number."""
        ...


@runtime_checkable
class RanksQueue(Protocol):
    """A policy that also says in which order an owner's own jobs should be served.

    An administrator chooses it: the queue's order is otherwise nobody's to change. The core puts a job back behind
    others of the same owner that have a lower rank, by a nice value, as the owner could; each once at most, and behind
    nobody else's and none without a rank. Nobody's job is put ahead of its place.
    """

    def ranks(self, snapshot: Snapshot) -> Mapping[int, int]:
        """By number of pending jobs; the lowest first, and of the same rank in the queue's order. Jobs that are left
        out stay where they are, and nobody is put back for them."""
        ...


def is_joint(policy: ResizePolicy | JointPolicy) -> TypeGuard[JointPolicy]:
    """Which form a policy has."""
    return hasattr(policy, "decide_all")
