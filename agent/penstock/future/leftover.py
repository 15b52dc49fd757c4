"""Which nodes are left over: those that a running job may have to its end, and nobody who waits starts later for it.

Two questions, in this order:

1. *Has Slurm had its turn?* Nodes that became free a moment ago belong to the queue. Whoever waits and could do with
   the nodes that are idle comes first, until Slurm has looked at both, the job and the nodes, and has left the job
   where it is. That takes a round of its scheduler (`turn_of`). An estimated start that is older than that says nothing
   about these nodes either, and is not believed (`Turns.honest`).
2. *What does the plan say?* Every job that waits is placed by priority, each where it can start first without moving
   those before it, and one that Slurm has passed over no earlier than Slurm itself has promised. Running jobs hold
   their nodes to their time limits. Nodes that nobody is given in this plan, from now to the end of the job that
   grows, are left over: with them taken, the same plan comes out again.

Never left over are nodes that are still being cleared (COMPLETING), that Slurm has planned for somebody (PLANNED), that
are reserved, and those that would have to be powered up. A program may give nodes back before its end; that it will is
no promise, so it does not count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.api import Job, Partition, Reason, Snapshot
from penstock.future.bits import BitProfile, NodeBits
from penstock.future.queue import WAITS_FOR_NODES, asleep

__all__ = ["LONGEST", "Leftover", "Room", "Turns", "turn_of"]

LONGEST: Final = 200
"""Places in the queue, tasks of arrays included, that are planned for: twice what Slurm itself plans for by default
(bf_max_job_test). Those behind have no promised start."""
_TASKS: Final = 20  # of an array; Slurm's own default (bf_max_job_array_resv)


class Room(NamedTuple):
    """So many nodes are left over, and why there are no more."""

    nodes: int
    reason: Reason


def turn_of(parameters: Collection[str]) -> float:
    """Seconds after which Slurm has looked at all that there was, by the site's SchedulerParameters.

    A round of backfill may be under way; then comes bf_interval, then another round. A round takes bf_max_time at most,
    which is bf_interval where it is not set. The other scheduler looks every sched_interval.
    """
    values = dict(text.split("=", 1) for text in parameters if "=" in text)
    interval = _seconds(values, "bf_interval", 30.0)
    backfill = interval + 2 * _seconds(values, "bf_max_time", interval)
    return max(backfill, _seconds(values, "sched_interval", 60.0))


def _seconds(values: Mapping[str, str], name: str, default: float) -> float:
    try:
        return max(float(values[name]), 0.0)
    except (KeyError, ValueError):
        return default


class Turns:
    """Who has been looked at by Slurm in this picture, if that takes it `turn` seconds."""

    def __init__(self, snapshot: Snapshot, turn: float) -> None:
        self._snapshot = snapshot
        self._turn = turn
        self._settled: dict[str, bool] = {}

    def passed_over(self, job: Job) -> bool:
        """Whether Slurm has seen a waiting job together with all nodes that are idle for it, and left it waiting."""
        if job.eligible is None or self._recent(max(job.submit, job.eligible)):
            return False
        return all(self._all_seen(name) for name in partitions_of(job, self._snapshot))

    def honest(self) -> Snapshot:
        """The picture without the estimated starts that are older than the idleness of nodes.

        Right after an end Slurm's estimates are still those of before: a job seems to wait for something else than the
        nodes that were freed for it.
        """
        waiting = (j for j in self._snapshot.pending() if j.start is not None and j.reason in WAITS_FOR_NODES)
        if not (old := {j.id: replace(j, start=None) for j in waiting if not self.passed_over(j)}):
            return self._snapshot
        return replace(self._snapshot, jobs={**self._snapshot.jobs, **old})

    def _recent(self, instant: float) -> bool:
        return self._snapshot.taken_at - instant < self._turn

    def _all_seen(self, partition: str) -> bool:
        if partition not in self._settled:
            idle = [self._snapshot.nodes[n].idle_since for n in self._snapshot.idle_nodes(partition)]
            self._settled[partition] = all(since is not None and not self._recent(since) for since in idle)
        return self._settled[partition]


class Leftover:
    """What is left over in one picture (`Turns.honest`), partition by partition, worked out when it is asked for."""

    def __init__(self, snapshot: Snapshot, turns: Turns) -> None:
        self._snapshot = snapshot
        self._turns = turns
        self._groups = _groups(snapshot.partitions.values())
        self._found: dict[str, _Plan | Room] = {}

    def room(self, job: Job) -> Room:
        """How many nodes of its partition a running job can be given for as long as it may run."""
        found = self._found.get(job.partition)
        if found is None:
            found = self._found[job.partition] = self._look(self._snapshot.partitions[job.partition])
        return found if isinstance(found, Room) else found.room(job.end)

    def starts(self, job: Job) -> Mapping[int, float]:
        """When those who wait would start in the plan for the job's partition; for tests."""
        self.room(job)
        found = self._found[job.partition]
        return {} if isinstance(found, Room) else found.starts

    def _look(self, partition: Partition) -> _Plan | Room:
        queue = [job for job in self._snapshot.pending() if _counts(job) and self._near(job, partition)]
        for job in queue:
            if job.reason in WAITS_FOR_NODES and self._fits(job) and not self._turns.passed_over(job):
                text = f"job {job.id} could start on the nodes that are idle: Slurm has its turn first"
                return Room(0, Reason("slurm-first", text))
        return _Plan(self._snapshot, partition, queue, self._turns)

    def _near(self, job: Job, partition: Partition) -> bool:
        """Whether its nodes are in question, if only as those to which somebody evades who could have others."""
        group = self._groups[partition.name]
        return any(self._groups[name] == group for name in partitions_of(job, self._snapshot))

    def _fits(self, job: Job) -> bool:
        names = partitions_of(job, self._snapshot)
        return job.least_nodes <= len({n for name in names for n in self._snapshot.idle_nodes(name)})


class _Plan:
    """Slurm's plan for a partition and those that share nodes with it."""

    def __init__(self, snapshot: Snapshot, partition: Partition, queue: Sequence[Job], turns: Turns) -> None:
        self._snapshot = snapshot
        self._now = now = snapshot.taken_at
        names = {n for job in queue for p in partitions_of(job, snapshot) for n in snapshot.partitions[p].nodes}
        nodes = {n: snapshot.nodes[n] for n in sorted({*names, *partition.nodes}) if n in snapshot.nodes}
        kept = {n for n, node in nodes.items() if "PLANNED" in node.state.upper() or asleep(node)}
        # Those that nobody can grow onto come first, as Slurm has planned with them, too.
        self._bits = NodeBits([*(n for n in nodes if n in kept), *(n for n in nodes if n not in kept)])
        self._known = frozenset(nodes)
        self._profile = BitProfile(self._bits.all, now)
        self._candidates = self._mask(n for n in snapshot.idle_nodes(partition.name) if n not in kept)
        soon = math.nextafter(now, math.inf)  # who is past its limit still has its nodes
        for job in snapshot.jobs.values():
            if job.state.holds_nodes:
                self._profile.block(self._mask(job.nodes), now, math.inf if job.end is None else max(job.end, soon))
        for held in snapshot.reservations:
            if held.end > now:
                self._profile.block(self._mask(held.nodes), max(held.start, now), held.end)
        self._profile.block(self._mask(n for n, node in nodes.items() if not node.usable), now)
        self._waiting = len(queue)
        self.starts: dict[int, float] = {}
        for job in _in_line(queue):
            self._place(job, turns)

    def room(self, until: float | None) -> Room:
        """How many nodes nobody is given up to that instant (None: for ever)."""
        end = math.inf if until is None else max(until, self._now)
        nodes = self._profile.common(self._now, end, self._candidates).bit_count()
        text = f"{nodes} idle nodes are promised to none of {self._waiting} jobs that wait, for as long as it may run"
        return Room(nodes, Reason("promised", text))

    def _place(self, job: Job, turns: Turns) -> None:
        after = self._now
        if job.start is not None and (job.reason not in WAITS_FOR_NODES or turns.passed_over(job)):
            after = max(job.start, after)
        partitions = (self._snapshot.partitions[name] for name in partitions_of(job, self._snapshot))
        within = self._mask(n for partition in partitions for n in partition.nodes)
        length = math.inf if job.time_limit is None else max(job.time_limit, 1.0)
        found = self._profile.earliest(job.least_nodes, length, after, within)
        if found is not None:
            self._profile.block(found[1], found[0], found[0] + length)
            self.starts.setdefault(job.id, found[0])

    def _mask(self, nodes: Iterable[str]) -> int:
        return self._bits.mask(n for n in nodes if n in self._known)


def partitions_of(job: Job, snapshot: Snapshot) -> list[str]:
    """The partitions in which a job waits, as far as they are there."""
    return [name for name in job.partition.split(",") if name in snapshot.partitions]


def _counts(job: Job) -> bool:
    """Whether it waits for nodes, or has been promised a start. Nodes of a reservation are nobody else's anyway."""
    return (
        (job.reason in WAITS_FOR_NODES or job.start is not None)
        and not job.reservation
        and not job.dependency.startswith("expand:")
    )


def _in_line(queue: Iterable[Job]) -> Iterator[Job]:
    """The first of the queue, a job once for each of its tasks."""
    places = LONGEST
    for job in queue:
        for _ in range(min(job.tasks, _TASKS, places)):
            places -= 1
            yield job


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
