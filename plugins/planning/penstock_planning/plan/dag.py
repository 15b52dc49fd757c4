"""A workflow as the planners see it: tasks with processors and run times per site, edges with data to move."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from penstock.errors import UserError
from penstock.values.graph import find_cycle

__all__ = ["Dag", "DagTask", "Edge", "best_effort_cost", "one_site", "rank_order", "ranks"]


@dataclass(frozen=True, slots=True)
class DagTask:
    """`procs` processors for `durations[r]` at site r (one time unit throughout); infinite: it cannot run there."""

    name: str
    procs: int
    durations: tuple[float, ...]

    def mean(self) -> Fraction:
        """w_i of (7), exactly: the mean over the sites where it can run."""
        able = [d for d in self.durations if d < math.inf]
        return sum((Fraction(d) for d in able), Fraction(0)) / max(len(able), 1)


@dataclass(frozen=True, slots=True)
class Edge:
    """Task number `child` needs what `parent` made: `times[a][b]` to move it from site a to b, 0 on the same site."""

    parent: int
    child: int
    times: tuple[tuple[float, ...], ...] = ()

    def time(self, source: int, target: int) -> float:
        """How long the data take from one site to the other."""
        return self.times[source][target] if self.times and source != target else 0.0

    def mean(self) -> Fraction:
        """c_ij of (7): the mean over pairs of *different* sites; pairs within a site would only dilute it."""
        pairs = list(combinations(range(len(self.times)), 2))
        if not pairs:
            return Fraction(0)
        return sum((Fraction(self.times[a][b]) + Fraction(self.times[b][a]) for a, b in pairs), Fraction(0)) / (
            2 * len(pairs)
        )


@dataclass(frozen=True)
class Dag:
    """Tasks by number, and edges without a cycle. Raises UserError when the tasks wait for each other in a circle."""

    tasks: tuple[DagTask, ...]
    edges: tuple[Edge, ...]
    _into: Mapping[int, list[Edge]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if cycle := find_cycle(len(self.tasks), ((edge.parent, edge.child) for edge in self.edges)):
            names = [self.tasks[i].name for i in cycle]
            raise UserError(f"the tasks form a cycle: {' -> '.join(names)}")
        into: dict[int, list[Edge]] = {i: [] for i in range(len(self.tasks))}
        for edge in self.edges:
            into[edge.child].append(edge)
        object.__setattr__(self, "_into", into)

    def into(self, task: int) -> Sequence[Edge]:
        """The edges that end at a task."""
        return self._into[task]


def one_site(tasks: Sequence[tuple[str, int, float, Sequence[str]]]) -> Dag:
    """From (name, processors, duration, names of the parents), on a single site."""
    number = {name: i for i, (name, *_) in enumerate(tasks)}
    return Dag(
        tuple(DagTask(name, procs, (duration,)) for name, procs, duration, _ in tasks),
        tuple(Edge(number[parent], number[name]) for name, _, _, parents in tasks for parent in parents),
    )


def ranks(dag: Dag) -> list[Fraction]:
    """The upward rank (7) of every task, by number: exact, since ties decide (golden case G6)."""
    out: list[list[Edge]] = [[] for _ in dag.tasks]
    waiting = [0] * len(dag.tasks)
    for edge in dag.edges:
        out[edge.parent].append(edge)
        waiting[edge.parent] += 1
    value = [task.mean() for task in dag.tasks]
    best = [Fraction(0)] * len(dag.tasks)
    ready = [i for i, count in enumerate(waiting) if not count]
    while ready:
        task = ready.pop()
        value[task] += best[task]
        for edge in dag.into(task):
            best[edge.parent] = max(best[edge.parent], edge.mean() + value[task])
            waiting[edge.parent] -= 1
            if not waiting[edge.parent]:
                ready.append(edge.parent)
    return value


def rank_order(dag: Dag) -> list[int]:
    """The tasks by falling rank, which is a topological order; of equal ranks the one that was written first."""
    value = ranks(dag)
    return sorted(range(len(dag.tasks)), key=lambda i: (-value[i], i))


def best_effort_cost(dag: Dag) -> float:
    """(16): processors times run time, summed; on several sites with the mean run time. No plan can cost less."""
    return float(sum(task.procs * task.mean() for task in dag.tasks))
