"""A workflow on free slots: HEFT over bins of slots (paper 001, section 4.5; Topcuoglu et al. 2002).

A bin holds the slots of one site. The tasks go one after the other, by rank, to the bin where they finish earliest
(`earliest="finish"`, the default) or, as the paper has it, start earliest (`"start"`): not the same where sites differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from penstock.planning.bits import lowest
from penstock.provision.dag import Dag, rank_order
from penstock.provision.slots import Slot
from penstock.provision.table import Fit, SlotTable

__all__ = ["Placed", "Schedule", "Scheduler"]

_MANY: Final = 16  # from so many equal tasks in a row on they are placed together


@dataclass(frozen=True, slots=True)
class Placed:
    """A task on the set `nodes` of site number `site` from `start` to `end`."""

    task: int
    site: int
    start: float
    end: float
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A workflow on slots: `makespan` is from now to the last end, infinite if it does not fit (then nothing is
    placed); `cost` is the allocation cost (4), `slots` are the numbers of those of which anything is taken."""

    makespan: float
    cost: float
    placed: tuple[Placed, ...] = ()
    slots: frozenset[int] = frozenset()


class Scheduler:
    """Puts one workflow on different sets of slots, often; `sites[i]` is the site of `slots[i]`."""

    def __init__(
        self,
        dag: Dag,
        slots: Sequence[Slot],
        sites: Sequence[int] | None = None,
        now: float = 0.0,
        earliest: Literal["finish", "start"] = "finish",
    ) -> None:
        self.slots = tuple(slots)
        self._sites = tuple(sites) if sites is not None else (0,) * len(self.slots)
        self._count = max((len(task.durations) for task in dag.tasks), default=1)
        self._now = now
        self._by_finish = earliest == "finish"
        self._dag = dag
        order = rank_order(dag)
        self._order = order
        self._procs = [dag.tasks[i].procs for i in order]
        self._durations = [dag.tasks[i].durations for i in order]
        place = {task: at for at, task in enumerate(order)}
        self._parents = [[(place[e.parent], e) for e in dag.into(i)] for i in order]
        self._runs = self._equal_runs()

    def _equal_runs(self) -> list[int]:
        """Where the run of equal tasks that begins at a place ends. Equal ranks: none waits for another."""
        runs, last = [0] * len(self._order), len(self._order)
        for at in range(len(self._order) - 1, -1, -1):
            after = at + 1
            same = (
                after < len(self._order)
                and self._procs[after] == self._procs[at]
                and self._durations[after] == self._durations[at]
                and all(parent != at for parent, _ in self._parents[after])
            )
            last = last if same else after
            runs[at] = last
        return runs

    def run(self, chosen: Sequence[int]) -> Schedule:
        """The workflow on the slots with these numbers."""
        slots, sites = self.slots, self._sites
        members: list[list[int]] = [[] for _ in range(self._count)]
        for i in chosen:
            members[sites[i]].append(i)
        tables = [SlotTable([slots[i] for i in mine]) for mine in members]
        if not (self._single(tables[0]) if self._count == 1 else self._several(tables)):
            return Schedule(math.inf, math.inf)
        placed = self._placed
        taken = {mine[n]: used for mine, table in zip(members, tables, strict=True) for n, used in table.used.items()}
        return Schedule(
            max((row[2] for row in placed), default=self._now) - self._now,
            sum(_charge(slots[i], used) for i, used in taken.items()),
            tuple(Placed(t, r, b, e, n) for t, (r, b, e, n) in zip(self._order, placed, strict=True)),
            frozenset(taken),
        )

    def _single(self, table: SlotTable) -> bool:
        """All tasks on one site, where nothing has to be moved."""
        placed: list[tuple[int, float, float, int]] = []
        self._placed = placed
        at, total = 0, len(self._order)
        while at < total:
            ready = self._now
            for parent, _ in self._parents[at]:
                end = placed[parent][2]
                if end > ready:
                    ready = end
            procs, duration = self._procs[at], self._durations[at][0]
            fit = table.find(procs, duration, ready)
            if fit is None:
                return False
            many = 1
            if self._runs[at] - at >= _MANY:
                many = self._together(table, fit, at, ready)
            nodes = table.take(fit, procs * many, duration)
            end = fit.start + duration
            if many == 1:
                placed.append((0, fit.start, end, nodes))
            else:
                for _ in range(many):
                    placed.append((0, fit.start, end, mine := lowest(nodes, procs)))
                    nodes ^= mine
            at += many
        return True

    def _together(self, table: SlotTable, fit: Fit, at: int, ready: float) -> int:
        """How many of the tasks from `at` on can be placed like it, at once."""
        room = table.fit_many(self._runs[at] - at, fit, self._procs[at])
        placed, now, many = self._placed, self._now, 1
        while many < room:
            parents = self._parents[at + many]
            if max((placed[p][2] for p, _ in parents), default=now) != ready and (parents or ready != now):
                break
            many += 1
        return many

    def _several(self, tables: Sequence[SlotTable]) -> bool:
        """All tasks, each on the site that is best for it."""
        placed: list[tuple[int, float, float, int]] = []
        self._placed = placed
        for at in range(len(self._order)):
            best: tuple[float, float, int] | None = None
            best_fit: Fit | None = None
            for site, table in enumerate(tables):
                duration = self._durations[at][site]
                ready = max(
                    (placed[p][2] + edge.time(placed[p][0], site) for p, edge in self._parents[at]), default=self._now
                )
                fit = table.find(self._procs[at], duration, max(ready, self._now))
                if fit is None:
                    continue
                end = fit.start + duration
                key = (end, fit.start, site) if self._by_finish else (fit.start, end, site)
                if best is None or key < best:
                    best, best_fit = key, fit
            if best is None or best_fit is None:
                return False
            duration = self._durations[at][best[2]]
            nodes = tables[best[2]].take(best_fit, self._procs[at], duration)
            placed.append((best[2], best_fit.start, best_fit.start + duration, nodes))
        return True


def _charge(slot: Slot, used: float) -> float:
    """What a slot costs of which `used` processors times time are taken: all of it, unless it is divisible."""
    if not slot.divisible:
        used = max(used, slot.procs * slot.duration)
    return used * slot.c + slot.f
