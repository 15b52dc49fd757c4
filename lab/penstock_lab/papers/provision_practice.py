"""Reserved plans where the queue knows only the time limits of its users: what they end up as, beside best effort.

Jobs end before their limits, and those who wait are moved up. A plan that is kept as it was made then falls behind. So
its slots are exchanged for earlier ones behind all who wait, as `penstock_planning.plan.repair`, which the agent goes
by, says: whenever a job has ended early, and as far ahead as a reservation has to be asked for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.future.bits import members
from penstock_lab.intervals import Interval, mean_of, ratio_of_means
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_machine import Machine, best_effort_on, chain_on
from penstock_lab.papers.provision_world import SITES, Jobs, a_workflow, instants, read_limited_jobs
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces
from penstock_planning.hold.reservations import LEAD
from penstock_planning.plan.dag import Dag, rank_order, ranks
from penstock_planning.plan.heft import Schedule
from penstock_planning.plan.orders import free_plans
from penstock_planning.plan.repair import Free, SlotChange, StageNow, StageProgress, repair

__all__ = ["Ended", "PlannedMachine", "in_practice", "practice"]

_INSTANTS: Final = 200
_FULL: Final = 10
_SIZES: Final = {"CTC": (22, 3), "SDSC": (6, 1)}
_GOAL: Final = 0.80
_LATER: Final = 0.02
_TASKS: Final = 100
_NODES: Final = tuple(map(str, range(1024)))
_NOTICE: Final = {"notice": 300.0, "at_once": LEAD}
"""Seconds ahead for which a slot is asked for under `provision.limits: careful`, and under `open`."""


class PlannedMachine(Machine):
    """A machine on which the tasks of one plan have slots."""

    def __init__(self, size: int, jobs: Jobs) -> None:
        super().__init__(size, jobs)
        self._dag, self._notice = Dag((), ()), 0.0
        self._slots_of: dict[int, tuple[float, float, int]] = {}
        self.requests = 0

    def hold(self, dag: Dag, plan: Schedule, notice: float) -> None:
        """Reserve the slots of a plan, which are free; they are exchanged `notice` seconds ahead."""
        self._dag, self._notice = dag, notice
        self._slots_of = {p.task: (p.start, p.end, p.nodes) for p in plan.placed}
        for start, end, nodes in self._slots_of.values():
            self._profile.block(nodes, start, end)

    def finish(self) -> float:
        """Go on until the plan has ended; when."""
        while (last := max(end for _, end, _ in self._slots_of.values())) > self.now:
            self.to(last)
        return last

    def _compress(self) -> None:
        super()._compress()
        while changes := repair(self._stages(), self.now, self, notice=self._notice):
            self.requests += len(changes)
            for change in changes:
                assert isinstance(change, SlotChange) and change.moves  # nothing fails here, and nothing has a price
                task, begin, nodes = int(change.stage), change.to.start, _mask(change.to.nodes)
                start, end, _ = self._slots_of[task]
                self._slots_of[task] = begin, begin + end - start, nodes

    def _stages(self) -> list[StageNow]:
        """The tasks as they stand, each behind its parents."""
        found = []
        for i in rank_order(self._dag) if self._slots_of else ():
            start, end, nodes = self._slots_of[i]
            standing = StageProgress.WAITING if start > self.now else StageProgress.RUNNING
            standing = StageProgress.DONE if end <= self.now else standing
            after = tuple(str(edge.parent) for edge in self._dag.into(i))
            slot, on = (start, end), _names(nodes)
            found.append(StageNow(str(i), nodes.bit_count(), end - start, after, standing, slot, end, on=on))
        return found

    def find(self, nodes: int, duration: float, after: float) -> Free | None:
        """See `Holes`."""
        found = self._profile.earliest(nodes, duration, after, self.everything)
        return None if found is None else Free(found[0], _names(found[1]))

    def take(self, hole: Free, duration: float) -> None:
        """See `Holes`."""
        self._profile.block(_mask(hole.nodes), hole.start, hole.start + duration)

    def give(self, slot: Free, duration: float) -> None:
        """See `Holes`."""
        self._profile.open(_mask(slot.nodes), slot.start, slot.start + duration)


def _names(nodes: int) -> tuple[str, ...]:
    return members(_NODES, nodes)


def _mask(names: Sequence[str]) -> int:
    return sum(1 << int(name) for name in names)


class Ended(NamedTuple):
    """Makespans (s) at one instant: best effort, a chain that keeps its place in the queue, the plan as it was made,
    with slots exchanged after a notice and at once, and the longest path; and the requests that this took."""

    best_effort: float
    chain: float
    kept: float
    notice: float
    at_once: float
    floor: float
    requests: int


def in_practice(jobs: Jobs, procs: int, count: int, width: int, whens: Sequence[float]) -> Iterator[Ended]:
    """Workflows of `count` tasks of `width` processors on average at these instants of a log with time limits."""
    machine, levels = PlannedMachine(procs, jobs), round(count**0.5)
    for i, now in enumerate(map(math.ceil, whens)):  # as Slurm has them; sums are exact
        machine.near(now)
        dag = a_workflow(count - count % levels, levels, width, procs, i)
        plan = min(free_plans(dag, machine.free(), now=now, seed=i), key=lambda plan: plan.makespan)
        ways, requests = [], 0
        for notice in _NOTICE.values():
            twin = machine.copy()
            twin.hold(dag, plan, notice)
            ways.append(twin.finish() - now)
            requests = twin.requests
        alone, chain = best_effort_on(machine.copy(), dag), chain_on(machine.copy(), dag)
        yield Ended(alone, chain, plan.makespan, ways[0], ways[1], float(max(ranks(dag))), requests)


def practice(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Makespan over best effort by site and width, for each way to keep a plan."""
    many = _INSTANTS if runs >= _FULL else runs
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    for site, log in SITES.items():
        jobs = read_limited_jobs(traces(), site)
        for width in _SIZES[site]:
            tell(f"practice: {site}, {_TASKS} tasks of {width} processors")
            found = list(in_practice(jobs, log.procs, _TASKS, width, instants(jobs, many, 7)))
            base = [each.best_effort for each in found]
            floor = ratio_of_means([each.floor for each in found], base).value
            for way in ("chain", "kept", *_NOTICE):
                spans = [getattr(each, way) for each in found]
                ratio, pairs = ratio_of_means(spans, base), list(zip(spans, base, strict=True))
                row = {"site": site, "procs": width, "way": way, "makespan": ratio.value, "low": ratio.low}
                row |= {"high": ratio.high, "median": statistics.median(a / b for a, b in pairs), "floor": floor}
                later = sum(a > b + 1 for a, b in pairs)
                asked = {"requests": statistics.mean(each.requests for each in found)} if way == "at_once" else {}
                rows.append(row | {"later": later, "runs": many} | asked)
                if way == "at_once" and width == log.tasks:
                    where = f"{site}, {width} processors, exchanged at once"
                    goals.append(Goal.of(where, "makespan over best effort, at the same cost", ratio, _GOAL))
                    share = mean_of([float(a > b + 1) for a, b in pairs])
                    goals.append(Goal.of(where, "share that ends later than best effort", share, _LATER))
    text = (
        f"{many} instants of each log, at which the queue is planned by its users' time limits while jobs end when "
        "they did; plan and best effort at the same ones; 95 % intervals. `chain`: all tasks are in the queue from the "
        "beginning, and keep their places while they wait (priority/basic, ACCRUE_ALWAYS). `kept`: the slots as they "
        f"were planned; `notice`: exchanged for earlier ones {_NOTICE['notice']:g} s ahead; `at_once`: "
        f"{_NOTICE['at_once']:g} s. All cost the same: slots are free, or taken behind all who wait."
    )
    columns = ("site", "procs", "slots", "makespan", "median", "floor", "later than best effort")
    cells = [
        (
            *(r["site"], str(r["procs"]), r["way"], Interval(r["makespan"], r["low"], r["high"]).told()),
            *(f"{r['median']:.3f}", f"{r['floor']:.3f}", f"{r['later']} of {r['runs']}"),
        )
        for r in rows
    ]
    return Chapter("practice", "Plans where limits are not kept", text, rows, [Table("Plans", columns, cells)], goals)
