"""The queue as a policy of resizing needs it: who waits for nothing but nodes, and who would start if some were freed.

The plan is Slurm's own: running jobs hold their nodes to their time limits, pending ones are placed by priority, each
where it can start first without moving those before it. What is not said is assumed as in every plan, see `cluster`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from penstock.api import Job, Snapshot
from penstock.future.bits import BitProfile, lowest
from penstock.future.cluster import TASKS, Cluster
from penstock.future.planner import Ask
from penstock.future.profile import place

__all__ = ["DEPTH", "QueuePlan", "idle_for", "later", "waiting"]

DEPTH: Final = 25
"""Pending jobs that are planned for; Slurm's own default is 100 (bf_max_job_test)."""
_PLACES: Final = 4 * DEPTH
"""Places in a plan, tasks of arrays included."""


def waiting(snapshot: Snapshot, partition: str) -> list[Job]:
    """Pending jobs that could use nodes of the partition, and start as soon as enough are free, first in line first.

    With them those of whom it is known that they start `later`; see `cluster` for who is left out.
    """
    cluster = Cluster.of(snapshot)
    return [entry.job for entry in cluster.queue(cluster.nodes_of(partition), tasks=1)]


def later(job: Job, snapshot: Snapshot) -> bool:
    """Whether a job that waits does not start now whatever nodes are freed.

    It has asked for a later begin, or Slurm has promised it a later start although enough nodes are idle: it lacks
    something else, or asks for nodes that those are not.
    """
    return Cluster.of(snapshot).by_job[job.id].after > snapshot.taken_at


class QueuePlan:
    """Slurm's plan for one partition, made step by step: jobs that wait are placed in order of priority.

    `freed` are nodes that will be given back in a moment, `claimed` is how many idle ones somebody is about to take:
    they count as free, and as taken. The nodes of the running jobs in `without` count as free; see `forecast`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        partition: str,
        freed: Iterable[str] = (),
        claimed: int = 0,
        without: Collection[int] = (),
    ) -> None:
        self._cluster = cluster = Cluster.of(snapshot)
        self.now = cluster.now
        self._nodes = cluster.nodes_of(partition)
        self._awake = self._nodes & ~cluster.asleep
        self._base = cluster.free(without=without)  # without those that wait
        cluster.give_back(self._base, cluster.mask(freed))
        if claimed > 0:
            self._base.block(lowest(self._base.free[0] & self._nodes, claimed), self.now)
        self._asks: list[Ask] = []
        self._profile = self._planned()

    def free(self, nodes: Iterable[str]) -> None:
        """These nodes are given back now; who is placed already may then start earlier."""
        self._cluster.give_back(self._base, self._cluster.mask(nodes))
        self._profile = self._planned()

    def starts(self, job: Job, freed: Iterable[str] = ()) -> bool:
        """Whether the job would start now, behind those that are placed, if these nodes were given back.

        Changes nothing.
        """
        nodes = self._cluster.mask(freed)
        profile = self._planned(nodes) if nodes else self._profile
        ask = self._ask(job)
        return (
            ask.after <= self.now
            and profile.common(self.now, self.now + ask.duration, ask.within).bit_count() >= ask.nodes
        )

    def forecast(self, jobs: Iterable[Job], held: Iterable[tuple[Sequence[str], int, float]]) -> list[float]:
        """When each of these jobs would start, placed in this order (infinity: never), if others held nodes till then.
        Of an array, the first task.

        They hold certain nodes, so many more that are idle, and an instant says how long. Changes nothing.
        """
        profile = self._base.copy()
        for nodes, more, until in held:
            mine = self._cluster.mask(nodes)
            if more > 0:
                mine |= lowest(profile.common(self.now, until, self._awake & ~mine), more)
            profile.block(mine, self.now, until)
        starts, places = [], _PLACES
        for job in jobs:
            found = [place(profile, ask, self.now) for ask in self._asks_of(job, places)]
            places -= len(found)
            starts.append(found[0][0] if found and found[0] is not None else math.inf)
        return starts

    def place(self, job: Job) -> bool:
        """The job takes its place in the plan, with as many tasks as it has; whether the first starts now. One that
        takes a range gets what is free."""
        asks = self._asks_of(job, _PLACES - len(self._asks))
        self._asks += asks
        begins = [place(self._profile, ask, self.now) for ask in asks]
        if not begins or (first := begins[0]) is None or first[0] > self.now:
            return False
        ask = asks[0]
        free = self._profile.common(self.now, first[0] + ask.duration, ask.within).bit_count()
        if (more := min(free, job.num_nodes - ask.nodes)) > 0:
            self._asks.append(ask._replace(nodes=more))
            place(self._profile, self._asks[-1], self.now)
        return True

    def idle(self, until: float | None) -> int:
        """How many nodes that are awake nobody is given in the plan from now on up to an instant (None: for ever).

        So many Slurm grants to a request for that time that comes last.
        """
        return self._idle(until).bit_count()

    def take(self, count: int, until: float | None) -> None:
        """Somebody gets so many of these nodes."""
        end = math.inf if until is None else until
        self._profile.block(lowest(self._idle(until), count), self.now, end)

    def _idle(self, until: float | None) -> int:
        end = math.inf if until is None else max(until, self.now)
        return self._profile.common(self.now, end, self._awake)

    def _planned(self, freed: int = 0) -> BitProfile:
        """All who are placed so far placed anew, in their order."""
        profile = self._base.copy()
        if freed:
            self._cluster.give_back(profile, freed)
        for ask in self._asks:
            place(profile, ask, self.now)
        return profile

    def _ask(self, job: Job) -> Ask:
        return self._cluster.by_job[job.id].ask

    def _asks_of(self, job: Job, places: int) -> list[Ask]:
        """One for each of its tasks that is planned for."""
        return [self._ask(job)] * min(max(job.tasks, 1), TASKS, places)


def idle_for(job: Job, snapshot: Snapshot) -> int:
    """How many nodes of its partition a running job could have to its end without moving anybody in Slurm's plan."""
    plan = QueuePlan(snapshot, job.partition)
    for pending in waiting(snapshot, job.partition)[:DEPTH]:
        plan.place(pending)
    return plan.idle(job.end)
