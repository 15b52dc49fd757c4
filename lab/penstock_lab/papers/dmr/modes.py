"""Tables 2 and 3 of the DMR paper again: synchronous against asynchronous checks.

An asynchronous check is answered while the program goes on, and the answer is taken up at the next one. The paper's
then waited for nodes that were gone (up to 40 s). Here an expansion is granted before the program hears of it, and
when it takes an answer up the agent says whether that still stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

from penstock_lab.papers.dmr import paper
from penstock_lab.papers.dmr.drive import Outcome
from penstock_lab.papers.dmr.table4 import Case, measure, rows
from penstock_lab.papers.dmr.workload import SEED, Version
from penstock_lab.papers.report import Goal

__all__ = ["MODES", "Overhead", "compared", "goals", "overheads", "run"]

MODES: Final = ("synchronous", "asynchronous")
_CASES: Final = (
    Case("fixed", Version()),
    Case("synchronous", Version(share=1.0)),
    Case("asynchronous", Version(share=1.0), synchronous=False),
)


@dataclass(frozen=True, slots=True)
class Overhead:
    """One action in one mode: how often, how often a job, and the seconds that it kept the program.

    `agent` is the mean time (s) from the agent's decision to the end of the resize, `aborted` how many were begun and
    came to nothing.
    """

    jobs: int
    action: str
    mode: str
    quantity: int
    per_job: float
    least: float
    most: float
    mean: float
    deviation: float
    agent: float | None
    aborted: int

    def row(self) -> dict[str, object]:
        """For programs."""
        return {
            "table": 2,
            "jobs": self.jobs,
            "action": self.action,
            "mode": self.mode,
            "quantity": self.quantity,
            "actions_per_job": self.per_job,
            "assumed_least_s": self.least,
            "assumed_most_s": self.most,
            "assumed_mean_s": self.mean,
            "assumed_deviation_s": self.deviation,
            "decision_to_done_s": self.agent,
            "aborted": self.aborted,
        }


def run(
    jobs: Sequence[int] = paper.JOBS, seed: int = SEED, tell: Callable[[str], None] = lambda text: None
) -> dict[tuple[int, str], Outcome]:
    """Every workload fixed, and in both modes."""
    return measure(_CASES, jobs, seed, tell)


def overheads(outcomes: Mapping[tuple[int, str], Outcome]) -> list[Overhead]:
    """Table 2, of the largest workload. How often is simulated; what each takes is assumed (`application.COST`)."""
    jobs = max(n for n, _ in outcomes)
    found = []
    for action in ("none", "expand", "shrink"):
        for mode in MODES:
            outcome = outcomes[jobs, mode]
            seconds = [a.seconds for a in outcome.actions if a.kind == action] or [0.0]
            mine = [r for r in outcome.resizes if r["kind"] == action]
            done = [r["marks"]["done"] - r["marks"]["decided"] for r in mine if r["outcome"] == "completed"]
            aborted = sum("accepted" in r["marks"] and r["outcome"] != "completed" for r in mine)
            count = sum(a.kind == action for a in outcome.actions)
            spread = (min(seconds), max(seconds), fmean(seconds), pstdev(seconds))
            found.append(
                Overhead(jobs, action, mode, count, count / jobs, *spread, fmean(done) if done else None, aborted)
            )
    return found


def compared(outcomes: Mapping[tuple[int, str], Outcome]) -> list[dict[str, object]]:
    """Table 3: utilisation and gains over fixed in %, means and deviations over the workloads."""
    table = {(row.jobs, row.version): row for row in rows(outcomes)}
    sizes = sorted({n for n, _ in outcomes})
    found: list[dict[str, object]] = []
    for mode in ("fixed", *MODES):
        used = [100 * table[n, mode].utilisation for n in sizes]
        row: dict[str, object] = {"table": 3, "mode": mode, "utilisation": fmean(used), "utilisation_sd": pstdev(used)}
        for what in ("waiting", "execution", "completion"):
            gains = [100 * (1 - getattr(table[n, mode], what) / getattr(table[n, "fixed"], what)) for n in sizes]
            row |= {f"{what}_gain": fmean(gains), f"{what}_gain_sd": pstdev(gains)}
        found.append(row)
    return found


def goals(found: Sequence[Overhead]) -> list[Goal]:
    """An asynchronous expansion must not time out, as the paper's did."""
    what = "expansions that came to nothing after the program took them up"
    return [Goal(f"{o.jobs} jobs, {o.mode}", what, float(o.aborted), 0.0) for o in found if o.action == "expand"]
