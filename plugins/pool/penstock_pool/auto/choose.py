"""What allocations a pool should ask for, and which it should let go. Pure: what is known goes in, a verdict comes out.

The aim is that known and foreseen tasks end soonest, under the user's caps. Waits are not known, so each choice is
judged in a few scenarios, at quantiles of what is known of its wait (all waits long together, or short together, as a
queue is full or empty); what counts is the mean. The shape of an allocation is its nodes, time limit and partitions;
short limits find a hole in the queue's plan sooner. Several nodes are asked for as that many jobs of one node, which
start one by one and are given back one by one, unless that were more jobs than the user allows.

The successor of an allocation that ends is submitted ahead: a node counts no longer among those that are held once a
new one would start, in nine cases of ten, after it has ended. If the successor comes sooner, the old one is let go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from penstock.texts import plural
from penstock.values.durations import duration_text
from penstock_pool.auto.forecast import NodeLane, PoolOutlook, outlook
from penstock_pool.demand import Demand, TaskBatch

__all__ = [
    "JOIN",
    "QUANTILES",
    "RESERVE",
    "AllocationShape",
    "AllocationVerdict",
    "AutoCaps",
    "NodeSize",
    "PendingAllocation",
    "RunningAllocation",
    "candidates",
    "decide",
]

QUANTILES: Final = (0.25, 0.5, 0.75, 0.9)
"""Of a wait: what scenarios are made of, and the last one is "in nine cases of ten"."""
JOIN: Final = 4.0
"""Seconds from an allocation's start to its first task."""
RESERVE: Final = 36.0
"""Seconds before its end in which a member takes no more tasks."""
_WORTH: Final = 60.0
"""Seconds that each node of a new allocation must have to do: starting and ending it takes some."""
_SHORTEST: Final = 300.0
_STEP: Final = 60.0
_LATER: Final = 60.0
_PUT_OFF: Final = 1.25
"""What work that is put off counts for: so many seconds, and so much of its time under the cap."""
_AT_ONCE: Final = 4
"""Kinds of allocations that are chosen in one pass."""
_NOTICE: Final = 20.0
"""Seconds until Slurm and the agent have noticed."""
_LIKE: Final = 0.01
"""Ends that differ by so little (share) are alike."""


@dataclass(frozen=True, slots=True)
class AllocationShape:
    """What is asked for: nodes of one job, its time limit (s), and its partitions, comma-separated."""

    nodes: int
    limit: float
    partition: str

    def __str__(self) -> str:
        where = f" in {self.partition}" if self.partition else ""
        return f"{plural(self.nodes, 'node')} for {duration_text(self.limit)}{where}"


Waits = Mapping[tuple[AllocationShape, int], tuple[float, ...]]
"""Quantiles (`QUANTILES`) of the wait (s) of the last of so many such jobs that are submitted now."""


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What an allocation has of each node."""

    cores: float
    memory: int | None = None
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class AutoCaps:
    """What the user allows: nodes that work at once, jobs that wait or run at once, and the longest time limit (s) of
    each partition."""

    max_nodes: int
    max_jobs: int
    limits: Mapping[str, float]

    @property
    def nodes(self) -> int:
        """Of one job."""
        return -(-self.max_nodes // self.max_jobs)


@dataclass(frozen=True, slots=True)
class PendingAllocation:
    """One that waits: `starts` are quantiles (`QUANTILES`) of the seconds until it starts."""

    name: str
    shape: AllocationShape
    starts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RunningAllocation:
    """One that runs: seconds `left` to its limit; `joined`: the pool has its nodes."""

    name: str
    shape: AllocationShape
    left: float
    joined: bool


@dataclass(frozen=True, slots=True)
class AllocationVerdict:
    """What to do: submit so many of each shape, and let those running ones go; and why. `end`: when all is expected to
    have ended then (s); None: never, as things are. `unreachable`: tasks that no allocation of the pool's can run.
    `withdraw`: pending ones that came too late: the pool has all the nodes that it may have, for longer."""

    submit: tuple[tuple[AllocationShape, int], ...] = ()
    drain: tuple[str, ...] = ()
    end: float | None = None
    reasons: tuple[str, ...] = ()
    unreachable: int = 0
    withdraw: tuple[str, ...] = ()


class _Ends(NamedTuple):
    """The mean of the ends (s) over the scenarios; of the middle one the seconds that each node chosen last works, and
    the core-seconds that no lane does."""

    mean: float
    works: float
    left: float


@dataclass(frozen=True, slots=True)
class _State:
    """What there is, and what was chosen in this pass."""

    demand: Demand
    size: NodeSize
    running: Sequence[RunningAllocation]
    pending: Sequence[PendingAllocation]
    batches: tuple[TaskBatch, ...]
    fresh: tuple[float, ...]  # seconds (by scenario) until nodes that are asked for now could do something
    max_nodes: int
    waits: Waits
    chosen: tuple[tuple[AllocationShape, int, tuple[float, ...]], ...] = field(default=())

    def lanes(self, scenario: int) -> tuple[list[NodeLane], int]:
        """Of all nodes there are and will be; how many of these are of what was chosen last."""
        size = self.size
        found = [
            NodeLane(
                m.work / m.cores if m.cores else 0.0, math.inf if m.left is None else m.left, m.cores, m.memory, m.gpus
            )
            for m in self.demand.members
            if not m.draining
        ]
        for run in self.running:
            if not run.joined:
                found.append(_lane(size, JOIN, run.left, run.shape.nodes))
        for wait in self.pending:
            start = wait.starts[scenario]
            found.append(_lane(size, start + JOIN, start + wait.shape.limit, wait.shape.nodes))
        last = 0
        for shape, count, starts in self.chosen:
            last = shape.nodes * count
            first = self.waits.get((shape, 1), starts)[scenario]
            for part, nodes in enumerate(_thirds(last)):
                start = first + (max(starts[scenario], first) - first) * part / 2
                found.append(_lane(size, start + JOIN, start + shape.limit, nodes))
        return found, last

    def end(self) -> _Ends:
        """What no lane can do is done under the cap by nodes that are asked for later."""
        ends = works = left = 0.0
        for scenario in range(len(QUANTILES) - 1):
            lanes, last = self.lanes(scenario)
            found = outlook(self.batches, lanes)
            ends += _end(found, lanes, self.fresh[scenario], self.max_nodes, self.size.cores)
            if scenario == 1:
                left = found.left
                works = sum(found.work[-3:]) / last / self.size.cores if last else 0.0
        return _Ends(ends / (len(QUANTILES) - 1), works, left)


def _about(seconds: float) -> str:
    """As exact as a forecast is worth."""
    unit = next(unit for least, unit in ((7200.0, 600.0), (600.0, 60.0), (60.0, 10.0), (0.0, 1.0)) if seconds >= least)
    return duration_text(round(seconds / unit) * unit)


def _lane(size: NodeSize, start: float, end: float, nodes: int = 1) -> NodeLane:
    return NodeLane(start, end - RESERVE, size.cores, size.memory, size.gpus, nodes)


def _thirds(nodes: int) -> tuple[int, int, int]:
    """Of jobs that are submitted together the first starts as a single one would, the last as one of all their nodes,
    and so on between."""
    return nodes - 2 * (nodes // 3), nodes // 3, nodes // 3


def _end(found: PoolOutlook, lanes: Sequence[NodeLane], later: float, max_nodes: int, cores: float) -> float:
    """Work that no lane does is done by nodes that are asked for later, as many as the cap leaves: worse than now."""
    if not found.left:
        return found.end
    at, left = later + _LATER, _PUT_OFF * found.left
    for until in sorted({lane.end for lane in lanes if at < lane.end < math.inf}):
        rate = cores * max(max_nodes - sum(lane.nodes for lane in lanes if lane.end > at), 0)
        if left <= rate * (until - at):
            return max(found.end, at + left / rate)
        left -= rate * (until - at)
        at = until
    return max(found.end, at + left / (cores * max_nodes))


def candidates(demand: Demand, size: NodeSize, caps: AutoCaps) -> list[tuple[AllocationShape, int]]:
    """The shapes and numbers of jobs whose waits have to be known for `decide`."""
    batches, _ = _reachable(demand, size, caps)
    if not batches or not caps.limits:
        return []
    longest = max(caps.limits.values())
    around = JOIN + RESERVE
    least = max(_SHORTEST, min(b.longest or b.seconds for b in batches) + around)
    for_all = max(b.longest or b.seconds for b in batches) + around
    work = sum(b.work for b in batches)
    even = work / (size.cores * caps.max_nodes)
    wanted = {longest, longest / 3, longest / 9, for_all, 1.25 * even + for_all}
    limits = sorted({min(math.ceil(max(one, least) / _STEP) * _STEP, longest) for one in wanted})
    most = max(1, min(caps.max_nodes, math.ceil(work / (size.cores * _WORTH)), _tasks_at_once(batches, size)))
    jobs = -(-most // caps.nodes)
    found = []
    for limit in limits:
        partition = ",".join(name for name, most_time in caps.limits.items() if most_time >= limit)
        shape = AllocationShape(caps.nodes, limit, partition)
        found += [(shape, count) for count in sorted({1, -(-jobs // 3), jobs})]
    return found


def _tasks_at_once(batches: Iterable[TaskBatch], size: NodeSize) -> int:
    """Nodes on which all tasks would run at once."""
    lane = _lane(size, 0.0, 0.0)
    return sum(-(-b.count // lane.slots(b)) for b in batches)


def _reachable(demand: Demand, size: NodeSize, caps: AutoCaps) -> tuple[tuple[TaskBatch, ...], int]:
    """What the pool's own allocations could run, and how many tasks they could not."""
    longest = max(caps.limits.values(), default=0.0) - JOIN - RESERVE
    lane = _lane(size, 0.0, 0.0)
    found, lost = [], 0
    for batch in (*demand.waiting, *demand.foreseen):
        if lane.slots(batch) > 0 and max(batch.longest, batch.seconds) <= longest:
            found.append(batch)
        else:
            lost += batch.count
    return tuple(found), lost


def decide(
    demand: Demand,
    size: NodeSize,
    running: Sequence[RunningAllocation],
    pending: Sequence[PendingAllocation],
    caps: AutoCaps,
    waits: Waits,
) -> AllocationVerdict:
    """The verdict on what is known now. `waits` has what `candidates` has asked for."""
    batches, lost = _reachable(demand, size, caps)
    most = max((count for _, count in waits), default=0)
    fresh = tuple(
        min((quantiles[n] for (_, count), quantiles in waits.items() if count == most), default=0.0) + JOIN
        for n in range(len(QUANTILES))
    )
    state = _State(demand, size, running, pending, batches, fresh, caps.max_nodes, waits)
    now, reasons = state.end(), []
    while len(state.chosen) < _AT_ONCE:
        better = _best(state, caps, now)
        if better is None:
            break
        state, now, told = better
        reasons.append(told)
    drain = _surplus(running, caps.max_nodes)
    told_end = None if batches and not (demand.members or running or pending or state.chosen) else now.mean
    chosen = tuple((shape, count) for shape, count, _ in state.chosen)
    return AllocationVerdict(chosen, drain, told_end, tuple(reasons), lost, _late(running, pending, caps.max_nodes))


def _best(state: _State, caps: AutoCaps, now: _Ends) -> tuple[_State, _Ends, str] | None:
    """The choice that brings the end nearest, if any does; of alike ones the fewest jobs, and the longest."""
    found: list[tuple[_Ends, tuple[int, float], _State, str]] = []
    for (shape, count), quantiles in state.waits.items():
        allowed = _allowed(state, caps, shape, quantiles)
        jobs = min(count, allowed // shape.nodes)
        if jobs < 1 or (jobs < count and (shape, jobs) in state.waits):
            continue
        tried = replace(state, chosen=(*state.chosen, (shape, jobs, quantiles)))
        then = tried.end()
        if then.works >= _WORTH * 0.5 or not state.lanes(1)[0]:
            cost = (jobs, -shape.limit)
            text = (
                f"{plural(jobs, 'allocation')} of {shape}: {'it is' if jobs == 1 else 'they are'} expected to start in "
                f"{_about(quantiles[1])} (9 of 10: within {_about(quantiles[3])}), and then all tasks "
                f"end in {_about(then.mean)}"
            )
            if not now.left:
                text += f", not {_about(now.mean)}"
            found.append((then, cost, tried, text))
    if not found:
        return None
    nearest = min(then.mean for then, *_ in found)
    if nearest > now.mean - 1.0 and not now.left:
        return None
    like = [each for each in found if each[0].mean <= nearest + _LIKE * max(now.mean - nearest, 0.0)]
    then, _, tried, text = min(like, key=lambda each: each[1])
    return tried, then, text


def _allowed(state: _State, caps: AutoCaps, shape: AllocationShape, quantiles: tuple[float, ...]) -> int:
    """Nodes that may still be asked for in this shape."""
    # The last task that fits begins before a node's end. What has most of its time left goes on, unless the new one
    # comes later than that in any case.
    last_start = RESERVE + min((b.longest or b.seconds for b in state.batches), default=0.0)
    held = sum(
        run.shape.nodes
        for run in state.running
        if run.left - last_start > quantiles[3] + JOIN + _NOTICE or run.left > max(run.shape.limit / 2, quantiles[0])
    )
    first, last = quantiles[1], quantiles[1] + shape.limit
    waiting = [(p.starts[1], p.shape.limit, p.shape.nodes) for p in state.pending]
    waiting += [(starts[1], s.limit, s.nodes * count) for s, count, starts in state.chosen]
    held += sum(nodes for start, limit, nodes in waiting if start < last and first < start + limit)
    queued = sum(nodes for _, _, nodes in waiting)
    alike = sum(nodes for _, limit, nodes in waiting if shape.limit / 2 < limit < shape.limit * 2)
    jobs = len(state.running) + len(state.pending) + sum(count for _, count, _ in state.chosen)
    # Short ones may wait beside the long ones, for a hole that these do not fit into.
    nodes = min(caps.max_nodes - held, caps.max_nodes - alike, 2 * caps.max_nodes - queued)
    return min(nodes, (3 * caps.max_jobs - jobs) * shape.nodes)


def _late(
    running: Sequence[RunningAllocation], pending: Sequence[PendingAllocation], max_nodes: int
) -> tuple[str, ...]:
    """Short ones that were to fill holes until the others come, when all of these are there and will outlast them."""
    found = []
    for wait in pending:
        over = wait.starts[1] + wait.shape.limit
        if sum(run.shape.nodes for run in running if run.left >= over) >= max_nodes:
            found.append(wait.name)
    return tuple(found)


def _surplus(running: Sequence[RunningAllocation], max_nodes: int) -> tuple[str, ...]:
    """Those that go because others have come: the ones that end soonest, once all are with the pool."""
    surplus = sum(run.shape.nodes for run in running if run.joined) - max_nodes
    found = []
    for run in sorted(running, key=lambda r: r.left):
        if run.joined and surplus >= run.shape.nodes:
            surplus -= run.shape.nodes
            found.append(run.name)
    return tuple(found)
