"""Workflows over two to six sites against best effort: Figures 19 and 56 of Singh 2008.

The sites are the two logs at their loads, the most loaded first, all on one clock; a task's data take 250 s to another
site. Best effort sends each task, when its parents have ended, to the site with the fewest jobs, and submits it there
when its data have come.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappush
from pathlib import Path
from typing import Any, Final

from penstock_lab.intervals import ratio_of_means
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_against import FIGURES, Against, Compared
from penstock_lab.papers.provision_machine import Machine
from penstock_lab.papers.provision_world import (
    COPIES,
    SITES,
    Jobs,
    World,
    a_workflow,
    instants,
    read_jobs,
    with_second_copy,
)
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces
from penstock_planning.plan.besteffort import Later, when_parents_end
from penstock_planning.plan.dag import Dag, best_effort_cost, ranks
from penstock_planning.plan.front import Evaluation, trade_off
from penstock_planning.plan.greedy import SlotSite, greedy
from penstock_planning.plan.heft import Scheduler
from penstock_planning.plan.moga import MogaSettings, moga
from penstock_planning.plan.pricing import PaperPricing

__all__ = ["among_sites", "over_sites", "several_sites"]

_ORDER: Final = (("CTC", 2), ("SDSC", 2), ("CTC", 1), ("SDSC", 1), ("CTC", 0), ("SDSC", 0))
"""The sites in the order in which they are added (section 4.9), and which of the shares in COPIES loads them."""
_TRANSFER: Final = 1000 / 10 + 150
_WARM: Final = 14 * 86400
_ALPHA: Final = 0.5


def over_sites(dag: Dag, count: int, transfer: float) -> Dag:
    """The workflow for `count` equal sites between which data take so long."""
    times = tuple(tuple(0.0 if a == b else transfer for b in range(count)) for a in range(count))
    tasks = tuple(replace(task, durations=task.durations[:1] * count) for task in dag.tasks)
    return Dag(tasks, tuple(replace(edge, times=times) for edge in dag.edges))


def among_sites(worlds: Sequence[World], dag: Dag, now: float) -> float:
    """The makespan of best effort on these machines, among all who come meanwhile."""
    ends, chosen = [now] * len(dag.tasks), [-1] * len(dag.tasks)

    def submit(when: float, i: int) -> float | Later:
        for world in worlds:
            world.to(when)
        task = dag.tasks[i]
        if chosen[i] < 0:
            able = [r for r, world in enumerate(worlds) if task.procs <= world.procs]
            site = chosen[i] = min(able, key=lambda r: (worlds[r].in_system(when), r))
            there = max((ends[e.parent] + e.time(chosen[e.parent], site) for e in dag.into(i)), default=when)
            if there > when:
                return Later(there)
        world = worlds[chosen[i]]
        start = world.table.put(task.procs, task.durations[chosen[i]], when)
        assert start is not None
        ends[i] = start + task.durations[chosen[i]]
        heappush(world.ends, ends[i])
        return ends[i]

    return when_parents_end(dag, now, submit) - now


def several_sites(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Makespan and cost with one site more each time: planned on free slots, and bought at adaptive prices."""
    logs = {site: _from_zero(read_jobs(traces(), site)) for site in SITES}
    sites = []
    for site, level in _ORDER:
        share = COPIES[site][level]
        sites.append((SITES[site].procs, with_second_copy(logs[site], share, 3) if share else logs[site]))
    whens = instants(logs["CTC"], runs, 7)
    rows: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    goals: list[Goal] = []
    for count in range(2, len(sites) + 1):
        tell(f"sites: {count}")
        found = [_one(sites[:count], a_workflow(100, 10, 14, 128, i), i, when) for i, when in enumerate(whens)]
        ways = {name: Against.of([pair[at] for pair in found]) for at, name in enumerate(("slots", "greedy"))}
        base = statistics.fmean(slots.alone for slots, _ in found) / 3600
        faster = ratio_of_means([greedy.span for _, greedy in found], [slots.span for slots, _ in found])
        for name, against in ways.items():
            rows.append({"sites": count, "runs": runs, "best_effort_h": base, "way": name, **against.row()})
            cells.append([str(count), f"{base:.3f}", name, *against.cells()])
        if count == 2:
            goals.append(Goal.of("2 sites, slots", "makespan over best effort", ways["slots"].span, 0.30))
            goals.append(Goal.of("2 sites, greedy", "cost over best effort", ways["greedy"].cost, 1.43))
            goals.append(Goal.of("2 sites, greedy over slots", "makespan", faster, 1.0))
        if count == len(sites):
            goals.append(Goal.of("6 sites, slots", "makespan over best effort", ways["slots"].span, 0.45))
    columns = ("sites", "best effort h", "way", *FIGURES)
    text = (
        f"{runs} runs each (the paper: 10), alpha 0.5, 100 tasks of 14 processors on average. Sites in this order: CTC "
        "and SDSC with more load, both with less more, both as they are. Makespan over that of best effort and cost "
        "over processors times run time, with 95 % intervals; floor is the longest path, without transfers, over best "
        "effort. The paper: on slots about 30 % of best effort with two sites, 45 % with six; bought at adaptive "
        "prices (greedy) shorter still, at 43 % more cost with two sites."
    )
    return Chapter("sites", "Several sites (Figures 19 and 56)", text, rows, [Table("Plans", columns, cells)], goals)


def _one(sites: Sequence[tuple[int, Jobs]], dag: Dag, run: int, now: float) -> tuple[Compared, Compared]:
    """On slots, and the same bought one by one."""
    floor, dag = float(max(ranks(dag))), over_sites(dag, len(sites), _TRANSFER)
    worlds, queues = [], []
    for procs, jobs in sites:
        recent = [job for job in jobs if now - _WARM <= job[0]]
        world, machine = World(procs, recent), Machine(procs, recent)
        world.to(now)
        machine.to(now)
        worlds.append(world)
        queues.append(machine.queue())
    offers = [(r, slot) for r, world in enumerate(worlds) for slot in world.advertised()]
    slots = [slot for _, slot in offers]
    evaluate = Evaluation(Scheduler(dag, slots, [r for r, _ in offers], now))
    start = ((True,) * len(slots), tuple(slot.extensible for slot in slots))
    plan = trade_off(moga(evaluate, run, MogaSettings(start=start)), _ALPHA)
    priced = [SlotSite(f"site {r}", queue, PaperPricing()) for r, queue in enumerate(queues)]
    bought = greedy(dag, priced, _ALPHA, now)
    least = best_effort_cost(dag)
    alone = among_sites([world.copy() for world in worlds], dag, now)
    on_slots = Compared(alone, floor, plan.makespan, plan.cost / least)
    return on_slots, Compared(alone, floor, bought.makespan, bought.cost / least)


def _from_zero(jobs: Jobs) -> Jobs:
    return [(submit - jobs[0][0], *rest) for submit, *rest in jobs]
