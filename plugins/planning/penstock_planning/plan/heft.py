"""A workflow on free slots: HEFT over bins of slots (Singh 2008, section 4.5; Topcuoglu et al. 2002).

A bin holds the slots of one site. The tasks go one after the other, by rank, to the bin where they finish earliest
(`earliest="finish"`, the default) or, as the paper has it, start earliest (`"start"`): not the same where sites differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal

from penstock.future.bits import lowest
from penstock_planning.plan.dag import Dag, rank_order
from penstock_planning.plan.slots import Slot
from penstock_planning.plan.table import Fit, SlotTable

__all__ = ["Schedule", "ScheduledTask", "Scheduler"]

_MANY: Final = 16  # from so many equal tasks in a row on they are placed together


@dataclass(frozen=True, slots=True)
class ScheduledTask:
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
    placed: tuple[ScheduledTask, ...] = ()
    slots: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Rows:
    """What was placed so far, in the order of ranks; `sites` empty: all on the first."""

    ends: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    sites: list[int] = field(default_factory=list)


class _Run:
    """Equal tasks, one after the other by rank, with these parents (places in the order of ranks)."""

    __slots__ = ("_only", "_parents", "_same", "count")

    def __init__(self, parents: Sequence[tuple[int, ...]]) -> None:
        self.count = len(parents)
        self._parents = parents
        self._same = len(set(parents)) == 1
        self._only = [each[0] for each in parents] if all(len(each) == 1 for each in parents) else None

    def ready(self, ends: Sequence[float], now: float) -> list[tuple[float, int]]:
        """When their parents have ended, and how many in a row begin then."""
        if self._same:
            return [(max([ends[p] for p in self._parents[0]], default=now), self.count)]
        if self._only is not None:
            whens = [ends[p] for p in self._only]
        else:
            whens = [max([ends[p] for p in each], default=now) for each in self._parents]
        return [(when, len(list(group))) for when, group in groupby(whens)]


class Scheduler:
    """Puts one workflow on different sets of slots, often; `sites[i]` is the site of `slots[i]`. The tasks go in
    `order`, which has each behind its parents; unset, by rank."""

    def __init__(
        self,
        dag: Dag,
        slots: Sequence[Slot],
        sites: Sequence[int] | None = None,
        now: float = 0.0,
        earliest: Literal["finish", "start"] = "finish",
        order: Sequence[int] | None = None,
    ) -> None:
        self.slots = tuple(slots)
        self._sites = tuple(sites) if sites is not None else (0,) * len(self.slots)
        self._count = max((len(task.durations) for task in dag.tasks), default=1)
        self._now = now
        self._by_finish = earliest == "finish"
        order = rank_order(dag) if order is None else order
        self._order = order
        self._procs = [dag.tasks[i].procs for i in order]
        self._durations = [dag.tasks[i].durations for i in order]
        self._shortest = min((min(d) for d in self._durations), default=0.0)
        place = {task: at for at, task in enumerate(order)}
        self._parents = [[(place[e.parent], e) for e in dag.into(i)] for i in order]
        self._runs = list(self._equal_runs())

    def _equal_runs(self) -> Iterator[_Run]:
        """All tasks; those that are equal and do not wait for one another together, where they are many."""
        parents = [tuple(p for p, _ in each) for each in self._parents]
        kinds = list(zip(self._procs, self._durations, strict=True))
        first = 0
        for at in range(1, len(kinds) + 1):
            if at < len(kinds) and kinds[at] == kinds[first] and max(parents[at], default=-1) < first:
                continue
            if at - first >= _MANY:
                yield _Run(parents[first:at])
            else:
                yield from (_Run([each]) for each in parents[first:at])
            first = at

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
        placed: tuple[ScheduledTask, ...] = ()
        if detail:
            found = zip(
                self._order, rows.sites or [0] * len(rows.ends), rows.starts, rows.ends, rows.nodes, strict=True
            )
            placed = tuple(ScheduledTask(*row) for row in found)
        return Schedule(
            max(rows.ends, default=self._now) - self._now,
            sum(_charge(slots[i], used) for i, used in taken.items()),
            placed,
            frozenset(taken),
        )

    def _single(self, table: SlotTable, rows: _Rows, detail: bool) -> bool:
        """All tasks on one site, where nothing is moved; of equal tasks those that are ready at once go together."""
        at = 0
        for run in self._runs:
            first, before = 0, self._now
            for when, count in run.ready(rows.ends, self._now):
                # What is too short for one is too short for the next, which is ready later.
                first = self._group(table, rows, at, count, when, detail, first if when >= before else 0)
                if first < 0:
                    return False
                before = when
            at += run.count
        return True

    def _group(self, table: SlotTable, rows: _Rows, at: int, left: int, ready: float, detail: bool, first: int) -> int:
        """`left` tasks like the one at place `at`, all of them ready at `ready`; the search begins at the place `first`
        of the table. Where it may begin for more of them; -1 if they do not fit."""
        procs, duration = self._procs[at], self._durations[at][0]
        while left:
            fit = table.find(procs, duration, ready, first)
            if fit is None:
                return -1
            first = fit.first
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
        return first

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
