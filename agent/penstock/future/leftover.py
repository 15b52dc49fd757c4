"""Which nodes are left over: those that a running job may have to its end, and nobody who waits starts later for it.

Two questions, in this order:

1. *Has Slurm had its turn?* Nodes that became free a moment ago belong to the queue. Whoever waits and could do with
   the nodes that are idle comes first, until Slurm has looked at both, the job and the nodes, and has left the job
   where it is. That takes a round of its scheduler (`turn_of`). An estimated start that is older than that says nothing
   about these nodes either, and is not believed (`Turns.believed`).
2. *What does the plan say?* Every job that waits is placed by priority, each where it can start first without moving
   those before it (`cluster.Cluster` says who waits for what). Nodes that nobody is given in this plan, from now to the
   end of the job that grows, are left over: with them taken, the same plan comes out again.

Never left over are nodes that are still being cleared (COMPLETING), that Slurm has planned for somebody (PLANNED), that
are reserved, and those that would have to be powered up. Planned ones may be lent until their turn comes: Slurm itself
gives them to whoever is done before. A program may give nodes back before its end; that it will is
no promise, so it does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.api import Job, Partition, Reason, Snapshot, plural
from penstock.future.cluster import TASKS, WAITS_FOR_NODES, Cluster, QueueEntry
from penstock.future.profile import place
from penstock.future.turns import Turns
from penstock.values.durations import duration_text

__all__ = ["LONGEST", "Leftover", "Room"]

LONGEST: Final = 200
"""Places in the queue, tasks of arrays included, that are planned for: twice what Slurm itself plans for by default
(bf_max_job_test). Those behind have no promised start."""


_ENDLESS: Final = 7 * 86400.0
_JOINS: Final = 20.0
"""Seconds of a loan that nobody computes in: until the nodes have joined, and while they leave."""


class Room(NamedTuple):
    """So many nodes are left over, and why there are no more; for so many seconds (None: to the job's end)."""

    nodes: int
    reason: Reason
    seconds: float | None = None


class Leftover:
    """What is left over in one picture (`Turns.believed`), partition by partition, worked out when it is asked for.

    A loan begins up to `grant` seconds from now (`turns.grant_of`): it is over so much before the nodes are needed.
    """

    def __init__(self, snapshot: Snapshot, turns: Turns, grant: float = 0.0) -> None:
        self._snapshot = snapshot
        self._turns = turns
        self._grant = grant
        self._groups = _groups(snapshot.partitions.values())
        self._found: dict[str, _Plan | Room] = {}

    def room(self, job: Job, shortest: float = math.inf) -> Room:
        """How many nodes of its partition a running job can be given for as long as it may run.

        Or, where that is more node time, for a while, whole minutes and `shortest` (s) at least: for a job that can
        leave nodes at any time. Who asks for nodes for no longer is given them by Slurm, and nobody starts later.
        """
        found = self._found.get(job.partition)
        if found is None:
            found = self._found[job.partition] = self._look(job.partition)
        return found if isinstance(found, Room) else found.room(job.end, shortest, self._grant)

    def starts(self, job: Job) -> Mapping[int, float]:
        """When those who wait would start in the plan for the job's partition; for tests."""
        self.room(job)
        found = self._found[job.partition]
        return {} if isinstance(found, Room) else found.starts

    def _look(self, partition: str) -> _Plan | Room:
        cluster = Cluster.of(self._snapshot)
        # Its nodes are in question for all who could use any of them, if only as those to which somebody evades.
        group = self._groups[partition]
        near = cluster.nodes_of(*(name for name, number in self._groups.items() if number == group))
        idle = cluster.mask(self._snapshot.idle_nodes())
        for entry in cluster.queue(near, tasks=1):
            fits = entry.nodes <= (idle & entry.within).bit_count()
            if fits and entry.job.reason in WAITS_FOR_NODES and not self._turns.passed_over(entry.job):
                text = f"job {entry.job.id} could start on the idle nodes, so Slurm goes first"
                return Room(0, Reason("slurm-first", text))
        return _Plan(cluster, partition, list(cluster.queue(near, LONGEST, TASKS)))


class _Plan:
    """Slurm's plan for a partition and those that share nodes with it."""

    def __init__(self, cluster: Cluster, partition: str, queue: Sequence[QueueEntry]) -> None:
        self._now = cluster.now
        self._profile = cluster.free()
        self._lent = cluster.mask(cluster.snapshot.idle_nodes(partition)) & ~cluster.asleep
        self._candidates = self._lent & ~cluster.planned
        self._waiting = len({entry.job.id for entry in queue})
        self.starts: dict[int, float] = {}
        for entry in queue:
            if (found := place(self._profile, entry.ask, self._now)) is not None:
                self.starts.setdefault(entry.job.id, found[0])

    def room(self, until: float | None, shortest: float, grant: float) -> Room:
        """The most node time that nobody is given, up to that instant at the latest (None: for ever)."""
        best, seconds = self._throughout(until), _ENDLESS if until is None else until - self._now
        most, nodes = best.nodes * (seconds - _JOINS), self._lent
        longest = 60.0 * (seconds // 60.0 - 1.0)
        for begin, free in zip(self._profile.times, self._profile.free, strict=True):
            seconds = min(60.0 * ((begin - self._now - grant) // 60.0), longest)  # these are free until here
            if seconds >= shortest and (value := nodes.bit_count() * (seconds - _JOINS)) > most:
                count = nodes.bit_count()
                text = f"{plural(count, 'idle node')} nobody in the queue is given for {duration_text(seconds)}"
                best, most = Room(count, Reason("lent", text), seconds), value
            nodes &= free
            if not nodes or seconds >= longest:
                break
        return best

    def _throughout(self, until: float | None) -> Room:
        """How many nodes nobody is given up to that instant (None: for ever)."""
        end = math.inf if until is None else max(until, self._now)
        nodes = self._profile.common(self._now, end, self._candidates).bit_count()
        waiting = plural(self._waiting, "waiting job")
        text = f"the plan for {waiting} leaves {plural(nodes, 'idle node')} free while it may run"
        return Room(nodes, Reason("promised", text))


def _groups(partitions: Iterable[Partition]) -> dict[str, int]:
    """Partitions by name with a number that those have in common which share nodes, if only by way of others."""
    found: dict[str, int] = {}
    owners: dict[str, int] = {}
    for number, partition in enumerate(partitions):
        joined = {owners[n] for n in partition.nodes if n in owners}
        for names in (found, owners):
            names.update({name: number for name, group in names.items() if group in joined})
        found[partition.name] = number
        owners.update(dict.fromkeys(partition.nodes, number))
    return found
