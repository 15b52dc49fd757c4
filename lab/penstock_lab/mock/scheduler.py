"""One pass over the queue: whom the planner lets start, and what it promises to others.

A full pass is made when something was freed or changed. Until then nobody who waited in vain can start, so that new
jobs are placed into what the last pass has left, unless they are ahead of somebody who was promised something.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice

from penstock.api import JobState
from penstock.future.bits import BitProfile
from penstock.future.planner import Ask, Backfill, Placement, Planner, Promises
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.licenses import Licenses
from penstock_lab.mock.limits import Enforcement
from penstock_lab.mock.machine import Machine
from penstock_lab.mock.model import ClusterConfig, Scheduler
from penstock_lab.mock.queue import Queue
from penstock_lab.mock.reservations import Held, Reservations

__all__ = ["Passes"]


class Passes:
    """Plans the queue of one cluster. `start` begins a job on a set of nodes; `limit_of` is the limit it would have."""

    def __init__(
        self,
        config: ClusterConfig,
        machine: Machine,
        queue: Queue,
        licenses: Licenses,
        reservations: Reservations,
        enforcement: Enforcement,
        start: Callable[[SimJob, int], None],
        limit_of: Callable[[SimJob], float],
    ) -> None:
        self._config = config
        self._machine = machine
        self._queue = queue
        self._licenses = licenses
        self._reservations = reservations
        self._enforcement = enforcement
        self._start = start
        self._limit_of = limit_of
        self._planner = self._new_planner()
        self._inside: dict[str, Backfill] = {}  # planners of reservations
        self._promised: dict[int, SimJob] = {}
        self._hindered: dict[int, SimJob] = {}  # who was told another reason than its turn
        self._planned = False  # whether there is a pass to add to

    def next_promise(self, now: float) -> float:
        """When a promise falls due although nothing may end then; inf: never. Only promises that are kept from pass to
        pass can: others are the ends of running jobs by their limits."""
        if self._config.scheduler is not Scheduler.CONSERVATIVE:
            return math.inf
        return min((j.planned for j in self._promised.values() if j.planned and j.planned > now), default=math.inf)

    def full(self, now: float) -> None:
        """Plan the whole queue, up to the configured depth."""
        for job in (*self._promised.values(), *self._hindered.values()):
            if job.id in self._queue:
                job.planned = None
                job.reason = "Priority"  # also of those that this pass does not come to
        self._promised.clear()
        self._hindered.clear()
        self._planned = bool(self._queue)  # nobody to plan for: make it when somebody comes
        if not self._planned:
            return
        self._inside.clear()
        planner, depth = self._planner, self._config.depth
        asks: list[Ask] = []
        if self._config.scheduler is Scheduler.CONSERVATIVE:
            jobs = self._queue.in_order(now, depth)
            asks = [ask for job in jobs if not job.reservation and (ask := self._ask(job))]
        planner.renew(self.profile(now), asks, now)
        for job in self._queue.in_order(now, depth):
            # Most jobs of a long queue are too wide for what is left: this line is what a pass costs.
            if job.least > planner.most(job.partition) and not job.reservation:
                continue
            self._place(job, now)
            if planner.hopeless(len(self._queue.partitions)) and not self._reservations:
                break

    def additions(self, fresh: list[SimJob], now: float) -> None:
        """Place jobs that have come since the last pass; by a full pass where they might be ahead of others."""
        queue = self._queue
        if not self._planned:
            self.full(now)
            return
        self._planner.profile.forget(now)
        for planner in self._inside.values():
            planner.profile.forget(now)
        if self._config.scheduler is not Scheduler.CONSERVATIVE:
            last = max((queue.place(job, now) for job in self._promised.values()), default=None)
            if last is not None and (not queue.stable or any(queue.place(job, now) < last for job in fresh)):
                self.full(now)
                return
        fresh.sort(key=lambda job: queue.place(job, now))
        for job in islice(fresh, max(self._config.depth - len(queue) + len(fresh), 0)):
            self._place(job, now)

    def profile(self, now: float) -> BitProfile:
        """Which nodes are free when for those who have no reservation."""
        profile = self._machine.profile(now)
        for held in self._reservations:
            profile.block(held.mask, held.start, held.end)
        return profile

    def inside(self, held: Held, now: float) -> BitProfile:
        """Which nodes are free when for the jobs of a reservation."""
        profile = self._machine.profile(now)
        for other in self._reservations:
            if other is not held:
                profile.block(other.mask, other.start, other.end)
        if not held.flex:
            everything = self._machine.bits.all
            profile.block(everything & ~held.mask, now)
            profile.block(everything, now, held.start)
            profile.block(everything, held.end)
        return profile

    def _flexible(self, held: Held, now: float) -> BitProfile:
        """The same for a FLEX reservation in the course of a pass: what others have not been given or promised, and in
        the reservation's time its own nodes, which the others cannot have."""
        profile, own = self._planner.profile.copy(), self.inside(held, now)
        for begin, end, free in zip(own.times, [*own.times[1:], math.inf], own.free, strict=True):
            profile.open(free & held.mask, max(begin, held.start), min(end, held.end))
        return profile

    def _new_planner(self) -> Planner:
        spare = self._config.spare_free
        match self._config.scheduler:
            case Scheduler.FCFS:
                return Backfill(overtake=False, spare=spare)
            case Scheduler.EASY:
                return Backfill(spare=spare)
            case Scheduler.REPLAN:
                return Backfill(math.inf, spare=spare)
            case Scheduler.CONSERVATIVE:
                return Promises()

    def ask(self, job: SimJob) -> Ask:
        """What the job asks for."""
        within = self._machine.within[job.partition] & ~job.excluded
        return Ask(job.id, job.least, self._limit_of(job), within, job.partition, job.required)

    def _ask(self, job: SimJob) -> Ask | None:
        """What the job asks for; None when it may not start for another reason, which it then gives."""
        ask, down = self.ask(job), self._machine.down
        if job.licenses and not self._licenses.available(job.licenses):
            job.reason = "Licenses"
        elif job.array is not None and job.array.throttled:
            job.reason = "JobArrayTaskLimit"
        elif (against := self._enforcement.obstacle(job)) is not None:
            job.reason = against
        elif down and ask.out_of(ask.within & ~down) is None:
            job.reason = "ReqNodeNotAvail"
        else:
            job.reason = "Priority"
            return ask
        self._hindered[job.id] = job
        return None

    def _place(self, job: SimJob, now: float) -> None:
        """Start the job, an array's tasks one after the other, or note what it was promised."""
        while (ask := self._ask(job)) is not None:
            if job.reservation:
                planner, ask = self._of_reservation(job, ask, now)
            else:
                planner = self._planner
            placed = None if planner is None else planner.place(ask, now)
            if placed is None or planner is None:
                return
            self._tell_others(planner, placed, now)
            if placed.start > now:
                job.planned = placed.start
                if job.reason == "Priority":
                    job.reason = "Resources"
                self._promised[job.id] = job
                return
            self._start(job, placed.nodes | self._beyond(job, ask, planner, now))
            if job.state is not JobState.PENDING:
                return

    def _beyond(self, job: SimJob, ask: Ask, planner: Planner, now: float) -> int:
        """What a job that takes a range of nodes gets beside the fewest: as many as are free for it now."""
        if job.num_nodes == ask.nodes:
            return 0
        free = planner.profile.common(now, now + ask.duration, ask.within).bit_count()
        beyond = min(free, self._enforcement.room(job, job.num_nodes) - ask.nodes)
        more = planner.place(ask._replace(nodes=beyond, need=0), now) if beyond else None
        if more is None:
            return 0
        self._tell_others(planner, more, now)
        return more.nodes

    def _of_reservation(self, job: SimJob, ask: Ask, now: float) -> tuple[Planner | None, Ask]:
        """Who plans for the job's reservation, and what it asks for there: its end cuts the job's time short."""
        held = self._reservations.get(job.reservation)
        if held is None or now >= held.end:
            return None, ask
        if job.reservation not in self._inside:
            planner = self._inside[job.reservation] = Backfill()
            planner.renew(self._flexible(held, now) if held.flex else self.inside(held, now), (), now)
        if held.flex:
            return self._inside[job.reservation], ask
        if held.start > now:
            job.reason = "Reservation"
        duration = min(ask.duration, held.end - max(held.start, now))
        return self._inside[job.reservation], ask._replace(duration=duration)

    def _tell_others(self, planner: Planner | None, placed: Placement, now: float) -> None:
        """What one planner gives away is gone for all."""
        if not self._inside:
            return
        for other in (self._planner, *self._inside.values()):
            if other is not planner:
                other.profile.block(placed.nodes, max(placed.start, now), placed.end)
