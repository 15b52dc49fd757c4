"""Workflows whose tasks buy their slots one by one at adaptive prices: chapter 7 of Singh 2008, Figures 52 to 55."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_against import FIGURES, Against, Compared
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
from penstock_planning.plan.dag import Dag, best_effort_cost, ranks
from penstock_planning.plan.greedy import SlotSite, greedy
from penstock_planning.plan.pricing import PaperPricing

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


def against_best_effort(
    machine: Machine, flows: Sequence[tuple[Callable[[int], Dag], tuple[float, ...]]], whens: list[float]
) -> list[dict[float, list[Compared]]]:
    """Workflows bought at each of these instants with each of these trade-offs, and submitted task by task at the same
    instant of the same log."""
    pricing = PaperPricing()
    found: list[dict[float, list[Compared]]] = [{alpha: [] for alpha in alphas} for _, alphas in flows]
    for i, now in enumerate(whens):
        machine.near(now)
        site = SlotSite("site", machine.queue(), pricing)
        for (dag_of, alphas), own in zip(flows, found, strict=True):
            dag = dag_of(i)
            alone, floor, least = best_effort_on(machine.copy(), dag), float(max(ranks(dag))), best_effort_cost(dag)
            for alpha in alphas:
                plan = greedy(dag, [site], alpha, now)
                own[alpha].append(Compared(alone, floor, plan.makespan, plan.cost / least))
    return found


def greedy_plans(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Makespan and cost by trade-off, width of the tasks and load."""
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    cells: list[list[str]] = []
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
                    row |= {"tasks": setting.tasks, "procs": setting.procs, "alpha": alpha}
                    against = Against.of(found)
                    rows.append({**row, **against.row(), "runs": runs})
                    told = [site, setting.figure, f"{load:.0%}", str(setting.tasks), str(setting.procs), f"{alpha:g}"]
                    cells.append([*told, *against.cells()])
                    goals += _goals(row, against)
    text = (
        f"{runs} runs each, at the same instants for plan and best effort. Every task asks for all starts from the end "
        "of its parents on (19) and buys by trade-off. Makespan over that of best effort among all jobs that came "
        "meanwhile, and cost over processors times run time, with 95 % intervals; floor is the longest path over best "
        "effort. The paper: CTC with 3 processors a task .85 at cost 2.2 (alpha 0), .89 at 1 (alpha 1); up to about 2 "
        "times the cost on CTC and 6 times on SDSC for small tasks."
    )
    columns = ("site", "figure", "load", "tasks", "procs", "alpha", *FIGURES)
    return Chapter(
        "greedy", "Slots bought one by one (Figures 52 to 55)", text, rows, [Table("Plans", columns, cells)], goals
    )


def _goals(row: dict[str, Any], against: Against) -> list[Goal]:
    """What the text of section 7.2 gives in figures, and that nothing is lost where nothing is paid."""
    figure, site, procs, alpha = row["figure"], row["site"], row["procs"], row["alpha"]
    where, name = f"{site}, {procs} processors, alpha {alpha:g}", "makespan over best effort"
    if figure == "workflow size":
        return [Goal.of(f"{site}, {row['tasks']} tasks, alpha {alpha:g}", name, against.span, 1.0)]
    if figure != "task size":
        return []
    if (site, procs) == ("CTC", 3):
        span, cost = (0.85, 2.2) if alpha == 0 else (0.89, 1.0)
    elif alpha == 1:
        span, cost = 1.0, 1.0
    else:
        return [Goal.of(where, name, against.span, 1.0)]
    return [Goal.of(where, name, against.span, span), Goal.of(where, "cost over best effort", against.cost, cost)]


def _workflow(tasks: int, procs: int, widest: int, run: int) -> Dag:
    levels = round(tasks**0.5)
    return a_workflow(tasks - tasks % levels, levels, procs, widest, run)
