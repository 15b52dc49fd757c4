"""The parts of `penstock bench provision`: Singh 2008 measured again; those of chapters 3 and 4 here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_against import FIGURES, Against, Compared
from penstock_lab.papers.provision_front import fronts
from penstock_lab.papers.provision_greedy import greedy_plans
from penstock_lab.papers.provision_machine import Machine
from penstock_lab.papers.provision_practice import practice
from penstock_lab.papers.provision_prices import prices
from penstock_lab.papers.provision_real import against_plan
from penstock_lab.papers.provision_sites import several_sites
from penstock_lab.papers.provision_var import reservations
from penstock_lab.papers.provision_world import (
    COPIES,
    SITES,
    Jobs,
    World,
    a_workflow,
    best_effort,
    cybershake,
    instants,
    read_jobs,
    read_limited_jobs,
    utilisation,
    with_second_copy,
)
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.starts import starts
from penstock_lab.papers.traces import traces
from penstock_planning.plan.dag import Dag, best_effort_cost, ranks
from penstock_planning.plan.front import Evaluation, trade_off
from penstock_planning.plan.heft import Scheduler
from penstock_planning.plan.moga import MogaSettings, moga

__all__ = ["PARTS", "SIMULATED"]

_ALPHAS: Final = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
_PERIOD: Final = 3600


def advertised(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Figures 4 to 8: how many slots are advertised, from when, for how long, how wide."""
    rows: list[dict[str, Any]] = []
    goals, cells = [], []
    for site, log in SITES.items():
        tell(f"slots: {site}")
        jobs_of = read_jobs(traces(), site)
        world = World(log.procs, jobs_of)
        counts, jobs, starts, lengths, widths = [], [], [], [], []
        for i, now in enumerate(range(jobs_of[0][0], jobs_of[-1][0], _PERIOD)):
            world.to(now)
            counts.append(len(world.table.pieces))
            jobs.append(world.in_system(now))
            if i % 20 == 0:
                for slot in world.advertised():
                    starts.append((slot.start - now) / 3600)
                    lengths.append(slot.duration / 3600)
                    widths.append(slot.procs)
        mean = statistics.fmean(counts)
        row = {
            "site": site,
            "mean": mean,
            "paper": log.slots,
            "median": statistics.median(counts),
            "most": max(counts),
            "correlation": statistics.correlation(counts, jobs),
            "start_h": statistics.fmean(starts),
            "length_h": statistics.median(lengths),
            "up_to_10_procs": sum(w <= 10 for w in widths) / len(widths),
        }
        rows.append(row)
        goals.append(Goal(site, "mean number of slots, off the paper's by", abs(mean - log.slots) / log.slots, 0.25))
        cells.append([v if isinstance(v, str) else f"{v:.2f}" for v in row.values()])
    text = (
        "Every job of the log is put on the free slots by Figure 2 when it arrives, with its real run time; the slots "
        "are counted every hour, their times and widths every twenty hours. The paper advertises `periodically` and "
        "gives the means 27 and 14 without saying how often; equal left-over pieces are joined here. The second table "
        "is of the same logs where the plan knows only the limits of the users, and all who wait move up when a job "
        "ends before its own (Figure 8): slots begin later."
    )
    columns = ("site", "slots", "paper", "median", "most", "corr. with jobs", "start h", "length h", "<= 10 procs")
    guessed = [_planned(site, estimates, tell) for site in SITES for estimates in ("exact", "users'")]
    for exact, users in zip(guessed[::2], guessed[1::2], strict=True):
        name = "median start of a slot, by exact run times over by users' limits"
        goals.append(Goal(exact["site"], name, exact["start_median_h"] / users["start_median_h"], 1.0))
    heads = ("site", "estimates", "slots", "start h: median", "90 %", "length h: median", "90 %")
    told = [[v if isinstance(v, str) else f"{v:.2f}" for v in row.values()] for row in guessed]
    tables = [Table("Slots", columns, cells), Table("Slots by exact run times and by users' limits", heads, told)]
    return Chapter("slots", "Advertised slots (Figures 4 to 8)", text, [*rows, *guessed], tables, goals)


def _planned(site: str, estimates: str, tell: Tell) -> dict[str, Any]:
    """When slots begin and how long they are, where jobs end when they end, and the plan goes by these estimates."""
    tell(f"slots: {site}, {estimates} estimates")
    jobs = (read_jobs if estimates == "exact" else read_limited_jobs)(traces(), site)
    machine = Machine(SITES[site].procs, jobs)
    counts, starts, lengths = [], [], []
    for i, now in enumerate(range(jobs[0][0], jobs[-1][0], _PERIOD)):
        machine.to(now)
        free = machine.free()
        counts.append(len(free))
        if i % 20 == 0:
            starts += [(slot.start - now) / 3600 for slot in free]
            lengths += [slot.duration / 3600 for slot in free]
    return {
        "site": site,
        "estimates": estimates,
        "mean": statistics.fmean(counts),
        "start_median_h": statistics.median(starts),
        "start_90_h": statistics.quantiles(starts, n=10)[-1],
        "length_median_h": statistics.median(lengths),
        "length_90_h": statistics.quantiles(lengths, n=10)[-1],
    }


def _compare(
    jobs: Jobs, procs: int, dag_of: Callable[[int], Dag], runs: int, alphas: tuple[float, ...]
) -> list[dict[str, Any]]:
    """One row per run: best effort, and the plan for every trade-off, on the same instant of the same log."""
    world, out = World(procs, jobs), []
    for i, now in enumerate(instants(jobs, runs, 7)):
        world.to(now)
        dag = dag_of(i)
        slots = world.advertised()
        evaluate = Evaluation(Scheduler(dag, slots, now=now))
        start = ((True,) * len(slots), tuple(s.extensible for s in slots))
        began = time.process_time()
        points = moga(evaluate, i, MogaSettings(start=start))
        row: dict[str, Any] = {"slots": len(slots), "plan_s": time.process_time() - began}
        row["best_effort"] = best_effort(world.copy(), dag, now)
        row["least_cost"], row["floor"] = best_effort_cost(dag), float(max(ranks(dag)))
        for alpha in alphas:
            chosen = trade_off(points, alpha)
            row[f"makespan_{alpha:g}"], row[f"cost_{alpha:g}"] = chosen.makespan, chosen.cost
        out.append(row)
    return out


def _against(found: list[dict[str, Any]], alpha: float) -> Against:
    return Against.of(
        [
            Compared(r["best_effort"], r["floor"], r[f"makespan_{alpha:g}"], r[f"cost_{alpha:g}"] / r["least_cost"])
            for r in found
        ]
    )


def trade_offs(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Figures 13 to 15: makespan and cost by trade-off, workflow size and task size."""
    rows: list[dict[str, Any]] = []
    goals, cells = [], []
    for site, log in SITES.items():
        jobs = read_jobs(traces(), site)
        sizes = (3, 10, 20, 30) if site == "CTC" else (1, 3, 6, 9)
        settings: list[tuple[str, int, int, tuple[float, ...]]] = [("trade-off", 100, log.tasks, _ALPHAS)]
        settings += [("task size", 100, size, (0.0, 1.0)) for size in sizes]
        settings += [("workflow size", count, log.tasks, (0.0, 1.0)) for count in (200, 300, 400)]
        for what, count, size, alphas in settings:
            tell(f"trade-off: {site}, {count} tasks of {size} processors")
            levels = round(count**0.5)
            count -= count % levels

            def dag_of(
                i: int, count: int = count, levels: int = levels, size: int = size, most: int = log.procs
            ) -> Dag:
                return a_workflow(count, levels, size, most, i)

            found = _compare(jobs, log.procs, dag_of, runs, alphas)
            for alpha in alphas:
                against = _against(found, alpha)
                row = {"site": site, "figure": what, "tasks": count, "procs": size, "alpha": alpha}
                rows.append({**row, **against.row(), "runs": runs})
                cells.append([site, what, str(count), str(size), f"{alpha:g}", *against.cells()])
            if site == "CTC" and what == "task size" and size in (3, 30):
                goal = {3: (0.87, 0.92), 30: (0.577, 0.585)}[size]
                for alpha, at_most in zip((0.0, 1.0), goal, strict=True):
                    where = f"CTC, {size} processors, alpha {alpha:g}"
                    goals.append(Goal.of(where, "makespan over best effort", _against(found, alpha).span, at_most))
    text = (
        "By the dissertation's own charge, whole slots (`--method paper`). "
        f"{runs} runs each, at the same instants for plan and best effort. Makespan over that of best effort among "
        "all jobs that came meanwhile, with 95 % intervals; floor is the longest path over the same; cost over "
        "processors times run time. The paper survives as bands: CTC with 3 "
        "processors a task .87 to .92 at cost 1.5 to 1, with 30 .577 to .585 at 1.003 to 1."
    )
    columns = ("site", "figure", "tasks", "procs", "alpha", *FIGURES)
    return Chapter(
        "trade-off", "Trade-off and sizes (Figures 13 to 15)", text, rows, [Table("Plans", columns, cells)], goals
    )


def _the_same(dag: Dag, run: int) -> Dag:
    return dag


def loads(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Figure 16, and CyberShake of Table 2 (Figure 18), against load."""
    rows: list[dict[str, Any]] = []
    goals, cells = [], []
    for site, log in SITES.items():
        jobs = read_jobs(traces(), site)
        for share in COPIES[site]:
            more = with_second_copy(jobs, share, 3) if share else jobs
            load = utilisation(more, log.procs)
            sizes = (3, 30) if site == "CTC" else (1, 9)
            flows: list[tuple[str, Callable[[int], Dag]]] = [
                (f"100 tasks of {size}", partial(a_workflow, 100, 10, size, log.procs)) for size in sizes
            ]
            if site == "CTC":
                shake = cybershake()
                flows.append(("CyberShake", partial(_the_same, shake)))
            for name, dag_of in flows:
                tell(f"load: {site} at {load:.0%}, {name}")
                found = _compare(more, log.procs, dag_of, runs, (0.5,))
                against = _against(found, 0.5)
                plan_s = max(r["plan_s"] for r in found)
                row = {"site": site, "load": load, "workflow": name, **against.row()}
                rows.append({**row, "plan_s": plan_s, "runs": len(found)})
                cells.append([site, f"{load:.0%}", name, *against.cells(), f"{plan_s:.1f}"])
                if name == "CyberShake" and share in (0.0, COPIES["CTC"][-1]):
                    where = f"CyberShake at {load:.0%}"
                    goals.append(Goal.of(where, "makespan over best effort", against.span, 0.5 if share else 0.77))
                    goals.append(Goal.of(where, "cost over best effort", against.cost, 1.05))
                    goals.append(Goal(where, "seconds to plan", plan_s, 10.0))
    text = (
        f"By the same charge, alpha 0.5, {runs} runs each, with 95 % intervals; floor is the longest path over best "
        "effort. More load is a second copy of the log, a week later, each job with a probability. The paper: "
        "CyberShake 23 % shorter at 63 % load, 50 % at 88 %."
    )
    columns = ("site", "load", "workflow", *FIGURES, "planning s")
    return Chapter(
        "load", "Load and CyberShake (Figures 16 and 18)", text, rows, [Table("Plans", columns, cells)], goals
    )


PARTS: Final[dict[str, Callable[[Path | None, Tell, int], Chapter]]] = {
    "slots": advertised,
    "front": fronts,
    "practice": practice,
    "starts": starts,
    "trade-off": trade_offs,
    "load": loads,
    "prices": prices,
    "greedy": greedy_plans,
    "var": reservations,
    "sites": several_sites,
    "real": against_plan,
}
SIMULATED: Final = tuple(name for name in PARTS if name != "real")
