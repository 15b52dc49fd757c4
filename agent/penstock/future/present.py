"""The present of a cluster in counts of nodes, as far as it matters to one partition: what `replay` begins with.

    area     the nodes that some job may use (those of its partitions): a set of nodes, by its number
    cell     nodes that belong to the same areas; each is counted once, in its cell
    region   the partition's area, those that share nodes with it, those that share nodes with these, and so on: jobs of
             other areas never meet ours and are left out

Simplifications: the nodes of a cell are alike, and enough free nodes at every instant are enough (see `cluster`: by
name a job may start later). A node is one job's: where jobs share nodes, it is that of the last of them to end. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import NamedTuple

from penstock.future.cluster import Closed, Cluster, Held
from penstock.future.columns import counts, floats, node_counts

__all__ = ["Closing", "Present", "Running", "Waiting"]


class Running(NamedTuple):
    """A job on its nodes, `cells` counts them: since `start`, for `limit` seconds (infinite: for ever), and by that up
    to `end`. `kept`: until when the nodes stay closed although the job has ended."""

    cells: tuple[int, ...]
    start: float
    limit: float
    end: float
    kept: float = -math.inf
    user: str = ""


class Waiting(NamedTuple):
    """A task in the queue that takes `nodes` of an area for at most `limit` seconds, not before `after`."""

    nodes: int
    area: int
    limit: float
    after: float
    user: str = ""


class Closing(NamedTuple):
    """Nodes that nobody gets from `start` to `end`, counted by cells. Those that are closed now have begun."""

    cells: tuple[int, ...]
    start: float
    end: float


@dataclass(frozen=True)
class Present:
    """`areas` are sets of nodes, the first the partition's; `cells` say for each cell which areas it belongs to, and
    `free` how many of its nodes are free at `now` (s). `waiting` is in Slurm's order."""

    now: float
    areas: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]
    free: tuple[int, ...]
    running: tuple[Running, ...]
    waiting: tuple[Waiting, ...]
    closed: tuple[Closing, ...]
    by_partition: dict[str, int]
    shared: bool = False
    left_out: int = 0

    @property
    def turns(self) -> Iterator[tuple[float, int, tuple[int, ...]]]:
        """When nodes are closed (-1) or open again (1), and how many of each cell."""
        for closed in self.closed:
            if closed.start > self.now:
                yield closed.start, -1, closed.cells
            yield closed.end, 1, closed.cells

    @cached_property
    def beside(self) -> list[list[int]]:
        """How many nodes of an area are not of another."""
        return [[(a & ~b).bit_count() for b in self.areas] for a in self.areas]

    @cached_property
    def arrays(self) -> QueueArrays:
        """The same in arrays."""
        return QueueArrays(self)

    @classmethod
    def of(cls, cluster: Cluster, partition: str, most: int = 5000) -> Present:
        """What a cluster shows to jobs of this partition, with the first so many tasks of its queue. ValueError for a
        partition without nodes."""
        mine = cluster.nodes_of(partition)
        if not mine:
            raise ValueError(f"partition {partition!r} has no nodes")
        names = {name: mask for name in cluster.snapshot.partitions if (mask := cluster.nodes_of(name))}
        areas = _region(mine, [*names.values(), *(entry.within for entry in cluster.waiting)])
        region = reduce(or_, areas)
        cells = _cells(region, areas)

        def counted(nodes: int) -> tuple[int, ...]:
            return tuple((nodes & cell).bit_count() for cell in cells)

        down = reduce(or_, (c.nodes for c in cluster.closed if c.start <= cluster.now and c.end == math.inf), 0)
        shut = [c for c in cluster.closed if c.end < math.inf and c.nodes & region & ~down]
        now_shut = [c for c in shut if c.start <= cluster.now]
        busy = (cluster.busy | cluster.clearing | cluster.waking) & region
        running = []
        for job, nodes in _owned(cluster.held, region & ~down):
            running += _running(job, nodes, now_shut, counted)
        clearing = cluster.clearing & ~cluster.busy & ~down
        for soon, seconds in (
            (clearing, cluster.unknown.overdue),
            (cluster.waking & ~clearing, cluster.snapshot.wakes_in),
        ):
            if nodes := soon & region:
                running.append(Running(counted(nodes), cluster.now, seconds, cluster.now + seconds))
        closed = []
        taken = busy | down
        for each in now_shut:
            closed.append(Closing(counted(each.nodes & region & ~taken), each.start, each.end))
            taken |= each.nodes
        closed += [Closing(counted(c.nodes & region & ~down), c.start, c.end) for c in shut if c.start > cluster.now]
        number = {area: i for i, area in enumerate(areas)}
        waiting = tuple(
            Waiting(entry.nodes, number[entry.within], entry.duration, entry.after, entry.job.user)
            for entry in cluster.queue(region, places=most)
        )
        known = {name: number[mask] for name, mask in names.items() if mask in number}
        free = counted(region & ~taken)
        groups = tuple(tuple(i for i, area in enumerate(areas) if area & cell) for cell in cells)
        return cls(
            cluster.now, areas, groups, free, tuple(running), waiting, tuple(closed), known, cluster.shared,
            cluster.left_out,
        )  # fmt: skip


class QueueArrays:
    """A present in arrays: what all of its futures have in common."""

    def __init__(self, present: Present) -> None:
        areas, cells = present.areas, present.cells
        self.within = counts([a in of for of in cells] for a in range(len(areas)))
        self.beside = counts(present.beside)
        self.free = counts(present.free)
        running, waiting = present.running, present.waiting
        self.running_cells = counts(job.cells for job in running)
        self.running_limit = floats(job.limit for job in running)
        self.running_end = floats(job.end for job in running)
        self.kept = floats(job.kept for job in running)
        self.waiting_nodes = node_counts(job.nodes for job in waiting)
        self.waiting_area = counts(job.area for job in waiting)
        self.waiting_limit = floats(job.limit for job in waiting)
        self.waiting_after = floats(job.after for job in waiting)
        turns = sorted(present.turns)
        self.shut_when = floats(when for when, _, _ in turns)
        self.shut_sign = counts(sign for _, sign, _ in turns)
        self.shut_cells = counts(of for _, _, of in turns)


def _region(mine: int, masks: Iterable[int]) -> tuple[int, ...]:
    """The areas of a region, the first one's own first."""
    left, found, reached = set(masks) - {mine}, [mine], mine
    while met := sorted(mask for mask in left if mask & reached):
        found += met
        left.difference_update(met)
        reached = reduce(or_, met, reached)
    return tuple(found)


def _cells(region: int, areas: Sequence[int]) -> list[int]:
    """The nodes of each cell; those of few areas first, which is the order in which jobs take them: what only they can
    use."""
    cells = [region]
    for area in areas:
        cells = [part for cell in cells for part in (cell & area, cell & ~area) if part]
    return sorted(cells, key=lambda cell: (sum(1 for area in areas if area & cell), cell & -cell))


def _owned(held: Iterable[Held], region: int) -> list[tuple[Held, int]]:
    """The jobs with the nodes that are theirs: of those who share a node, it is that of the last one to end."""
    found, left = [], region
    for job in sorted(held, key=lambda h: (-h.end, h.job.id)):
        if nodes := job.nodes & left:
            left &= ~nodes
            found.append((job, nodes))
    return found[::-1]


def _running(
    held: Held, nodes: int, shut: Iterable[Closed], counted: Callable[[int], tuple[int, ...]]
) -> list[Running]:
    """A job on its nodes; those of a reservation that is in force stay closed until that ends."""
    limit = math.inf if held.job.time_limit is None else held.job.time_limit
    made = []
    for each in shut:
        if inside := nodes & each.nodes:
            end = max(held.end, each.end)
            made.append(Running(counted(inside), held.start, limit, end, each.end, held.job.user))
            nodes &= ~inside
    if nodes:
        made.append(Running(counted(nodes), held.start, limit, held.end, user=held.job.user))
    return made
