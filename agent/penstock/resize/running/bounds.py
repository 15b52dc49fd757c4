"""What the core lets a policy do to a job: whole companions leave, and the work must fit into its time limit. Pure.

Down to the size that the job was started with it can always shrink: that is what its user chose the limit for, and
what it was given since only put it ahead. Below that the rest must fit. How long that is is known where the application
tells its steps (`steps_left`, `step_seconds`); with fewer nodes it runs longer: as it has measured itself, where it was
on two sizes, else in proportion. What it says is never worth more than what its limit has left for it: a job whose
limit is raised gets no more node-time than it gave back.
Where it does not say, it is taken to be half done at best: what it has run once more, stretched by the lost nodes, must
fit. A shrink that the application itself asks for is not held against the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.api import Job, Partition, Reason, plural
from penstock.future.speeds import Speeds
from penstock.resize.running.machine import MalleableJob

__all__ = ["MARGIN", "BoundedSize", "ResizeBounds", "bounded", "returns"]

MARGIN = 0.10
"""Share of the remaining time that is kept free."""


@dataclass(frozen=True, slots=True)
class ResizeBounds:
    """What the site and the agent's rights allow: `cost` is how long a resize takes (s), `extends`: time limits may be
    raised, `shrinks`: jobs may give back their own nodes; `partition` is the job's; `nobody_waits`: no other job needs
    what it gives back, so that it stays where the rest would not fit elsewhere; `speeds`: what it has
    measured itself on two sizes or more."""

    now: float
    cost: float
    extends: bool
    shrinks: bool
    partition: Partition
    nobody_waits: bool = False
    speeds: Speeds | None = None


@dataclass(frozen=True, slots=True)
class BoundedSize:
    """The size (processes) that the job may get and what was added to the policy's reasons; `extend` is the time limit
    (s) that it needs for that, 0 where its own does."""

    size: int
    reasons: tuple[Reason, ...] = ()
    extend: float = 0.0


def bounded(me: MalleableJob, job: Job, size: int, bounds: ResizeBounds) -> BoundedSize:
    """What becomes of a policy's wish for `size` processes."""
    now, present = bounds.now, me.offer.size
    if size == present:
        return BoundedSize(size)
    if size not in me.offer.reachable():
        return _stay(me, "unreachable", f"size {size} cannot be reached")
    left = _time_left(me, job, now)
    if left < bounds.cost:
        return _stay(me, "too-late", f"{left:.0f} s are left, and a resize takes {bounds.cost:.0f} s")
    if size > present:
        return BoundedSize(size)
    placed = _whole(me, job, size, bounds)
    if placed.size == present:
        return placed
    timed = _in_time(me, job, placed.size, bounds)
    return BoundedSize(timed.size, (*placed.reasons, *timed.reasons), timed.extend)


def returns(me: MalleableJob, size: int) -> bool:
    """Whether that is no less than what it was started with, which it can always go back to."""
    return size >= me.start_size > 0


def _stay(me: MalleableJob, code: str, text: str) -> BoundedSize:
    return BoundedSize(me.offer.size, (Reason(code, text),))


def _time_left(me: MalleableJob, job: Job, now: float) -> float:
    limit = math.inf if job.end is None else job.end - now
    return min(limit, _work_left(me))


def _work_left(me: MalleableJob) -> float:
    """Seconds of work at the present size; infinity where the application does not say."""
    steps, seconds = me.offer.steps_left, me.offer.step_seconds
    return math.inf if steps is None or seconds is None else steps * seconds


def _whole(me: MalleableJob, job: Job, size: int, bounds: ResizeBounds) -> BoundedSize:
    """The largest size up to `size` at which nobody who stays needs a node that goes."""
    per_node = me.offer.per_node
    first_problem: Reason | None = None
    for candidate in sorted((s for s in me.offer.reachable() if s <= size), reverse=True):
        count = candidate // per_node
        if (problem := _problem(me, job, count, bounds)) is None:
            if candidate == size:
                return BoundedSize(size)
            assert first_problem is not None
            return BoundedSize(
                candidate, (first_problem, Reason("whole", f"it shrinks to {candidate} processes instead"))
            )
        first_problem = first_problem or problem
    return BoundedSize(me.offer.size, (first_problem,) if first_problem else ())


def _problem(me: MalleableJob, job: Job, count: int, bounds: ResizeBounds) -> Reason | None:
    """Why the ranks on the first `count` nodes cannot stay alone."""
    survivors = me.nodes[:count]
    if job.batch_host in me.nodes and job.batch_host not in survivors:
        return Reason("batch-host", f"the batch script runs on {job.batch_host}, which would have to be given back")
    if not me.splits(count):
        text = f"a companion can only be given back whole, and on {plural(count, 'node')} a part of one would stay"
        return Reason("whole-companions", text)
    if not bounds.shrinks and not set(me.own) <= set(survivors):
        return Reason("no-shrink", "SchedulerParameters has disable_job_shrink: the job cannot give back its own nodes")
    return None


def _in_time(me: MalleableJob, job: Job, size: int, bounds: ResizeBounds) -> BoundedSize:
    asked = me.offer.size > me.offer.maximum  # who asks for it knows what is left to do
    if asked or job.end is None or job.start is None:
        return BoundedSize(size)
    remaining, work = job.end - bounds.now, _work_left(me)
    if work == math.inf:
        if returns(me, size):
            return BoundedSize(size)
        work = bounds.now - job.start
        fits = "as much work as it has done so far"
    else:
        fits = f"the {me.offer.steps_left} steps that are left"
    if work > remaining:  # it would not get further as it is, either
        work, fits = remaining, "the work that fits into its time limit now"
    needed = work * _stretch(me.offer.size, size, bounds.speeds) / (1.0 - MARGIN) + bounds.cost
    if needed <= remaining:
        return BoundedSize(size)
    text = f"on {size} processes {fits} would take {needed:.0f} s (with a margin), and {remaining:.0f} s remain"
    longest = math.inf if bounds.partition.max_time is None else bounds.partition.max_time
    limit = 60.0 * math.ceil((bounds.now - job.start + needed) / 60.0)
    if not bounds.extends or limit > longest:
        goes = returns(me, size) and not bounds.nobody_waits
        return BoundedSize(size) if goes else _stay(me, "no-time", text)
    extended = Reason("limit-extended", f"{text}: its time limit becomes {limit / 60:.0f} min")
    return BoundedSize(size, (extended,), limit)


def _stretch(present: int, size: int, speeds: Speeds | None) -> float:
    """How many times as long the work takes on fewer processes; never less than once."""
    return present / size if speeds is None else max(speeds.at(size) / speeds.at(present), 1.0)
