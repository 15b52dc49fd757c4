"""An administrator's choice: of an owner's malleable jobs those with least work go first, on sizes that end most early.

Many ends early make a short mean: who takes 500 node-seconds and stands behind one of 5,000 waits ten times as long as
it would hold that one up. On one machine shortest job first is the best order there is, and with malleable jobs, which
share the nodes as one machine, it is nearly so. What it costs is fairness: while short jobs keep coming, long ones
wait.

**The order.** How much work a pending job is, is learned from jobs of the same kind that have run (`kinds`): an
owner's programs with the same limits. Of an owner who has only one kind, and of jobs that look like none, nothing is
said: they stay where they are. Works that differ by less than a quarter or so count as the same, because they are
means. The core does the rest: it puts a longer job back behind shorter ones *of the same owner*, once, by a nice value
that the owner could have given it, too. Others' jobs gain a place by it, and lose none.

**Sizes.** While others wait, a node has a price, and each job one size that is best at it. Which price is best is found
in each pass by playing all that run and wait through to their ends at several prices (`future.rollout`); that with the
least sum of ends counts. Jobs shrink to their best size and no further (to the preferred size in any case), as
in `throughput` only for one that waits and that Slurm's plan gives those nodes to: to that one's own best size, or at
least half of it. A job whose speed is known on one size only is shrunk as by `throughput`, and all grow as there.

All in the queue count alike in that sum, malleable or not, whoever owns them. How long those take that are not
malleable is not known: their time limits, by the part of them that their owner's jobs have used. Of those who wait, the
first 500 are played.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from penstock.api import Job, Offer, ResizeVerdict, Snapshot
from penstock.future.members import Member, members_of, room_for
from penstock.future.queue import waiting
from penstock.future.rollout import PlayedJob, price, total
from penstock_plugins.kinds import Kinds
from penstock_plugins.throughput import Throughput, ThroughputPool

__all__ = ["Shortest"]

_STEP: Final = math.log(1.25)
"""Works within such a factor have the same rank."""
_DEARNESSES: Final = tuple(0.15 * 1.5**k for k in range(9))
"""What is tried: from where hardly anybody shrinks to where all do."""
_FIRST: Final = 5
"""The one to begin with: about 1, as by `future.rollout`."""
_PLAYED: Final = 500
"""Waiting jobs that are played through."""


class Shortest(Throughput):
    """See the module's text."""

    name = "shortest"

    def __init__(self) -> None:
        super().__init__()
        self._kinds = Kinds()
        self._places: dict[str, int] = {}  # the last dearness, by partition

    def decide_all(self, offers: Sequence[Offer], snapshot: Snapshot) -> Mapping[int, ResizeVerdict]:
        """The sizes that all of these jobs should have now; meanwhile it learns."""
        groups = members_of(self.memory, offers, snapshot)
        self._kinds.learn(chain(*groups.values()), snapshot)
        verdicts: dict[int, ResizeVerdict] = {}
        for partition, members in groups.items():
            price = self._price(partition, members, snapshot)
            verdicts |= _Priced(partition, members, snapshot, self._kinds, price).verdicts()
        return verdicts

    def ranks(self, snapshot: Snapshot) -> Mapping[int, int]:
        """Pending jobs of known kinds by their work (see `RanksQueue`)."""
        found: dict[int, int] = {}
        for partition in snapshot.partitions:
            for job in waiting(snapshot, partition):
                if (work := self._kinds.work(job)) is not None:
                    found[job.id] = math.floor(math.log(max(work, 1.0)) / _STEP)
        return found

    def _price(self, partition: str, members: Sequence[Member], snapshot: Snapshot) -> float:
        """What a node is worth for a second, in seconds of one job."""
        jobs = waiting(snapshot, partition)[:_PLAYED]
        if not jobs:
            return 0.0
        queue = [self._kinds.pending(job) for job in self._served(jobs)]
        running = self._running(partition, members, snapshot)
        nodes = len(snapshot.idle_nodes(partition)) + sum(load.nodes for load in running)
        last = self._places.get(partition, _FIRST)
        places = sorted(range(len(_DEARNESSES)), key=lambda place: abs(place - last))
        ends = {place: total(running, queue, nodes, _DEARNESSES[place]) for place in places}
        self._places[partition] = best = min(places, key=lambda place: ends[place])
        return price(_DEARNESSES[best], len(running) + len(queue), nodes)

    def _served(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """These jobs in the order in which they will be served: each owner's known ones by their work, on the places
        that they have together."""
        works = {job.id: work for job in jobs if (work := self._kinds.work(job)) is not None}
        lines: dict[int, list[Job]] = {}
        for job in sorted((job for job in jobs if job.id in works), key=lambda job: works[job.id], reverse=True):
            lines.setdefault(job.uid, []).append(job)
        for job in jobs:
            yield lines[job.uid].pop() if job.id in works else job

    def _running(self, partition: str, members: Sequence[Member], snapshot: Snapshot) -> list[PlayedJob]:
        found = [self._kinds.running(m) for m in members]
        mine = {node for m in members for node in (m.offer.nodes or m.job.nodes)}
        within = set(snapshot.partitions[partition].nodes) - mine
        for job in snapshot.jobs.values():
            if job.state.holds_nodes and (nodes := len(within.intersection(job.nodes))):
                found.append(self._kinds.rigid(job, nodes, snapshot.taken_at))
        return found


class _Priced(ThroughputPool):
    """The malleable jobs of one partition, where a node has a price."""

    def __init__(
        self, partition: str, members: Sequence[Member], snapshot: Snapshot, kinds: Kinds, price: float
    ) -> None:
        super().__init__(partition, members, snapshot)
        self._kinds, self._price = kinds, price
        self._floors = {m.offer.job: self._floor(m) for m in members if m.speeds.known}

    def _floor(self, m: Member) -> int:
        """The fewest nodes that it is left with for others."""
        best = self._kinds.running(m).best(self._price)
        return best if m.offer.preferred is None else min(best, m.nodes_of(m.offer.preferred))

    def _pays(self, m: Member, old: int, new: int, pending: Job, lacking: int, queue: int) -> bool:
        floor = self._floors.get(m.offer.job)
        if floor is None:
            return super()._pays(m, old, new, pending, lacking, queue)
        return m.nodes_of(new) >= floor

    def _steps(self, pending: Job, queue: int) -> dict[int, int]:
        """As there, but with room for the size that is best for `pending`, or most of what there is of that."""
        load = self._kinds.pending(pending)
        best = max(min(load.best(self._price), load.start or load.most), pending.least_nodes)
        lacking = pending.least_nodes - self._plan.idle(self._snapshot.taken_at)

        def cost(m: Member, old: int, new: int) -> float | None:
            return m.later(old, new) if self._pays(m, old, new, pending, lacking, queue) else None

        for nodes in range(best, max(-(-best // 2), pending.least_nodes) - 1, -1):
            if found := room_for(pending, self._free, self._plan, cost, nodes):
                return found
        return {}
