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

from penstock.provision.besteffort import Later, when_parents_end
from penstock.provision.dag import Dag, best_effort_cost
from penstock.provision.front import Evaluation, trade_off
from penstock.provision.greedy import SlotSite, greedy
from penstock.provision.heft import Scheduler
from penstock.provision.moga import MogaSettings, moga
from penstock.provision.pricing import PaperPricing
from penstock_lab.papers.chapters import Tell
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
    for count in range(2, len(sites) + 1):
        tell(f"sites: {count}")
        found = [
            _one(sites[:count], over_sites(a_workflow(100, 10, 14, 128, i), count, _TRANSFER), i, when)
            for i, when in enumerate(whens)
        ]
        base = statistics.fmean(f[0] for f in found)
        row: dict[str, Any] = {"sites": count, "runs": runs, "best_effort_h": base / 3600}
        for at, name in ((1, "slots"), (3, "greedy")):
            spans = [f[at] / base for f in found]
            row |= {name: statistics.fmean(spans), f"{name}_sd": statistics.stdev(spans) if runs > 1 else 0.0}
            row[f"{name}_cost"] = statistics.fmean(f[at + 1] for f in found)
        rows.append(row)
    goals = [
        Goal("2 sites, slots", "makespan over best effort", rows[0]["slots"], 0.30),
        Goal("2 sites, greedy", "cost over best effort", rows[0]["greedy_cost"], 1.43),
        Goal("2 sites, greedy over slots", "makespan", rows[0]["greedy"] / rows[0]["slots"], 1.0),
        Goal("6 sites, slots", "makespan over best effort", rows[-1]["slots"], 0.45),
    ]
    columns = ("sites", "best effort h", "slots", "sd", "cost", "greedy", "sd", "cost")
    keys = ("best_effort_h", "slots", "slots_sd", "slots_cost", "greedy", "greedy_sd", "greedy_cost")
    cells = [[str(r["sites"]), *(f"{r[key]:.3f}" for key in keys)] for r in rows]
    text = (
        f"{runs} runs each (the paper: 10), alpha 0.5, 100 tasks of 14 processors on average. Sites in this order: CTC "
        "and SDSC with more load, both with less more, both as they are. Makespan over that of best effort, cost over "
        "processors times run time. The paper: on slots about 30 % of best effort with two sites, 45 % with six; "
        "bought at adaptive prices (greedy) shorter still, at 43 % more cost with two sites."
    )
    return Chapter("sites", "Several sites (Figures 19 and 56)", text, rows, [Table("Plans", columns, cells)], goals)


def _one(sites: Sequence[tuple[int, Jobs]], dag: Dag, run: int, now: float) -> tuple[float, float, float, float, float]:
    """Makespan of best effort; makespan and cost over the least on slots; the same bought one by one."""
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
    return alone, plan.makespan, plan.cost / least, bought.makespan, bought.cost / least


def _from_zero(jobs: Jobs) -> Jobs:
    return [(submit - jobs[0][0], *rest) for submit, *rest in jobs]
