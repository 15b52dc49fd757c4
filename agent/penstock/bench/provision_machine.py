"""A simulated cluster on pinned nodes to which the jobs of a log come, and from which slots can be bought.

Conservative backfilling with exact estimates. A job's place then changes only when somebody buys a slot that was not
free: everybody who waits is planned again around it, as Figure 22 of paper 001 prices it.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from penstock.bench.provision_world import Jobs
from penstock.planning.bits import BitProfile
from penstock.provision.dag import Dag, rank_order
from penstock.provision.plan import Claim, Queue, Waiting, make_plan
from penstock.provision.pricing import Quote

__all__ = ["Machine", "Seen", "best_effort_on"]

_WARM: Final = 14 * 86400.0
_MEMORY: Final = 1000  # waits of jobs that began, for who wants to learn from them


@dataclass(frozen=True, slots=True)
class _Placed:
    """A job that waits, and where it stands in the plan."""

    job: Waiting
    submit: float
    start: float
    nodes: int


Seen = tuple[float, int, float]
"""(run time, processors, wait) of a job that began."""


class Machine:
    """`size` nodes of one processor. `seen` are the last jobs that began, `waits` and `begun` the sum and number of
    all their waits."""

    def __init__(self, size: int, jobs: Jobs) -> None:
        self.size, self.jobs = size, jobs
        self.now = float(jobs[0][0]) if jobs else 0.0
        self.everything = (1 << size) - 1
        self._profile = BitProfile(self.everything, self.now)
        self._claims: list[Claim] = []
        self._placed: list[_Placed] = []
        self._next = self._count = 0
        self.seen: list[Seen] = []
        self.waits, self.begun = 0.0, 0

    def copy(self) -> Machine:
        """One that goes its own way; the log is shared."""
        twin = copy.copy(self)
        twin._profile, twin._claims = self._profile.copy(), list(self._claims)
        twin._placed, twin.seen = list(self._placed), list(self.seen)
        return twin

    def to(self, time: float) -> None:
        """Let everybody come who comes up to and at this time."""
        while self._next < len(self.jobs) and self.jobs[self._next][0] <= time:
            submit, run, procs = self.jobs[self._next]
            self._next += 1
            self._at(submit)
            self.submit(procs, run)
        self._at(time)

    def near(self, time: float) -> None:
        """As `to`, but what happened long before is skipped, which hardly anybody remembers: no job of the logs runs
        longer than two days."""
        since = time - _WARM
        if self.now < since:
            self._next = bisect_left(self.jobs, (since,), self._next)
            self._claims, self._placed = [], []
            self.now, self._profile = since, BitProfile(self.everything, since)
        self.to(time)

    def _at(self, time: float) -> None:
        self.now = max(self.now, float(time))
        self._profile.forget(self.now)

    def submit(self, procs: int, duration: float) -> float:
        """A job of best effort that comes now; when it will start unless somebody buys a slot in its way."""
        found = self._profile.earliest(procs, duration, self.now, self.everything)
        assert found is not None
        start, nodes = found
        self._profile.block(nodes, start, start + duration)
        self._count += 1
        job = Waiting(str(self._count), procs, duration, self.everything, float(procs))
        self._placed.append(_Placed(job, self.now, start, nodes))
        return start

    def queue(self) -> Queue:
        """What a planner sees now."""
        self._settle()
        return Queue(self.size, self.now, tuple(self._claims), tuple(p.job for p in self._placed))

    def _settle(self) -> None:
        """Whoever has begun is no longer waiting, and who has ended is forgotten."""
        waiting = []
        for p in self._placed:
            if p.start > self.now:
                waiting.append(p)
                continue
            self.waits += p.start - p.submit
            self.begun += 1
            self.seen.append((p.job.duration, p.job.procs, p.start - p.submit))
            self._claims.append(Claim(p.job.id, p.nodes, p.start, p.start + p.job.duration))
        del self.seen[:-_MEMORY]
        self._placed = waiting
        self._claims = [claim for claim in self._claims if claim.end > self.now]

    def mean_wait(self) -> float:
        """Of all jobs of best effort that came, in seconds; of those who wait still, as it is planned."""
        planned = sum(p.start - p.submit for p in self._placed)
        return (self.waits + planned) / max(1, self.begun + len(self._placed))

    def buy(self, slot: Quote) -> None:
        """Make the slot a reservation: whoever stands in its way is planned again."""
        end = slot.start + slot.duration
        free = self._profile.common(slot.start, end, slot.nodes) == slot.nodes
        self._settle()
        self._count += 1
        self._claims.append(Claim(f"slot {self._count}", slot.nodes, slot.start, end))
        if free:
            self._profile.block(slot.nodes, slot.start, end)
            return
        plan = make_plan(self.queue())
        self._profile = plan.profile
        self._placed = [
            _Placed(p.job, p.submit, start, nodes)
            for p, start, nodes in zip(self._placed, plan.starts, plan.nodes, strict=True)
        ]


def best_effort_on(machine: Machine, dag: Dag) -> float:
    """The makespan from now if each task is submitted when its parents have ended, among all who come meanwhile."""
    place = {task: at for at, task in enumerate(rank_order(dag))}
    left = [len(dag.into(i)) for i in range(len(dag.tasks))]
    children: list[list[int]] = [[] for _ in dag.tasks]
    for edge in dag.edges:
        children[edge.parent].append(edge.child)
    now = last = machine.now
    at = [now] * len(dag.tasks)
    ready = [(now, place[i], i) for i, count in enumerate(left) if not count]
    heapify(ready)
    while ready:
        when, _, i = heappop(ready)
        machine.to(when)
        end = machine.submit(dag.tasks[i].procs, dag.tasks[i].durations[0]) + dag.tasks[i].durations[0]
        last = max(last, end)
        for child in children[i]:
            at[child] = max(at[child], end)
            left[child] -= 1
            if not left[child]:
                heappush(ready, (at[child], place[child], child))
    return last - now
