"""An administrator's choice: `throughput`, and of one owner's malleable jobs those with least work go first.

Many ends early make a short mean: who takes 500 node-seconds and stands behind one of 5,000 waits ten times as long as
it would hold that one up. On one machine shortest job first is the best order there is, and with malleable jobs, which
share the nodes as one machine, it is nearly so. What it costs is fairness: while short jobs keep coming, long ones
wait.

**How much work** a job is, is learned from jobs of the same kind that have run: an owner's programs with the same
limits (minimum, maximum, preferred size). It is the node-seconds of a run on the fewest nodes, in the mean of all runs
that were seen, by their own word (steps that are left, seconds of a step) and how long they had been running. A
pending job is taken for one of a kind when it asks for the nodes that `penstock sbatch` asks for it (minimum to
preferred size), or for minimum to maximum. Of an owner who has only one kind, and of jobs that look like none, nothing
is said: they stay where they are.

Works that differ by less than a quarter or so count as the same, because they are means. The core does the rest: it
puts a longer job back behind shorter ones *of the same owner*, once, by a nice value that the owner could have given
it, too. Others' jobs gain a place by it, and lose none. Sizes are those of `throughput`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.api import Offer, ResizeVerdict, Snapshot
from penstock.future.queue import waiting
from penstock_plugins.throughput import Throughput

__all__ = ["Shortest"]

_STEP: Final = math.log(1.25)
"""Works within such a factor have the same rank."""
_KINDS: Final = 10_000
"""Kinds that are remembered."""


class _Kind(NamedTuple):
    """An owner's jobs that ask for so many nodes."""

    uid: int
    fewest: int
    most: int


class _Work(NamedTuple):
    """Node-seconds of a run, in the mean of so many."""

    mean: float
    runs: int


class Shortest(Throughput):
    """See the module's text."""

    name = "shortest"

    def __init__(self) -> None:
        super().__init__()
        self._works: dict[_Kind, _Work] = {}
        self._seen: set[int] = set()

    def decide_all(self, offers: Sequence[Offer], snapshot: Snapshot) -> Mapping[int, ResizeVerdict]:
        """The sizes of `throughput`; meanwhile it learns."""
        verdicts = super().decide_all(offers, snapshot)
        self._seen &= {offer.job for offer in offers}
        for offer in offers:
            if offer.job not in self._seen and (work := self._work(offer, snapshot)) is not None:
                self._seen.add(offer.job)
                self._learn(offer, snapshot.jobs[offer.job].uid, work)
        return verdicts

    def ranks(self, snapshot: Snapshot) -> Mapping[int, int]:
        """Pending jobs of known kinds by their work (see `RanksQueue`)."""
        found: dict[int, int] = {}
        for partition in snapshot.partitions:
            for job in waiting(snapshot, partition):
                work = self._works.get(_Kind(job.uid, job.least_nodes, job.num_nodes))
                if work is not None:
                    found[job.id] = math.floor(math.log(max(work.mean, 1.0)) / _STEP)
        return found

    def _work(self, offer: Offer, snapshot: Snapshot) -> float | None:
        """Node-seconds of the whole run on the fewest nodes; None where the program does not say enough."""
        start = snapshot.jobs[offer.job].start
        if offer.steps_left is None or not offer.step_seconds or start is None:
            return None
        speeds = self._memory.speeds(offer.job)
        seconds = offer.steps_left * offer.step_seconds + max(snapshot.taken_at - start, 0.0)
        least = _nodes(offer.minimum, offer.per_node)
        return seconds * speeds.at(least * offer.per_node) / speeds.at(offer.size) * least

    def _learn(self, offer: Offer, uid: int, work: float) -> None:
        fewest = _nodes(offer.minimum, offer.per_node)
        most = {max(size // offer.per_node, fewest) for size in (offer.preferred or offer.maximum, offer.maximum)}
        for nodes in sorted(most):
            kind = _Kind(uid, fewest, nodes)
            before = self._works.pop(kind, _Work(0.0, 0))
            self._works[kind] = _Work((before.mean * before.runs + work) / (before.runs + 1), before.runs + 1)
            if len(self._works) > _KINDS:
                self._works.pop(next(iter(self._works)))


def _nodes(size: int, per_node: int) -> int:
    return -(-max(size, 1) // per_node)
