"""Workflows whose tasks buy their slots one by one at adaptive prices: chapter 7 of Singh 2008, Figures 52 to 55."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.provision.dag import Dag, best_effort_cost
from penstock.provision.greedy import SlotSite, greedy
from penstock.provision.pricing import PaperPricing
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_machine import Machine, best_effort_on
from penstock_lab.papers.provision_world import (
    COPIES,
    SITES,
    a_workflow,
    instants,
    read_jobs,
    utilisation,
    with_second_copy,
)
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces

__all__ = ["Setting", "against_best_effort", "greedy_plans"]

_ALPHAS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_TASKS: Final = 100
_SIZES: Final = (200, 400)
_MANY: Final = 10  # runs; with fewer the largest workflow, which takes most of the time, is left out


@dataclass(frozen=True, slots=True)
class Setting:
    """So many tasks of so many processors on average, planned with each of these trade-offs, for one of the paper's
    figures."""

    figure: str
    tasks: int
    procs: int
    alphas: tuple[float, ...]


Ratios = list[tuple[float, float]]
"""Of every run: makespan over the mean of best effort, cost over processors times run time."""


def against_best_effort(
    machine: Machine, flows: Sequence[tuple[Callable[[int], Dag], tuple[float, ...]]], whens: list[float]
) -> list[dict[float, Ratios]]:
    """Workflows bought at each of these instants with each of these trade-offs, and submitted task by task at the same
    instant of the same log."""
    pricing = PaperPricing()
    spans: list[list[float]] = [[] for _ in flows]
    plans: list[dict[float, Ratios]] = [{alpha: [] for alpha in alphas} for _, alphas in flows]
    for i, now in enumerate(whens):
        machine.near(now)
        site = SlotSite("site", machine.queue(), pricing)
        for (dag_of, alphas), own, found in zip(flows, spans, plans, strict=True):
            dag = dag_of(i)
            for alpha in alphas:
                plan = greedy(dag, [site], alpha, now)
                found[alpha].append((plan.makespan, plan.cost / best_effort_cost(dag)))
            own.append(best_effort_on(machine.copy(), dag))
    means = [statistics.fmean(own) for own in spans]
    return [
        {alpha: [(span / base, cost) for span, cost in pairs] for alpha, pairs in found.items()}
        for base, found in zip(means, plans, strict=True)
    ]


def greedy_plans(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Makespan and cost by trade-off, width of the tasks and load."""
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    sizes = _SIZES if runs >= _MANY else _SIZES[:1]
    for site, log in SITES.items():
        plain = read_jobs(traces(), site)
        small, wide = (3, 30) if site == "CTC" else (1, 9)
        for share in COPIES[site]:
            jobs = with_second_copy(plain, share, 3) if share else plain
            load = utilisation(jobs, log.procs)
            settings = [Setting("load", _TASKS, size, (0.5,)) for size in (small, wide)]
            if not share:
                settings.append(Setting("trade-off", _TASKS, log.tasks, _ALPHAS))
                settings += [Setting("task size", _TASKS, size, (0.0, 1.0)) for size in (small, wide)]
                settings += [Setting("workflow size", tasks, log.tasks, (0.0, 1.0)) for tasks in sizes]
            tell(f"greedy: {site} at {load:.0%}")
            flows = [(partial(_workflow, s.tasks, s.procs, log.procs), s.alphas) for s in settings]
            results = against_best_effort(Machine(log.procs, jobs), flows, instants(jobs, runs, 7))
            for setting, result in zip(settings, results, strict=True):
                for alpha, found in result.items():
                    row = {"site": site, "figure": setting.figure, "load": load}
                    row |= {
                        "tasks": setting.tasks,
                        "procs": setting.procs,
                        "alpha": alpha,
                        "makespan": _mean(found, 0),
                        "sd": _spread(found, 0),
                    }
                    row |= {"cost": _mean(found, 1), "cost_sd": _spread(found, 1), "runs": runs}
                    rows.append(row)
                    goals += _goals(row)
    text = (
        f"{runs} runs each, at the same instants for plan and best effort. Every task asks for all starts from the end "
        "of its parents on (19) and buys by trade-off. Makespan over that of best effort among all jobs that came "
        "meanwhile, cost over processors times run time. The paper: CTC with 3 processors a task .85 at cost 2.2 "
        "(alpha 0), .89 at 1 (alpha 1); up to about 2 times the cost on CTC and 6 times on SDSC for small tasks."
    )
    columns = ("site", "figure", "load", "tasks", "procs", "alpha", "makespan", "sd", "cost", "sd of cost")
    cells = [
        [r["site"], r["figure"], f"{r['load']:.0%}", str(r["tasks"]), str(r["procs"]), f"{r['alpha']:g}"]
        + [f"{r[key]:.3f}" for key in ("makespan", "sd", "cost", "cost_sd")]
        for r in rows
    ]
    return Chapter(
        "greedy", "Slots bought one by one (Figures 52 to 55)", text, rows, [Table("Plans", columns, cells)], goals
    )


def _goals(row: dict[str, Any]) -> list[Goal]:
    """What the text of section 7.2 gives in figures, and that nothing is lost where nothing is paid."""
    figure, site, procs, alpha = row["figure"], row["site"], row["procs"], row["alpha"]
    where = f"{site}, {procs} processors, alpha {alpha:g}"
    if figure == "workflow size":
        return [
            Goal(f"{site}, {row['tasks']} tasks, alpha {alpha:g}", "makespan over best effort", row["makespan"], 1.0)
        ]
    if figure != "task size":
        return []
    if (site, procs) == ("CTC", 3):
        span, cost = (0.85, 2.2) if alpha == 0 else (0.89, 1.0)
    elif alpha == 1:
        span, cost = 1.0, 1.0
    else:
        return [Goal(where, "makespan over best effort", row["makespan"], 1.0)]
    return [
        Goal(where, "makespan over best effort", row["makespan"], span),
        Goal(where, "cost over best effort", row["cost"], cost),
    ]


def _workflow(tasks: int, procs: int, widest: int, run: int) -> Dag:
    levels = round(tasks**0.5)
    return a_workflow(tasks - tasks % levels, levels, procs, widest, run)


def _mean(found: Ratios, which: int) -> float:
    return statistics.fmean(pair[which] for pair in found)


def _spread(found: Ratios, which: int) -> float:
    return statistics.stdev(pair[which] for pair in found) if len(found) > 1 else 0.0
