"""A workflow on free slots: HEFT over bins of slots (paper 001, section 4.5; Topcuoglu et al. 2002).

A bin holds the slots of one site. The tasks go one after the other, by rank, to the bin where they finish earliest
(`earliest="finish"`, the default) or, as the paper has it, start earliest (`"start"`): not the same where sites differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
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


@dataclass(slots=True)
class _Rows:
    """What was placed so far, in the order of ranks; `sites` empty: all on the first."""

    ends: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    sites: list[int] = field(default_factory=list)


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
        self._shortest = min((min(d) for d in self._durations), default=0.0)
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

    def run(self, chosen: Sequence[int], detail: bool = True) -> Schedule:
        """The workflow on the slots with these numbers; without `detail` the values only, `placed` stays empty."""
        slots, sites = self.slots, self._sites
        members: list[list[int]] = [[] for _ in range(self._count)]
        for i in chosen:
            members[sites[i]].append(i)
        tables = [SlotTable([slots[i] for i in mine], self._shortest, detail) for mine in members]
        rows = _Rows()
        if not (self._single(tables[0], rows, detail) if self._count == 1 else self._several(tables, rows)):
            return Schedule(math.inf, math.inf)
        taken = {mine[n]: used for mine, table in zip(members, tables, strict=True) for n, used in table.used.items()}
        placed: tuple[Placed, ...] = ()
        if detail:
            found = zip(
                self._order, rows.sites or [0] * len(rows.ends), rows.starts, rows.ends, rows.nodes, strict=True
            )
            placed = tuple(Placed(*row) for row in found)
        return Schedule(
            max(rows.ends, default=self._now) - self._now,
            sum(_charge(slots[i], used) for i, used in taken.items()),
            placed,
            frozenset(taken),
        )

    def _single(self, table: SlotTable, rows: _Rows, detail: bool) -> bool:
        """All tasks on one site, where nothing is moved; of equal tasks those that are ready at once go together."""
        at, ends = 0, rows.ends
        while at < len(self._order):
            last = self._runs[at]
            if last - at < _MANY:
                last = at + 1
            now = self._now
            ready = [max([ends[p] for p, _ in parents], default=now) for parents in self._parents[at:last]]
            for when, group in groupby(ready):
                if not self._group(table, rows, at, len(list(group)), max(when, now), detail):
                    return False
            at = last
        return True

    def _group(self, table: SlotTable, rows: _Rows, at: int, left: int, ready: float, detail: bool) -> bool:
        """`left` tasks like the one at place `at`, all of them ready at `ready`."""
        procs, duration = self._procs[at], self._durations[at][0]
        while left:
            fit = table.find(procs, duration, ready)
            if fit is None:
                return False
            many = table.fit_many(left, fit, procs) if left > 1 else 1
            nodes = table.take(fit, procs * many, duration)
            end = fit.start + duration
            rows.ends.extend([end] * many)
            if detail:
                rows.starts.extend([fit.start] * many)
                for _ in range(many - 1):
                    rows.nodes.append(mine := lowest(nodes, procs))
                    nodes ^= mine
                rows.nodes.append(nodes)
            left -= many
        return True

    def _several(self, tables: Sequence[SlotTable], rows: _Rows) -> bool:
        """All tasks, each on the site that is best for it."""
        for at in range(len(self._order)):
            best: tuple[float, float, int] | None = None
            best_fit: Fit | None = None
            for site, table in enumerate(tables):
                duration = self._durations[at][site]
                if duration == math.inf:
                    continue
                ready = max(
                    (rows.ends[p] + edge.time(rows.sites[p], site) for p, edge in self._parents[at]), default=self._now
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
            rows.nodes.append(tables[best[2]].take(best_fit, self._procs[at], duration))
            rows.sites.append(best[2])
            rows.starts.append(best_fit.start)
            rows.ends.append(best_fit.start + duration)
        return True


def _charge(slot: Slot, used: float) -> float:
    """What a slot costs of which `used` processors times time are taken: all of it, unless it is divisible."""
    if not slot.divisible:
        used = max(used, slot.procs * slot.duration)
    return used * slot.c + slot.f
