"""A simulated cluster on pinned nodes to which the jobs of a log come, and from which slots can be bought.

Conservative backfilling. With exact estimates a job's place changes only when somebody buys a slot that was not free:
everybody who waits is planned again around it, as Figure 22 of Singh 2008 prices it. A job that ends before its time
limit leaves a hole, and those who wait are moved up, each in its turn; so does a slot that is released as its job ends.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self

from penstock.future.bits import BitProfile
from penstock.future.plan import Claim, ClusterQueue, PendingJob, make_plan
from penstock_lab.papers.provision_world import Jobs
from penstock_planning.plan.dag import Dag, DagTask, rank_order
from penstock_planning.plan.pricing import PaperPricing, Quote
from penstock_planning.plan.slots import Slot, default_horizon, free_slots

__all__ = ["Machine", "Placed", "Seen", "best_effort_on", "chain_on"]

_WARM: Final = 14 * 86400.0
_MEMORY: Final = 1000  # waits of jobs that began, for who wants to learn from them


@dataclass(frozen=True, slots=True)
class Placed:
    """A job that waits or runs: its place in the plan, and how long it really runs."""

    job: PendingJob
    submit: float
    run: float
    start: float
    nodes: int

    @property
    def end(self) -> float:
        """When it really ends."""
        return self.start + self.run


Seen = tuple[float, int, float]
"""(time limit, processors, wait) of a job that began."""


class Machine:
    """`size` nodes of one processor. `seen` are the last jobs that began, `waits` and `begun` the sum and number of
    all their waits."""

    def __init__(self, size: int, jobs: Jobs) -> None:
        self.size, self.jobs = size, jobs
        self.now = float(jobs[0][0]) if jobs else 0.0
        self.everything = (1 << size) - 1
        self._profile = BitProfile(self.everything, self.now)
        self._slots: list[Claim] = []
        self._releases: list[tuple[float, Claim]] = []
        self._running: list[Placed] = []
        self._placed: list[Placed] = []
        self._next = self._count = 0
        self._inexact = False
        self.seen: list[Seen] = []
        self.waits, self.begun = 0.0, 0

    def copy(self) -> Self:
        """One that goes its own way; the log is shared."""
        twin = copy.copy(self)
        twin._profile, twin._slots = self._profile.copy(), list(self._slots)
        twin._releases = list(self._releases)
        twin._running, twin._placed, twin.seen = list(self._running), list(self._placed), list(self.seen)
        return twin

    def to(self, time: float) -> None:
        """Let everybody come who comes up to and at this time, and end who ends."""
        while self._next < len(self.jobs) and (due := self.jobs[self._next][0]) <= time:
            self._let_end(due)
            submit, run, procs, *limit = self.jobs[self._next]
            self._next += 1
            self._at(submit)
            self.submit(procs, limit[0] if limit else run, run)
        self._let_end(time)
        self._at(time)

    def _let_end(self, time: float) -> None:
        """Go from one job that ends before its limit to the next, and move up those who wait."""
        while self._inexact:
            early = [p for p in (*self._running, *self._placed) if p.run < p.job.duration and p.end <= time]
            holes = [(p.end, p.nodes, p.start + p.job.duration) for p in early]
            holes += [(end, slot.nodes, slot.end) for end, slot in self._releases if end <= time]
            if not holes:
                return
            since, nodes, until = min(holes)
            self._at(since)
            self._settle()
            self._profile.open(nodes, since, until)
            self._compress()

    def _compress(self) -> None:
        """Everybody who waits, in order of submission, to the earliest hole, which is where he was or earlier."""
        for i, p in enumerate(self._placed):
            duration = p.job.duration
            self._profile.open(p.nodes, p.start, p.start + duration)
            found = self._profile.earliest(p.job.procs, duration, self.now, self.everything)
            assert found is not None
            start, nodes = found if found[0] < p.start else (p.start, p.nodes)
            self._profile.block(nodes, start, start + duration)
            if start < p.start:
                self._placed[i] = replace(p, start=start, nodes=nodes)

    def next_event(self) -> float:
        """When somebody comes next, or ends before the time limit; infinite: nobody does."""
        early = [p.end for p in (*self._running, *self._placed) if p.run < p.job.duration and p.end > self.now]
        early += [end for end, _ in self._releases if end > self.now]
        comes = self.jobs[self._next][0] if self._next < len(self.jobs) else math.inf
        return min([comes, *early])

    def near(self, time: float) -> None:
        """As `to`, but what happened long before is skipped, which hardly anybody remembers: no job of the logs runs
        longer than two days."""
        since = time - _WARM
        if self.now < since:
            self._next = bisect_left(self.jobs, (since,), self._next)
            self._slots, self._running, self._placed, self._releases = [], [], [], []
            self.now, self._profile = since, BitProfile(self.everything, since)
        self.to(time)

    def _at(self, time: float) -> None:
        self.now = max(self.now, float(time))
        self._profile.forget(self.now)

    def submit(self, procs: int, limit: float, run: float | None = None) -> Placed:
        """A job of best effort that comes now, and where it stands as things are."""
        self._placed.append(placed := self._place(procs, limit, run))
        return placed

    def submit_ahead_of(self, since: float, procs: int, limit: float) -> Placed:
        """A job that may start from now on, and stands in the queue before all who came after `since`: those are
        planned again behind it."""
        # Whoever would begin at this very instant has not: Slurm goes through the queue when a job has ended.
        behind = [p for p in self._placed if p.submit > since and p.start >= self.now]
        self._placed = [p for p in self._placed if p.submit <= since or p.start < self.now]
        for p in behind:
            self._profile.open(p.nodes, p.start, p.start + p.job.duration)
        self._placed.append(placed := replace(self._place(procs, limit, None), submit=since))
        for p in behind:
            found = self._profile.earliest(p.job.procs, p.job.duration, self.now, self.everything)
            assert found is not None
            self._profile.block(found[1], found[0], found[0] + p.job.duration)
            self._placed.append(replace(p, start=found[0], nodes=found[1]))
        return placed

    def _place(self, procs: int, limit: float, run: float | None) -> Placed:
        found = self._profile.earliest(procs, limit, self.now, self.everything)
        assert found is not None
        start, nodes = found
        self._profile.block(nodes, start, start + limit)
        self._count += 1
        job = PendingJob(str(self._count), procs, limit, self.everything, float(procs))
        placed = Placed(job, self.now, limit if run is None else run, start, nodes)
        self._inexact = self._inexact or placed.run < limit
        return placed

    def start_of(self, job: Placed) -> float:
        """When a job begins as things are now; it must not have ended."""
        return next(p.start for p in (*self._placed, *self._running) if p.job.id == job.job.id)

    def queue(self) -> ClusterQueue:
        """What a planner sees now: of those who run their time limits."""
        self._settle()
        running = (Claim(p.job.id, p.nodes, p.start, p.start + p.job.duration) for p in self._running)
        return ClusterQueue(self.size, self.now, (*running, *self._slots), tuple(p.job for p in self._placed))

    def free(self) -> list[Slot]:
        """What its plan leaves free."""
        return free_slots(self._profile, default_horizon(self.now, self._profile.times[-1]), PaperPricing())

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
            self._running.append(p)
        del self.seen[:-_MEMORY]
        self._placed = waiting
        self._running = [p for p in self._running if p.end > self.now]
        over = {slot.id for end, slot in self._releases if end <= self.now}
        self._releases = [each for each in self._releases if each[0] > self.now]
        self._slots = [slot for slot in self._slots if slot.end > self.now and slot.id not in over]

    def mean_wait(self) -> float:
        """Of all jobs of best effort that came, in seconds; of those who wait still, as it is planned."""
        planned = sum(p.start - p.submit for p in self._placed)
        return (self.waits + planned) / max(1, self.begun + len(self._placed))

    def buy(self, slot: Quote, run: float | None = None) -> None:
        """Make the slot a reservation: whoever stands in its way is planned again. With `run` it is released when its
        job has run so long."""
        end = slot.start + slot.duration
        free = self._profile.common(slot.start, end, slot.nodes) == slot.nodes
        self._settle()
        self._count += 1
        claim = Claim(f"slot {self._count}", slot.nodes, slot.start, end)
        self._slots.append(claim)
        if run is not None and run < slot.duration:
            self._releases.append((slot.start + run, claim))
            self._inexact = True
        if free:
            self._profile.block(slot.nodes, slot.start, end)
            return
        plan = make_plan(self.queue())
        self._profile = plan.profile
        self._placed = [
            replace(p, start=start, nodes=nodes)
            for p, start, nodes in zip(self._placed, plan.starts, plan.nodes, strict=True)
        ]


def best_effort_on(machine: Machine, dag: Dag) -> float:
    """The makespan from now if each task is submitted when its parents have ended, among all who come meanwhile."""
    return _follow(machine, dag, lambda task: machine.submit(task.procs, task.durations[0]))


def chain_on(machine: Machine, dag: Dag) -> float:
    """The same if all tasks are submitted now, each behind its parents, and keep that place in the queue while they
    wait (priority/basic, ACCRUE_ALWAYS)."""
    now = machine.now
    return _follow(machine, dag, lambda task: machine.submit_ahead_of(now, task.procs, task.durations[0]))


def _follow(machine: Machine, dag: Dag, submit: Callable[[DagTask], Placed]) -> float:
    """Submit every task when its parents have ended, of those ready at once by rank, and go from one event to the next:
    whoever waits may be moved up at each."""
    begin, order = machine.now, rank_order(dag)
    waiting: dict[int, Placed] = {}
    ends: dict[int, float] = {}
    while True:
        for i in order:
            ready = all(ends.get(edge.parent, math.inf) <= machine.now for edge in dag.into(i))
            if ready and i not in waiting and i not in ends:
                waiting[i] = submit(dag.tasks[i])
        for i in list(waiting):
            if (start := machine.start_of(waiting[i])) <= machine.now:
                ends[i] = start + waiting.pop(i).run
        if len(ends) == len(dag.tasks):
            return max(ends.values(), default=begin) - begin
        own = [end for end in ends.values() if end > machine.now] + [machine.start_of(job) for job in waiting.values()]
        machine.to(min(*own, machine.next_event()) if own else machine.next_event())
