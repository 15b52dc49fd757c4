"""What `penstock plan` gains on free slots: chapter 4 of Singh 2008 again, at the charge of what is really booked.

The dissertation's plans pay for whole slots; here each task pays for its own place, so that every plan costs what best
effort costs, and the question is only how much earlier it ends.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock_lab.intervals import Interval, ratio_of_means
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_world import SITES, Jobs, World, a_workflow, best_effort, instants, read_jobs
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces
from penstock_planning.plan.dag import Dag, ranks
from penstock_planning.plan.orders import free_plans

__all__ = ["Compared", "compare", "fronts"]

_INSTANTS: Final = 200
_FULL: Final = 10  # runs; with fewer it is a trial, and that many instants
_GOALS: Final = {("CTC", 3): 0.87, ("CTC", 30): 0.58, ("SDSC", 1): 0.82, ("SDSC", 9): 0.53}
_COUNTS: Final = (200, 300, 400)
_SIZES: Final = {"CTC": (3, 10, 22, 30), "SDSC": (1, 3, 6, 9)}


class Compared(NamedTuple):
    """Makespans (s) at one instant of a log: of best effort among all who come meanwhile, of the plan, of HEFT's order
    alone, and of the longest path, below which nobody comes."""

    best_effort: float
    planned: float
    heft: float
    floor: float


def compare(jobs: Jobs, procs: int, count: int, width: int, runs: int) -> Iterator[Compared]:
    """Workflows of `count` tasks of `width` processors on average at so many instants of a log."""
    world, levels = World(procs, jobs), round(count**0.5)
    for i, now in enumerate(instants(jobs, runs, 7)):
        world.to(now)
        dag = a_workflow(count - count % levels, levels, width, procs, i)
        spans = [plan.makespan for plan in free_plans(dag, world.advertised(), now=now, seed=i)]
        spans.append(_in_the_queue(world, dag, now))
        yield Compared(best_effort(world.copy(), dag, now), min(spans), spans[0], float(max(ranks(dag))))


def _in_the_queue(world: World, dag: Dag, now: float) -> float:
    """What the queue alone would give if nobody else came, which can be reserved just as well."""
    alone = world.copy()
    alone.jobs = []
    return best_effort(alone, dag, now)


def fronts(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Makespan over best effort by site and width of the tasks, and by number of tasks."""
    many = _INSTANTS if runs >= _FULL else runs
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    for site, log in SITES.items():
        jobs = read_jobs(traces(), site)
        settings = [(100, width) for width in _SIZES[site]] + [(count, log.tasks) for count in _COUNTS]
        for count, width in settings:
            tell(f"front: {site}, {count} tasks of {width} processors")
            found = list(compare(jobs, log.procs, count, width, many))
            ratio = _over(found, "planned")
            rows.append({"site": site, "tasks": count, "procs": width, **_row(found, ratio)})
            if count == 100 and (site, width) in _GOALS:
                goal = partial(Goal.of, f"{site}, {width} processors", "makespan over best effort, at the same cost")
                goals.append(goal(ratio, _GOALS[site, width]))
    text = (
        f"{many} instants of each log with exact run times, plan and best effort at the same ones; 95 % intervals. "
        "Every plan costs what best effort costs. The plan ends first of sixty orders of the tasks and that of the "
        "queue; beside it HEFT's order alone, and the longest path, which is a floor for all."
    )
    columns = ("site", "tasks", "procs", "makespan", "median", "HEFT alone", "floor", "later than best effort")
    cells = [
        (
            *(r["site"], str(r["tasks"]), str(r["procs"]), Interval(r["makespan"], r["low"], r["high"]).told()),
            *(f"{r['median']:.3f}", f"{r['heft']:.3f}", f"{r['floor']:.3f}", f"{r['later']} of {r['runs']}"),
        )
        for r in rows
    ]
    return Chapter("front", "Plans at the cost of best effort", text, rows, [Table("Plans", columns, cells)], goals)


def _over(found: list[Compared], what: str) -> Interval:
    return ratio_of_means([getattr(c, what) for c in found], [c.best_effort for c in found])


def _row(found: list[Compared], ratio: Interval) -> dict[str, Any]:
    return {
        "makespan": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "median": statistics.median(c.planned / c.best_effort for c in found),
        "heft": _over(found, "heft").value,
        "floor": _over(found, "floor").value,
        "later": sum(c.planned > c.best_effort + 1e-6 for c in found),
        "runs": len(found),
    }
