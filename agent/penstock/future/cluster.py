"""One picture of a cluster's near future, made once from a look at Slurm: who holds which nodes until when, what is
closed, and who waits for what, in Slurm's order.

Every plan is made of this, so that all of them agree about what Slurm leaves open:

    a job that should have ended by its limit       ends `Unknown.overdue` from now: Slurm is about to end it
    a node that is being cleared after a job        is free then, too
    a running job without a limit                   ends `Unknown.endless` from now: never, if nothing else is said
    a pending job without a limit                   may run as long as its partition lets it
    a node that is down or drained                  is closed for good
    a node that power saving has suspended          is free: Slurm wakes it for a job, which runs `waking` later at most
    a node of a reservation that is in force        is closed until that ends, if nothing else is wrong with it
    a pending job with a begin time to come         takes nothing before it; one that is put off for ever is left out
    a pending job that lacks more than nodes        takes nothing before Slurm says that it starts (it lacks a licence,
                                                    is over a limit, or asks for nodes that the free ones are not)
    one of which Slurm does not say when            is left out, and so are those for a reservation
    a job that takes a range of nodes               starts on the fewest
    a resizer of a running job                      is left out: its nodes are asked for elsewhere

A reader that plans on nodes by name and one that counts them agree on every start as long as any node does for every
job. Where they do not, names are right: jobs keep the nodes they began on, so enough free nodes at every instant need
not be the same ones throughout.

Times are seconds since the epoch, as Slurm's clock says them, sets of nodes integers as in `bits`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Final, NamedTuple

from penstock.api import Job, Node, Snapshot, plural
from penstock.future.bits import BitProfile, NodeBits
from penstock.future.planner import Ask
from penstock.slurm.states import parse_node_state
from penstock.values.durations import duration_text

__all__ = ["TASKS", "WAITS_FOR_NODES", "YEAR", "Closed", "Cluster", "Held", "QueueEntry", "Unknown"]

WAITS_FOR_NODES: Final = frozenset({"", "None", "Resources", "Priority"})
"""Slurm's reasons of jobs that lack nothing but nodes."""
TASKS: Final = 20
"""Tasks of one array that are planned for where jobs are resized; Slurm's own default (bf_max_job_array_resv)."""
YEAR: Final = 365 * 86400.0

_AT_ONCE: Final = 60.0
"""Seconds within which a job starts that has all it needs: some rounds of Slurm's scheduler."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What is assumed where Slurm does not say, in seconds from now.

    `overdue`: when a job ends that should have ended by its limit (Slurm kills after KillWait, 30 s by default, and
    then clears the nodes). `endless`: when one ends that has no limit. Whoever promises nodes takes it for never;
    whoever expects a wait takes a `YEAR`, because a wait without end teaches nothing.
    """

    overdue: float = 60.0
    endless: float = math.inf


class Held(NamedTuple):
    """A job on its nodes (a set), from `start` to `end`."""

    job: Job
    nodes: int
    start: float
    end: float


class Closed(NamedTuple):
    """Nodes (a set) that nobody gets from `start` to `end`, and the reservation's name ("": they are down)."""

    nodes: int
    start: float
    end: float
    name: str


class QueueEntry(NamedTuple):
    """A job in the queue, one entry for all of its tasks: each takes `nodes` nodes out of the set `within` for
    `duration` seconds (infinite: for ever), not before `after`."""

    job: Job
    nodes: int
    within: int
    duration: float
    after: float

    @property
    def ask(self) -> Ask:
        """What one of its tasks asks a planner for."""
        return Ask(self.job.id, self.nodes, self.duration, self.within, self.job.partition, after=self.after)


@dataclass(frozen=True)
class Cluster:
    """A look at Slurm, to plan on. `waiting` is in Slurm's order of priority."""

    snapshot: Snapshot
    unknown: Unknown
    bits: NodeBits
    held: tuple[Held, ...]
    closed: tuple[Closed, ...]
    waiting: tuple[QueueEntry, ...]
    _free: dict[frozenset[int], BitProfile] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, snapshot: Snapshot, unknown: Unknown | None = None) -> Cluster:
        """The picture of a usable snapshot; the same one when it is asked for again.

        Slurm's estimates count as they stand in the snapshot: those that are older than the last change are to be
        taken out before, see `turns.Turns.believed`.
        """
        unknown = unknown or Unknown()
        for made in _LATEST:
            if made.snapshot is snapshot and made.unknown == unknown:
                return made
        bits, now = NodeBits(tuple(sorted(snapshot.nodes))), snapshot.taken_at
        held = []
        for job in snapshot.jobs.values():
            if job.state.holds_nodes:
                nodes = bits.mask(name for name in job.nodes if name in snapshot.nodes)
                end = now + unknown.endless if job.end is None else max(job.end, now + unknown.overdue)
                held.append(Held(job, nodes, min(job.start or now, now), end))
        closed, waiting = tuple(_closed(snapshot, bits)), tuple(_waiting(snapshot, bits))
        made = cls(snapshot, unknown, bits, tuple(held), closed, waiting)
        _LATEST[:] = [made, *_LATEST[: _KEPT - 1]]
        return made

    @property
    def now(self) -> float:
        """When the look was taken."""
        return self.snapshot.taken_at

    @cached_property
    def planned(self) -> int:
        """The idle nodes that Slurm has planned for somebody: who waits gets them first here, too."""
        nodes = self.snapshot.nodes.items()
        return self.bits.mask(name for name, node in nodes if "PLANNED" in node.state.upper())

    @cached_property
    def shared(self) -> bool:
        """Whether jobs share nodes."""
        return sum(held.nodes.bit_count() for held in self.held) > self.busy.bit_count()

    @cached_property
    def busy(self) -> int:
        """The nodes that any job holds."""
        return reduce(or_, (held.nodes for held in self.held), 0)

    @property
    def left_out(self) -> int:
        """How many pending jobs are not planned."""
        return sum(1 for job in self.snapshot.jobs.values() if job.pending) - len(self.waiting)

    @cached_property
    def by_job(self) -> Mapping[int, QueueEntry]:
        """Those who wait, by the number of their job."""
        return {entry.job.id: entry for entry in self.waiting}

    @cached_property
    def clearing(self) -> int:
        """The nodes that are still being cleared after a job."""
        return self.bits.mask(name for name, node in self.snapshot.nodes.items() if node.completing)

    @cached_property
    def asleep(self) -> int:
        """The nodes that would have to be powered up. For Slurm, which wakes them for a job, they are free."""
        return self.bits.mask(name for name, node in self.snapshot.nodes.items() if node.asleep)

    @cached_property
    def waking(self) -> int:
        """Those of them on which a job could start: it runs once they are awake, `Snapshot.wakes_in` later at most."""
        down = reduce(or_, (closed.nodes for closed in self.closed if not closed.name), 0)
        return self.asleep & ~self.busy & ~down

    @property
    def waking_note(self) -> str:
        """What users are told of nodes that are asleep; empty where none is."""
        if not self.waking:
            return ""
        return (
            f"{plural(self.waking.bit_count(), 'node')} asleep: Slurm wakes such nodes for a job, which runs "
            f"{duration_text(self.snapshot.wakes_in)} later at most"
        )

    def nodes_of(self, *partitions: str) -> int:
        """The known nodes of these partitions, as far as there are such."""
        known = self.snapshot.partitions
        names = {n for p in partitions if p in known for n in known[p].nodes}
        return self.mask(names)

    def mask(self, names: Iterable[str]) -> int:
        """The set of these nodes, as far as they are known."""
        return self.bits.mask(name for name in names if name in self.snapshot.nodes)

    def free(self, *, without: Collection[int] = ()) -> BitProfile:
        """What is free if nobody waited, and the jobs in `without` (ids) had given back all they have.

        The caller's to change. Where jobs share a node, it is free when the last of them ends.
        """
        gone = frozenset(without)
        if gone not in self._free:
            self._free[gone] = self._work_out({h.job.id: h.end for h in self.held if h.job.id not in gone})
        return self._free[gone].copy()

    def free_by(self, ends: Mapping[int, float]) -> BitProfile:
        """The same if these running jobs (by id) ended at other times than by their limits."""
        return self._work_out({h.job.id: ends.get(h.job.id, h.end) for h in self.held})

    def open_nodes(self) -> BitProfile:
        """The same if no job ran: what is down, reserved or still being cleared is not free."""
        return self._work_out({})

    def _work_out(self, ends: Mapping[int, float]) -> BitProfile:
        """In one sweep over the ends, the last first: of many jobs, to block one after the other would be quadratic."""
        later: dict[float, int] = {}
        if self.clearing:
            later[self.now + self.unknown.overdue] = self.clearing
        for held in self.held:
            if held.job.id in ends:
                end = ends[held.job.id]
                later[end] = later.get(end, 0) | held.nodes
        profile = BitProfile.of_ends(self.bits.all, self.now, later, self.planned)
        self._close(profile, self.bits.all)
        return profile

    def give_back(self, profile: BitProfile, nodes: int) -> None:
        """Nodes of a set become free now, as far as they are not closed."""
        profile.open(nodes, self.now)
        self._close(profile, nodes)

    def _close(self, profile: BitProfile, nodes: int) -> None:
        for closed in self.closed:
            if closed.nodes & nodes:
                profile.block(closed.nodes & nodes, max(closed.start, self.now), closed.end)

    def queue(self, within: int = -1, places: float = math.inf, tasks: int = 1000) -> Iterator[QueueEntry]:
        """Those who could use a node of `within`, in order, once for each task: the first so many places, so many
        tasks of one array."""
        for entry in self.waiting:
            if entry.within & within:
                for _ in range(min(max(entry.job.tasks, 1), tasks)):
                    if places <= 0:
                        return
                    places -= 1
                    yield entry


_KEPT: Final = 3
_LATEST: Final[list[Cluster]] = []
"""Of the last looks, because all readers of a look ask for the same."""


def _closed(snapshot: Snapshot, bits: NodeBits) -> Iterator[Closed]:
    now = snapshot.taken_at
    reserved = {name for held in snapshot.reservations if held.active for name in held.nodes}
    if down := bits.mask(name for name, node in snapshot.nodes.items() if _is_down(node, name in reserved)):
        yield Closed(down, now, math.inf, "")
    for held in snapshot.reservations:
        nodes = bits.mask(name for name in held.nodes if name in snapshot.nodes)
        if nodes and held.end > now:
            yield Closed(nodes, held.start, held.end, held.name)


def _is_down(node: Node, reserved: bool) -> bool:
    """Whether it will not come back by itself; a reservation's end is known, so being in one is not that."""
    return not node.usable and not (reserved and parse_node_state(node.state).sound)


def _waiting(snapshot: Snapshot, bits: NodeBits) -> Iterator[QueueEntry]:
    now, idle = snapshot.taken_at, bits.mask(snapshot.idle_nodes())
    places: dict[str, tuple[int, float]] = {}
    for job in snapshot.pending():
        if job.put_off or job.reservation or job.dependency.startswith("expand:"):
            continue
        if job.partition not in places:
            places[job.partition] = _place(job, snapshot, bits)
        within, longest = places[job.partition]
        after = _after(job, (idle & within).bit_count(), now)
        if within and after is not None:
            duration = longest if job.time_limit is None else job.time_limit
            yield QueueEntry(job, max(job.least_nodes, 1), within, max(duration, 1.0), after)


def _after(job: Job, idle: int, now: float) -> float | None:
    """Before when it takes nothing; None: nobody knows when it starts, whatever becomes free."""
    begin = max(job.eligible or now, now)
    promised = job.start if job.start is not None and job.start > now + _AT_ONCE else None
    if job.reason not in WAITS_FOR_NODES and job.reason != "BeginTime":
        return None if promised is None else max(begin, promised)
    if begin > now or promised is None or job.least_nodes > idle:
        return begin
    # With enough idle nodes for it Slurm would have started it: it asks for something that they are not.
    return promised


def _place(job: Job, snapshot: Snapshot, bits: NodeBits) -> tuple[int, float]:
    """The nodes of its partitions that are up, and the longest time that any of them allows."""
    mask, longest = 0, 0.0
    for name in job.partition.split(","):
        partition = snapshot.partitions.get(name)
        if partition is not None and partition.up:
            mask |= bits.mask(n for n in partition.nodes if n in snapshot.nodes)
            longest = max(longest, math.inf if partition.max_time is None else partition.max_time)
    return mask, longest
