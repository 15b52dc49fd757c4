"""What slots cost on the two logs: the adaptive price against trade-off, load and the share of reservations.

Chapter 5 of Singh 2008 (Figures 23 to 31): a tenth of the first 30 days' jobs buy a slot from the answer to
query (18) by (20) when they come, instead of waiting in the queue.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.future.plan import QueueSchedule, make_plan
from penstock_lab.intervals import mean_of
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_machine import Machine
from penstock_lab.papers.provision_policies import OFFERED, prices_by_policy
from penstock_lab.papers.provision_world import SITES, Jobs, read_jobs, read_limited_jobs, utilisation
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces
from penstock_planning.plan.pricing import PaperPricing, Quote, choose, quote, quote_all

__all__ = ["Sales", "duplicated", "first_days", "prices", "sell"]

_DAYS: Final = 30
_ALPHAS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_MORE: Final = (0.0, 0.2, 0.4)
_SHARES: Final = (0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
_HOUR: Final = 3600.0
_AHEAD: Final = (("< 1 h", 1.0), ("1-4 h", 4.0), ("4-12 h", 12.0), ("> 12 h", float("inf")))
_WIDTHS: Final = (("1 proc", 1), ("2-8", 8), ("9-32", 32), ("> 32", 1 << 30))
_LENGTHS: Final = (("<= 10 min", 1 / 6), ("10-60 min", 1.0), ("1-4 h", 4.0), ("> 4 h", float("inf")))
_PRICING: Final = PaperPricing()


@dataclass(slots=True)
class Sales:
    """What was bought: (processors, hours, price in processor hours, hours of waiting) of each slot. `offers`: (hours
    ahead, price) of every start that could be had, where all were asked for. `waits`: mean of all others, hours."""

    bought: list[tuple[int, float, float, float]] = field(default_factory=list)
    offers: list[tuple[float, float]] = field(default_factory=list)
    waits: float = 0.0

    @property
    def price(self) -> float:
        """The mean additive price, in processor hours."""
        return statistics.fmean(f for _, _, f, _ in self.bought) if self.bought else 0.0

    @property
    def wait(self) -> float:
        """The mean wait for a slot, in hours."""
        return statistics.fmean(w for *_, w in self.bought) if self.bought else 0.0

    @property
    def free(self) -> float:
        """The share that cost nothing more."""
        return statistics.fmean(f == 0 for _, _, f, _ in self.bought) if self.bought else 0.0


def first_days(jobs: Jobs, days: float = _DAYS) -> Jobs:
    """The beginning of a log."""
    return [job for job in jobs if job[0] < jobs[0][0] + days * 86400]


def duplicated(jobs: Jobs, share: float, seed: int) -> Jobs:
    """More load as in chapter 5: each job with this probability twice, at the same time."""
    rng = random.Random(seed)
    return sorted([*jobs, *(job for job in jobs if rng.random() < share)])


def sell(jobs: Jobs, procs: int, share: float, alpha: float, seed: int, *, released: bool = True) -> Sales:
    """Let this share of the jobs buy slots with trade-off `alpha` for as long as they may run, and the others queue.
    `released`: a slot is given back when its job ends, else it keeps its nodes to its own end."""
    rng = random.Random(seed)
    buyers: Jobs = []
    others: Jobs = []
    for job in jobs:
        (buyers if rng.random() < share else others).append(job)
    machine, sales = Machine(procs, others), Sales()
    for submit, run, width, *limit in buyers:
        machine.to(submit)
        length = limit[0] if limit else run
        quotes = answers(make_plan(machine.queue()), width, length, alpha)
        if 0 < alpha < 1:
            sales.offers += [((q.start - submit) / _HOUR, q.f / _HOUR) for q in quotes if q.feasible]
        best = choose(quotes, alpha)
        assert best is not None  # nothing is wider than the machine, and all that is planned ends
        machine.buy(best, run if released else None)
        sales.bought.append((width, length / _HOUR, best.f / _HOUR, (best.start - submit) / _HOUR))
    if others:
        machine.to(others[-1][0])
    sales.waits = machine.mean_wait() / _HOUR
    return sales


def answers(plan: QueueSchedule, procs: int, duration: float, alpha: float) -> list[Quote]:
    """The answer to query (18), or of those who look at one side only the part that decides: up to the first slot that
    can be had (alpha 0), or that costs nothing more (alpha 1)."""
    if 0 < alpha < 1:
        return quote_all(plan, procs, duration, _PRICING)
    found = []
    for start in plan.instants():
        found.append(quote(plan, procs, duration, start, _PRICING))
        if found[-1].f == 0 or (alpha == 0 and found[-1].feasible):
            break
    return found


def prices(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Figures 23 to 31: prices and waits by trade-off, load and share of reservations.

    Who does not take the first start asks for many, which is slow: with few runs these settings end sooner.
    """
    short = min(_DAYS, 2 * runs)
    rows: list[dict[str, Any]] = []
    found: dict[tuple[str, float, float, float], Sales] = {}
    guessed: list[list[str]] = []
    for site, log in SITES.items():
        whole = read_jobs(traces(), site)
        settings = [(0.0, 0.1, alpha) for alpha in _ALPHAS]
        settings += [(more, 0.1, alpha) for more in _MORE[1:] for alpha in (0.0, 0.5, 1.0)]
        settings += [(0.0, share, 0.0) for share in _SHARES[1:]] + [(0.0, 0.5, alpha) for alpha in (0.0, 1.0)]
        for more, share, alpha in settings:
            tell(f"prices: {site}, {more:+.0%} jobs, {share:.0%} reservations, alpha {alpha:g}")
            days = short if alpha else _DAYS
            jobs = duplicated(first_days(whole, days), more, 0)
            sales = found[site, more, share, alpha] = sell(jobs, log.procs, share, alpha, 0)
            row = {"site": site, "more": more, "load": utilisation(jobs, log.procs), "share": share, "alpha": alpha}
            row |= {"days": days, "price": sales.price, "free": sales.free}
            rows.append({**row, "wait_h": sales.wait, "others_wait_h": sales.waits, "slots": len(sales.bought)})
        guessed += _guessed(site, log.procs, found[site, 0.0, 0.1, 0.0], tell)
    columns = ("site", "load", "reserved", "alpha", "days", "slots", "price SU", "free", "wait h", "others' wait h")
    cells = [
        [
            r["site"],
            f"{r['load']:.0%}",
            f"{r['share']:.0%}",
            f"{r['alpha']:g}",
            str(r["days"]),
            str(r["slots"]),
            f"{r['price']:.2f}",
            f"{r['free']:.0%}",
            f"{r['wait_h']:.2f}",
            f"{r['others_wait_h']:.2f}",
        ]
        for r in rows
    ]
    text = (
        f"The first {_DAYS} days of each log for slots at once (alpha 0), {short} for other trade-offs, two per run. "
        "Price is f, in processor hours (SU), load as submitted. The paper's axes end at 40 SU for the log itself, at "
        "200 SU with 40 % more jobs; its loads are 58.7, 68.4 and 78.8 % (CTC) and 63.4, 77.8 and 87.4 % (SDSC). The "
        "second table has every start offered to who asked with alpha .25 to .75, the third the slots at once, the "
        "last the same jobs when the queue knows only the limits of their users, for which slots are bought: released "
        "when their jobs end, as Penstock does, and kept to the limit although the job has ended. Under aggressive "
        f"backfilling (Figure 29, {short} days) each buyer has a trade-off of its own between 0 and 1, and is offered "
        f"{OFFERED} of the starts."
    )
    heads = ("site", "estimates", "slots", "price SU", "free", "wait h", "others' wait h")
    tables = [Table("Slots bought", columns, cells), _by_time(found), _by_size(found)]
    tables.append(Table("Slots at once, exact run times and users' limits", heads, guessed))
    tables.append(_by_policy(short, tell))
    return Chapter("prices", "Adaptive prices (Figures 23 to 31)", text, rows, tables, _goals(found))


def _by_policy(days: float, tell: Tell) -> Table:
    """Conservative and aggressive backfilling (Figure 29)."""
    cells = []
    for site, log in SITES.items():
        whole = first_days(read_jobs(traces(), site), days)
        for more in _MORE:
            tell(f"prices: {site}, {more:+.0%} jobs, conservative and aggressive backfilling")
            jobs = duplicated(whole, more, 0)
            for by in prices_by_policy(jobs, log.procs, 0.1, 0):
                price, waits = mean_of(by.bought), (f"{by.wait:.2f}", f"{by.others_wait:.2f}")
                load = f"{utilisation(jobs, log.procs):.0%}"
                cells.append([site, load, by.policy, str(len(by.bought)), price.told(), f"{by.free:.0%}", *waits])
    heads = ("site", "load", "backfilling", "slots", "price SU", "free", "wait h", "others' wait h")
    return Table("Slots by any trade-off, conservative and aggressive backfilling", heads, cells)


def _guessed(site: str, procs: int, exact: Sales, tell: Tell) -> list[list[str]]:
    """Slots at once by a tenth of the jobs, with exact estimates and with those of users (Figures 30 and 31)."""
    tell(f"prices: {site}, users' limits")
    jobs = first_days(read_limited_jobs(traces(), site))
    limited, kept = (sell(jobs, procs, 0.1, 0.0, 0, released=way) for way in (True, False))
    return [
        [
            site,
            name,
            str(len(sales.bought)),
            f"{sales.price:.2f}",
            f"{sales.free:.0%}",
            f"{sales.wait:.2f}",
            f"{sales.waits:.2f}",
        ]
        for name, sales in (("exact", exact), ("users', released", limited), ("users', kept", kept))
    ]


def _by_time(found: dict[tuple[str, float, float, float], Sales]) -> Table:
    cells = []
    for site in SITES:
        for more in _MORE:
            offers = [
                o for (s, m, r, _), sales in found.items() if (s, m, r) == (site, more, 0.1) for o in sales.offers
            ]
            since = 0.0
            for name, until in _AHEAD:
                some = [f for ahead, f in offers if since <= ahead < until]
                since = until
                if some:
                    free = statistics.fmean(f == 0 for f in some)
                    cells.append(
                        [site, f"{more:+.0%}", name, str(len(some)), f"{statistics.fmean(some):.2f}", f"{free:.0%}"]
                    )
    return Table("Starts offered, by how far ahead", ("site", "jobs", "ahead", "starts", "price SU", "free"), cells)


def _by_size(found: dict[tuple[str, float, float, float], Sales]) -> Table:
    cells = []
    for site in SITES:
        for more in _MORE:
            bought = found[site, more, 0.1, 0.0].bought
            groups: list[tuple[str, Sequence[float]]] = []
            low = 0.0
            for name, most in _WIDTHS:
                groups.append((name, [f for procs, _, f, _ in bought if low < procs <= most]))
                low = most
            low = 0.0
            for name, hours in _LENGTHS:
                groups.append((name, [f for _, length, f, _ in bought if low < length <= hours]))
                low = hours
            cells += [
                [site, f"{more:+.0%}", name, str(len(some)), f"{statistics.fmean(some):.2f}"]
                for name, some in groups
                if some
            ]
    return Table("Slots at once (alpha 0), by size", ("site", "jobs", "slot", "bought", "price SU"), cells)


def _goals(found: dict[tuple[str, float, float, float], Sales]) -> list[Goal]:
    goals = []
    for site in SITES:
        plain = found[site, 0.0, 0.1, 0.0]
        more, many = found[site, 0.4, 0.1, 0.0], found[site, 0.0, 0.9, 0.0]
        goals += [
            Goal(site, "price at alpha 1 (SU)", found[site, 0.0, 0.1, 1.0].price, 0.0),
            Goal(site, "price at alpha 0 over that with 40 % more jobs", _over(plain.price, more.price), 1.0),
            Goal(site, "price with 90 % reservations over that with 10 %", _over(many.price, plain.price), 1.0),
            Goal(site, "wait for a slot over best effort, alpha 0", _over(plain.wait, plain.waits), 1.0),
        ]
    ctc, sdsc = (found[site, 0.0, 0.1, 0.0].price for site in ("CTC", "SDSC"))
    return [*goals, Goal("CTC", "price at alpha 0 over SDSC's", _over(ctc, sdsc), 1.0)]


def _over(a: float, b: float) -> float:
    return a / b if b else float("inf")
