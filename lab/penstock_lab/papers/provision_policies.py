"""What slots cost under aggressive backfilling, beside conservative, on the same logs (Figure 29 of Singh 2008)."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.future.plan import Claim, ClusterQueue, PendingJob, QueueSchedule, make_plan
from penstock_lab.papers.provision_machine import Machine
from penstock_lab.papers.provision_world import Jobs
from penstock_planning.plan.pricing import PaperPricing, Quote, choose, quote

__all__ = ["OFFERED", "AggressiveMachine", "PolicyPrices", "prices_by_policy"]

OFFERED: Final = 40
"""Starts that are priced for each buyer, at most: under aggressive backfilling each takes a simulation of the queue."""

_HOUR: Final = 3600.0
_PRICING: Final = PaperPricing()


@dataclass(frozen=True, slots=True)
class PolicyPrices:
    """Additive prices of the slots bought (processor hours), the share of them that was free, and how long the slots
    and the other jobs waited on average (hours)."""

    policy: str
    bought: tuple[float, ...]
    wait: float
    others_wait: float

    @property
    def price(self) -> float:
        """The mean."""
        return statistics.fmean(self.bought) if self.bought else 0.0

    @property
    def free(self) -> float:
        """The share that delays nobody."""
        return statistics.fmean(f == 0 for f in self.bought) if self.bought else 0.0


class AggressiveMachine:
    """`size` nodes of one processor under aggressive backfilling, to which the jobs of a log come, with exact run
    times. A place is nobody's until its job begins, so the queue is planned anew whenever somebody comes or ends."""

    def __init__(self, size: int, jobs: Jobs) -> None:
        self._size, self._jobs, self._next = size, jobs, 0
        self.now = float(jobs[0][0]) if jobs else 0.0
        self._claims: list[Claim] = []
        self._waiting: list[tuple[PendingJob, float]] = []
        self._plan: QueueSchedule | None = None
        self._waited: list[float] = []

    def to(self, time: float) -> None:
        """Let everybody come who comes up to and at this time, begin who can, and end who ends."""
        everything = (1 << self._size) - 1
        while (event := self._event()) <= time:
            self.now = event
            while self._next < len(self._jobs) and self._jobs[self._next][0] <= event:
                submit, run, procs, *_ = self._jobs[self._next]
                self._next += 1
                job = PendingJob(str(self._next), procs, run, everything, float(procs))
                self._waiting.append((job, float(submit)))
            self._begin()
        self.now = max(self.now, float(time))
        self._begin()

    def _event(self) -> float:
        """When somebody comes or begins or ends next."""
        comes = self._jobs[self._next][0] if self._next < len(self._jobs) else math.inf
        ends = [claim.end for claim in self._claims if claim.end > self.now]
        starts = [start for start in self.plan().starts if start > self.now]
        return min([comes, *starts, *(ends if self._waiting else [])])

    def _begin(self) -> None:
        self._plan = None
        self._claims = [claim for claim in self._claims if claim.end > self.now]
        plan, still = self.plan(), []
        for (job, submit), start, nodes in zip(self._waiting, plan.starts, plan.nodes, strict=True):
            if start > self.now:
                still.append((job, submit))
                continue
            self._claims.append(Claim(job.id, nodes, start, start + job.duration))
            self._waited.append(start - submit)
        if len(still) < len(self._waiting):
            self._waiting, self._plan = still, None

    def plan(self) -> QueueSchedule:
        """What is planned now."""
        if self._plan is None:
            waiting = tuple(job for job, _ in self._waiting)
            self._plan = make_plan(ClusterQueue(self._size, self.now, tuple(self._claims), waiting, "aggressive"))
        return self._plan

    def buy(self, slot: Quote) -> None:
        """Make the slot a reservation."""
        end = slot.start + slot.duration
        self._claims.append(Claim(f"slot {slot.start:g} {slot.nodes}", slot.nodes, slot.start, end))
        self._plan = None

    def mean_wait(self) -> float:
        """Of all that came, in seconds; of those who wait still as it is planned."""
        waits = [start - submit for (_, submit), start in zip(self._waiting, self.plan().starts, strict=True)]
        return statistics.fmean([*self._waited, *waits]) if self._waited or waits else 0.0


def prices_by_policy(jobs: Jobs, procs: int, share: float, seed: int) -> Iterator[PolicyPrices]:
    """This share of the jobs buys a slot when it comes, by a trade-off of its own between 0 and 1, from `OFFERED` of
    the starts that there are; the others queue. The same ones under both policies."""
    rng = random.Random(seed)
    buyers = {i: rng.random() for i in range(len(jobs)) if rng.random() < share}
    others = [job for i, job in enumerate(jobs) if i not in buyers]
    for policy in ("conservative", "aggressive"):
        machine = Machine(procs, others) if policy == "conservative" else AggressiveMachine(procs, others)
        bought, waits = [], []
        for i, alpha in buyers.items():
            submit, run, width, *_ = jobs[i]
            machine.to(submit)
            plan = make_plan(machine.queue()) if isinstance(machine, Machine) else machine.plan()
            best = choose(_offers(plan, width, run), alpha)
            assert best is not None  # nothing is wider than the machine, and all that is planned ends
            machine.buy(best)
            bought.append(best.f / _HOUR)
            waits.append((best.start - submit) / _HOUR)
        if others:
            machine.to(others[-1][0])
        wait = statistics.fmean(waits) if waits else 0.0
        yield PolicyPrices(policy, tuple(bought), wait, machine.mean_wait() / _HOUR)


def _offers(plan: QueueSchedule, procs: int, duration: float) -> list[Quote]:
    """Prices of starts that lie evenly among all at which the plan changes. The last one is free."""
    starts = plan.instants()
    every = max(1, math.ceil(len(starts) / OFFERED))
    return [quote(plan, procs, duration, start, _PRICING) for start in starts[::-1][::every][::-1]]
