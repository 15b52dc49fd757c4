"""The queue as a policy of resizing needs it: who waits for nothing but nodes, and who would start if some were freed.

The plan is Slurm's own: running jobs hold their nodes to their time limits, pending ones are placed by priority, each
where it can start first without moving those before it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from functools import cache
from typing import Final

from penstock.api import Job, Node, Snapshot
from penstock.future.bits import BitProfile, NodeBits, lowest
from penstock.future.planner import Ask, Backfill

__all__ = ["DEPTH", "WAITS_FOR_NODES", "QueuePlan", "asleep", "idle_for", "unable", "waiting"]

DEPTH: Final = 25
"""Pending jobs that are planned for; Slurm's own default is 100 (bf_max_job_test)."""
WAITS_FOR_NODES = frozenset({"", "None", "Resources", "Priority"})
_AT_ONCE = 60.0
"""Seconds within which a job starts that has all it needs: some rounds of Slurm's scheduler."""
_ASLEEP = ("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "~", "#", "%")


def waiting(snapshot: Snapshot, partition: str) -> list[Job]:
    """Pending jobs of the partition that lack nothing but nodes of their own choice, first in line first.

    Without resizers of Penstock, and without those that wait for nodes of a reservation.
    """
    return [
        job
        for job in snapshot.pending(partition)
        if job.reason in WAITS_FOR_NODES and not job.reservation and not job.dependency.startswith("expand:")
    ]


def unable(job: Job, idle: int, now: float) -> bool:
    """Whether a pending job cannot use the nodes that are idle, though they are enough (say, it asks for a feature).

    Slurm would have started it: it has an estimate of its start, and that lies ahead.
    """
    return job.least_nodes <= idle and job.start is not None and job.start > now + _AT_ONCE


def asleep(node: Node) -> bool:
    """Whether the node would have to be powered up before anything runs on it."""
    return _asleep(node.state)


@cache
def _asleep(state: str) -> bool:
    return any(word in state.upper() for word in _ASLEEP)


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
        without: Container[int] = (),
    ) -> None:
        nodes = {n: snapshot.nodes[n] for n in snapshot.partitions[partition].nodes if n in snapshot.nodes}
        self.now = now = snapshot.taken_at
        self._known = frozenset(nodes)
        self._bits = NodeBits(tuple(nodes))
        self._awake = self._mask(n for n, node in nodes.items() if not asleep(node))
        self._base = BitProfile(self._bits.all, now)  # without those that wait
        for job in snapshot.jobs.values():
            if job.state.holds_nodes and job.id not in without:
                # Who is past its limit is about to be killed, and still has its nodes.
                end = math.inf if job.end is None else max(job.end, math.nextafter(now, math.inf))
                self._base.block(self._mask(job.nodes), now, end)
        for held in snapshot.reservations:
            if held.end > now:
                self._base.block(self._mask(held.nodes), max(held.start, now), held.end)
        self._base.open(self._mask(freed), now)
        self._base.block(self._mask(n for n, node in nodes.items() if not node.usable), now)
        if claimed > 0:
            self._base.block(lowest(self._base.free[0], claimed), now)
        self._asks: list[Ask] = []
        self._planner = self._planned()

    def free(self, nodes: Iterable[str]) -> None:
        """These nodes are given back now; who is placed already may then start earlier."""
        self._base.open(self._mask(nodes), self.now)
        self._planner = self._planned()

    def starts(self, job: Job, freed: Iterable[str] = ()) -> bool:
        """Whether the job would start now, behind those that are placed, if these nodes were given back.

        Changes nothing.
        """
        placed = self._planned(self._mask(freed)).place(self._ask(job), self.now)
        return placed is not None and placed.start <= self.now

    def forecast(self, jobs: Iterable[Job], held: Iterable[tuple[Sequence[str], int, float]]) -> list[float]:
        """When each of these jobs would start, placed in this order (infinity: never), if others held nodes till then.

        They hold certain nodes, so many more that are idle, and an instant says how long. Changes nothing.
        """
        profile = self._base.copy()
        for nodes, more, until in held:
            mine = self._mask(nodes)
            if more > 0:
                mine |= lowest(profile.common(self.now, until, self._awake & ~mine), more)
            profile.block(mine, self.now, until)
        planner = Backfill(math.inf)
        planner.renew(profile, (), self.now)
        placed = [planner.place(self._ask(job), self.now) for job in jobs]
        return [math.inf if p is None else p.start for p in placed]

    def place(self, job: Job) -> bool:
        """The job takes its place in the plan; whether it starts now. One that takes a range gets what is free."""
        ask = self._ask(job)
        self._asks.append(ask)
        placed = self._planner.place(ask, self.now)
        if placed is None or placed.start > self.now:
            return False
        free = self._planner.profile.common(self.now, placed.end, ask.within).bit_count()
        if more := min(free, job.num_nodes - ask.nodes):
            self._asks.append(ask._replace(nodes=more))
            self._planner.place(self._asks[-1], self.now)
        return True

    def idle(self, until: float | None) -> int:
        """How many nodes that are awake nobody is given in the plan from now on up to an instant (None: for ever).

        So many Slurm grants to a request for that time that comes last.
        """
        return self._idle(until).bit_count()

    def take(self, count: int, until: float | None) -> None:
        """Somebody gets so many of these nodes."""
        end = math.inf if until is None else until
        self._planner.profile.block(lowest(self._idle(until), count), self.now, end)

    def _idle(self, until: float | None) -> int:
        end = math.inf if until is None else max(until, self.now)
        return self._planner.profile.common(self.now, end, self._awake)

    def _planned(self, freed: int = 0) -> Backfill:
        """All who are placed so far placed anew, in their order."""
        profile = self._base.copy()
        if freed:
            profile.open(freed, self.now)
        planner = Backfill(math.inf)
        planner.renew(profile, (), self.now)
        for ask in self._asks:
            planner.place(ask, self.now)
        return planner

    def _ask(self, job: Job) -> Ask:
        limit = math.inf if job.time_limit is None else job.time_limit
        return Ask(job.id, job.least_nodes, limit, self._bits.all, job.partition)

    def _mask(self, nodes: Iterable[str]) -> int:
        return self._bits.mask(n for n in nodes if n in self._known)


def idle_for(job: Job, snapshot: Snapshot) -> int:
    """How many nodes of its partition a running job could have to its end without moving anybody in Slurm's plan."""
    plan = QueuePlan(snapshot, job.partition)
    free = len(snapshot.idle_nodes(job.partition))
    for pending in waiting(snapshot, job.partition)[:DEPTH]:
        if not unable(pending, free, snapshot.taken_at):
            plan.place(pending)
    return plan.idle(job.end)
