"""Table 4 of the DMR paper again: the same workloads, each in several versions, on the simulated Slurm.

    fixed              rigid, at the maximum: the paper's fixed version
    paper              malleable, submitted at the maximum, under the paper's policy (`wide`): its flexible version
    flexible           the same under the shipped policy (`throughput`)
    flexible-moldable  the same, submitted as `penstock sbatch` does (-N minimum-preferred), and resized to any size
    preferred          rigid, at the preferred size
    moldable           rigid, submitted as a range
    share-20, -50      so many % of the jobs as in flexible-moldable, the others as in fixed
    …-linear           with linear speed-up

All jobs are one user's, who has no rights beyond their own: nobody's priority is raised.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from penstock.host import logs
from penstock_lab.papers.dmr import paper
from penstock_lab.papers.dmr.bound import Elastic, least_mean_completion
from penstock_lab.papers.dmr.drive import Outcome, drive
from penstock_lab.papers.dmr.models import Kind, Model
from penstock_lab.papers.dmr.workload import SEED, Version, workload
from penstock_lab.papers.report import Goal

__all__ = ["CASES", "SHIPPED", "Case", "Row", "bound", "goals", "measure", "rows"]

_MOLDABLE: Final = Version(moldable=True, share=1.0, factor=1, up_to="preferred")


@dataclass(frozen=True, slots=True)
class Case:
    """A version of the workloads: what users do, under which policy, with which models; `synchronous` checks or not."""

    name: str
    version: Version
    policy: str = "throughput"
    kind: Kind = "fitted"
    synchronous: bool = True


SHIPPED: Final = ("flexible", "flexible-moldable")
"""The versions that goals are set for."""
CASES: Final = (
    Case("fixed", Version()),
    Case("paper", Version(share=1.0), "wide"),
    Case("flexible", Version(share=1.0)),
    Case("flexible-moldable", _MOLDABLE),
    Case("preferred", Version("preferred")),
    Case("moldable", Version(moldable=True)),
    Case("share-20", replace(_MOLDABLE, share=0.2)),
    Case("share-50", replace(_MOLDABLE, share=0.5)),
    Case("fixed-linear", Version(), kind="linear"),
    Case("preferred-linear", Version("preferred"), kind="linear"),
    Case("flexible-linear", Version(share=1.0), kind="linear"),
)
Outcomes = Mapping[tuple[int, str], Outcome]
"""By number of jobs and name of the case."""
_CUTS: Final = {50: (0.30, 0.95), 100: (0.22, 0.90), 200: (0.18, 0.85), 400: (0.15, 0.80)}
"""What is left of the completion time of fixed, and of preferred, at most."""
_CHECKS: Final = 1.01
"""A job that is never resized has its checks on top."""
_PAPER: Final = {"fixed": "fixed", "paper": "flexible"}
_LINEAR: Final = (50, 100)


@dataclass(frozen=True, slots=True)
class Row:
    """Means over the jobs of a workload, in seconds; `cut` is by how much completion is below that of fixed."""

    jobs: int
    version: str
    utilisation: float
    waiting: float
    execution: float
    completion: float
    makespan: float
    cut: float
    resizes: int

    def row(self) -> dict[str, object]:
        """The table's row, the paper's own values beside it where it has them."""
        theirs = paper.TABLE_4.get((self.jobs, _PAPER.get(self.version, "")))
        return {
            "jobs": self.jobs,
            "version": self.version,
            "utilisation": self.utilisation,
            "waiting_s": self.waiting,
            "execution_s": self.execution,
            "completion_s": self.completion,
            "makespan_s": self.makespan,
            "cut": self.cut,
            "resizes": self.resizes,
            "paper_utilisation": theirs and theirs.utilisation,
            "paper_waiting_s": theirs and theirs.waiting,
            "paper_execution_s": theirs and theirs.execution,
            "paper_completion_s": theirs and theirs.completion,
        }


def measure(
    cases: Sequence[Case] = CASES,
    jobs: Sequence[int] = paper.JOBS,
    seed: int = SEED,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[tuple[int, str], Outcome]:
    """Run every workload in every version, as many at once as there are cores; linear speed-up with the small ones."""
    wanted = [(n, case) for n in sorted(jobs, reverse=True) for case in cases if case.kind == "fitted" or n in _LINEAR]
    found: dict[tuple[int, str], Outcome] = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        pending = {pool.submit(_simulate, case, n, seed): (n, case.name) for n, case in wanted}
        for done, future in enumerate(as_completed(pending), 1):
            found[pending[future]] = future.result()
            tell(f"{done}/{len(wanted)} {' jobs, '.join(map(str, pending[future]))}")
    return {(n, case.name): found[n, case.name] for n, case in sorted(wanted, key=lambda w: w[0])}


def _simulate(case: Case, jobs: int, seed: int) -> Outcome:
    logs.configure("critical", "text")
    entries = workload(jobs, case.version, seed, case.kind)
    return asyncio.run(drive(entries, case.policy, synchronous=case.synchronous))


def rows(outcomes: Outcomes) -> list[Row]:
    """The table."""
    found = []
    for (jobs, name), outcome in outcomes.items():
        base = outcomes.get((jobs, "fixed-linear" if name.endswith("-linear") else "fixed"), outcome)
        ran, makespan = outcome.ran, outcome.curve[-1].at
        completion = fmean(r.completion for r in ran)
        found.append(
            Row(
                jobs,
                name,
                outcome.node_seconds / (paper.NODES * makespan),
                fmean(r.waiting for r in ran),
                fmean(r.execution for r in ran),
                completion,
                makespan,
                1 - completion / fmean(r.completion for r in base.ran),
                sum(r["outcome"] == "completed" for r in outcome.resizes),
            )
        )
    return found


def goals(outcomes: Outcomes) -> list[Goal]:
    """What the shipped policy shall reach."""
    table = {(row.jobs, row.version): row for row in rows(outcomes)}
    found = []
    for jobs, (of_fixed, of_preferred) in _CUTS.items():
        for name in SHIPPED:
            if (jobs, name) not in table:
                continue
            mine = table[jobs, name].completion
            fixed, preferred = table[jobs, "fixed"].completion, table[jobs, "preferred"].completion
            found.append(Goal(f"{jobs} jobs, {name}", "completion over fixed's", mine / fixed, of_fixed))
            found.append(Goal(f"{jobs} jobs, {name}", "completion over preferred's", mine / preferred, of_preferred))
            worst = _slowest(outcomes[jobs, name], outcomes[jobs, "fixed"])
            found.append(Goal(f"{jobs} jobs, {name}", "largest node-seconds of a job over fixed's", worst, _CHECKS))
        for name in ("share-20", "share-50"):
            if (jobs, name) in table:
                ratio = _rigid(outcomes[jobs, name], outcomes[jobs, "fixed"])
                found.append(Goal(f"{jobs} jobs, {name}", "mean wait of rigid jobs over that in fixed", ratio, 1.0))
    return found


def _slowest(ours: Outcome, fixed: Outcome) -> float:
    """A job that was slowed by more than its lost nodes explain has used more node-seconds than on all of them."""
    before = {r.name: r.node_seconds for r in fixed.ran}
    return max(r.node_seconds / before[r.name] for r in ours.ran)


def _rigid(ours: Outcome, fixed: Outcome) -> float:
    before = {r.name: r.waiting for r in fixed.ran}
    rigid = [r for r in ours.ran if not r.malleable]
    return fmean(r.waiting for r in rigid) / fmean(before[r.name] for r in rigid)


def bound(jobs: int, seed: int = SEED) -> float:
    """A mean completion time that no scheduler goes below, whatever it knows and resizes for nothing; see `bound`."""
    entries = workload(jobs, Version(), seed)
    return least_mean_completion([Elastic(e.submit, _times(e.model)) for e in entries], paper.NODES)


def _times(model: Model) -> dict[int, float]:
    app = model.application
    return {n: model.seconds(n) for n in range(app.minimum, app.maximum + 1)}
