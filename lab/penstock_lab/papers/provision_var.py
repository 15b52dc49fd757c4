"""Virtual and priced reservations, and both at once, on the two logs: chapter 6 of Singh 2008, Figures 38 to 49.

32 or 64 processors for one or four hours, wanted in one, four or eight hours. The virtual reservation learns from the
waits of the last thousand jobs that began, and its job is submitted to the simulated machine; the priced one is quoted
at the same instant. Users ask for the time that the log says they asked for, or for the time that they need.

With exact estimates a job's place is known when it is submitted. Then a virtual reservation that succeeds takes what
was free in the plan from the beginning, where the adaptive price is 0: the two differ only where estimates do not hold.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.future.plan import make_plan
from penstock_lab.intervals import Interval, mean_of, resampled
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_machine import Machine
from penstock_lab.papers.provision_world import (
    COPIES,
    SITES,
    instants,
    read_jobs,
    read_limited_jobs,
    utilisation,
    with_second_copy,
)
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces
from penstock_planning.plan.pricing import PaperPricing, quote
from penstock_planning.plan.var import Submission, WaitSample, bound, combine, idle_cost, when_to_submit

__all__ = ["Outcome", "both_ways", "reservations"]

_HOUR: Final = 3600.0
_NOTICES: Final = (1, 4, 8)
_LENGTHS: Final = (1, 4)
_WIDTHS: Final = (32, 64)
_PRICING: Final = PaperPricing()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one reservation cost beside the plain charge, as a multiple of it, in each way; None where it failed."""

    virtual: float | None
    priced: float | None
    combined: float | None
    most: float
    """(22) of the submission: no idling can cost more."""


def both_ways(machine: Machine, procs: int, duration: float, notice: float) -> Outcome:
    """Try to have `procs` processors `notice` seconds from now in all three ways, each on a copy of the machine."""
    now, start = machine.now, machine.now + notice
    queue = machine.queue()
    slot = quote(make_plan(queue), procs, duration, start, _PRICING)
    chosen = when_to_submit(now, start, duration, WaitSample(machine.seen, procs, start))
    alone = _begin(machine.copy(), chosen, procs, start)
    beside = alone
    if slot.feasible:
        # The reservation is made first: the job of the virtual one has to find its place around it.
        reserved = machine.copy()
        reserved.buy(slot)
        beside = _begin(reserved, chosen, procs, start)
    both = combine(procs, start, slot.f, _PRICING.penalty, beside)
    plain = procs * duration
    return Outcome(
        None if alone is None else idle_cost(procs, start, alone) / plain,
        slot.f / plain if slot.feasible else None,
        None if both.use == "FAIL" else both.cost / plain,
        bound(start, chosen.at, duration) if chosen else 0.0,
    )


def _begin(machine: Machine, chosen: Submission | None, procs: int, start: float) -> float | None:
    """When the job of a virtual reservation begins, None: not by `start`."""
    if chosen is None:
        return None
    machine.to(chosen.at)
    job = machine.submit(procs, chosen.run_time)
    machine.to(start)
    begin = machine.start_of(job)
    return begin if begin <= start else None


def _all_kinds(machine: Machine, whens: list[float]) -> dict[tuple[int, int, int], list[Outcome]]:
    """What came of every kind, by processors, hours and hours of notice, at each of these instants."""
    kinds = list(product(_WIDTHS, _LENGTHS, _NOTICES))
    found: dict[tuple[int, int, int], list[Outcome]] = {kind: [] for kind in kinds}
    for when in whens:
        machine.near(when)
        for kind in kinds:
            procs, hours, notice = kind
            found[kind].append(both_ways(machine, procs, hours * _HOUR, notice * _HOUR))
    return found


def _row(kind: tuple[int, int, int], outcomes: list[Outcome]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(("procs", "hours", "notice_h"), kind, strict=True))
    for way in ("virtual", "priced", "combined"):
        cost, row[f"{way}_ok"] = _summary([getattr(o, way) for o in outcomes])
        row[way], row[f"{way}_low"], row[f"{way}_high"] = cost or (None, None, None)
    both = [o for o in outcomes if o.virtual is not None and o.priced is not None]
    row["virtual_cheaper"] = _share([_less(o.virtual, o.priced) for o in both])
    row["priced_cheaper"] = _share([_less(o.priced, o.virtual) for o in both])
    return {**row, "runs": len(outcomes)}


def reservations(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Cost and success rate by load, notice, width and duration."""
    rows: list[dict[str, Any]] = []
    pairs: dict[str, list[list[Outcome]]] = {"limits": [], "exact": []}
    for site, log in SITES.items():
        for estimates, read in (("limits", read_limited_jobs), ("exact", read_jobs)):
            plain = read(traces(), site)
            for share in COPIES[site][:2]:
                jobs = with_second_copy(plain, share, 3) if share else plain
                load = utilisation(jobs, log.procs)
                tell(f"var: {site} at {load:.0%}, {estimates}")
                found = _all_kinds(Machine(log.procs, jobs), instants(jobs, runs, 11))
                pairs[estimates] += [list(each) for each in zip(*found.values(), strict=True)]
                for key, outcomes in found.items():
                    rows.append({"site": site, "estimates": estimates, "load": load, **_row(key, outcomes)})
    text = (
        f"At {runs} instants of each log, with the time limits of its users and with exact ones. Cost beside the plain "
        "charge, as a multiple of it, mean of the cases that succeed, with 95 % intervals; VAR the job that idles "
        "until the start, AR the reservation at the adaptive price, the penalty for cancelling it 10 %. Cheaper: share "
        "of the cases in which both succeed. The probability is the share of the waits seen that were short enough, "
        "where the paper asks QBETS. On its cluster (NCSA, 30 days) AR costs more than VAR on average, most with an "
        "hour's notice, and succeeds more often."
    )
    columns = (
        "site",
        "estimates",
        "load",
        "procs",
        "hours",
        "notice h",
        "VAR",
        "AR",
        "both",
        "VAR %",
        "AR %",
        "both %",
    )
    cells = [
        [r["site"], r["estimates"], f"{r['load']:.0%}", str(r["procs"]), str(r["hours"]), str(r["notice_h"])]
        + ["-" if r[way] is None else _told(r, way) for way in ("virtual", "priced", "combined")]
        + [f"{100 * r[way + '_ok']:.0f}" for way in ("virtual", "priced", "combined")]
        + [f"{100 * r['virtual_cheaper']:.0f}", f"{100 * r['priced_cheaper']:.0f}"]
        for r in rows
    ]
    table = Table("Reservations", (*columns, "VAR cheaper %", "AR cheaper %"), cells)
    return Chapter(
        "var", "Virtual and priced reservations (Figures 38 to 49)", text, rows, [table, _overall(pairs)], _goals(pairs)
    )


class _Sums(NamedTuple):
    """Of one way, by instant, whose cases hang together: what those that succeeded cost, and how many of how many
    did."""

    cost: NDArray[np.float64]
    done: NDArray[np.float64]
    tried: NDArray[np.float64]

    @classmethod
    def of(cls, instants: list[list[Outcome]], way: str) -> _Sums:
        real = [[c for o in each if (c := getattr(o, way)) is not None] for each in instants]
        columns = ([sum(costs) for costs in real], [len(costs) for costs in real], [len(each) for each in instants])
        return cls(*(np.asarray(column, dtype=float) for column in columns))

    def mean_cost(self, draw: NDArray[np.intp]) -> float:
        """Of those that succeeded at the instants drawn; NaN of none."""
        done = float(self.done[draw].sum())
        return float(self.cost[draw].sum()) / done if done else math.nan

    def success(self, draw: NDArray[np.intp]) -> float:
        """Their share."""
        return float(self.done[draw].sum() / self.tried[draw].sum())


def _overall(pairs: dict[str, list[list[Outcome]]]) -> Table:
    cells = []
    for estimates, found in pairs.items():
        for name, way in (("VAR", "virtual"), ("AR", "priced"), ("both", "combined")):
            sums = _Sums.of(found, way)
            cost, ok = resampled(len(found), sums.mean_cost), resampled(len(found), sums.success)
            cells.append([estimates, name, cost.told(".2f"), ok.told(".2f")])
    return Table("All of them", ("estimates", "way", "cost", "success"), cells)


def _goals(pairs: dict[str, list[list[Outcome]]]) -> list[Goal]:
    """What section 6.4 claims of the combined scheme, (22), and how VAR and AR compare."""
    goals = []
    for estimates, found in pairs.items():
        outcomes = [o for each in found for o in each]
        dearer = sum(o.priced is not None and (o.combined is None or o.combined > o.priced + 1e-9) for o in outcomes)
        lost = sum(o.combined is None and (o.virtual is not None or o.priced is not None) for o in outcomes)
        above = sum(o.virtual is not None and o.virtual > o.most + 1e-9 for o in outcomes)
        virtual, priced = (_Sums.of(found, way) for way in ("virtual", "priced"))
        more = resampled(len(found), lambda d: _over(virtual.success(d), priced.success(d)))  # noqa: B023
        dear = resampled(len(found), lambda d: _over(virtual.mean_cost(d), priced.mean_cost(d)))  # noqa: B023
        goals += [
            Goal(estimates, "cases in which both at once cost more than AR", dearer, 0),
            Goal(estimates, "cases in which both at once fail and one alone does not", lost, 0),
            Goal(estimates, "cases in which VAR costs more than (22)", above, 0),
        ]
        names = ("success of VAR over AR's", "mean cost of VAR over AR's")
        goals += [
            Goal.of(estimates, name, ratio, 1.0)
            for name, ratio in zip(names, (more, dear), strict=True)
            if math.isfinite(ratio.value)
        ]
    return goals


def _summary(costs: list[float | None]) -> tuple[Interval | None, float]:
    """The mean cost of those that succeeded, and their share."""
    real = [cost for cost in costs if cost is not None]
    return (mean_of(real) if real else None), len(real) / len(costs)


def _over(a: float, b: float) -> float:
    return a / b if b else math.nan


def _less(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and a < b


def _share(flags: list[bool]) -> float:
    return statistics.fmean(flags) if flags else 0.0


def _told(row: dict[str, Any], way: str) -> str:
    return Interval(row[way], row[f"{way}_low"], row[f"{way}_high"]).told(".2f")
