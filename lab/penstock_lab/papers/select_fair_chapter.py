"""The chapter of `penstock bench select` on bags under stable loads: ours beside what every user has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Final

from penstock_lab.intervals import Interval, ratio_of_means
from penstock_lab.papers import select_fair
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.select_fair import ANYWHERE, BOUND, EARLIEST, FAST, LEAST, NEW, OURS, Bagged, Protocol
from penstock_lab.papers.select_rivals import LIMIT

__all__ = ["fair"]

_FILE: Final = "fair.jsonl"
_COLUMNS: Final = (
    "tasks", "way", "mean TTC s", "median", "bound", "over bound", "ours over it", "median pair", "moved",
)  # fmt: skip


def fair(protocol: Protocol, out: Path | None, tell: Callable[[str], None]) -> Chapter:
    """Measure what the file of bags in `out` does not have yet, and tell all of it."""
    found = select_fair.measure(protocol, None if out is None else out / _FILE, tell)
    text = (
        "Bags on the paper's four machines, each at the same offered load, at most 0.95, so that queues stay finite. "
        f"{protocol.seeds * protocol.instants} instants of a level; at each the same bag is sent in every way, in "
        "forks of the same simulation: what others submit and how long they run is the same in all. Jobs are whole "
        f"nodes under a limit of {LIMIT / 3600:g} h, whoever sends them. `{ANYWHERE}` is one job in the queue of every "
        "machine, as if they were partitions of one Slurm, started by whichever has room first; it may adapt to a "
        f"node's cores, which is kinder than Slurm is. `{EARLIEST}`: the whole bag to the cluster where Slurm itself "
        f"says that it would start first. `{LEAST}`: the whole bag to where the nodes that jobs have or wait for are "
        f"the smallest share of all. `{FAST.strip(', ')}`: without the one that is 2.6 times as slow. `{OURS}` knows "
        f"run times from five runs on each machine, `{NEW}` from none. The bound is when the bag would be done if "
        "every node that becomes free were its own: no way can have a smaller mean. Ratios are of means over the "
        "pairs with 95 % intervals; the median is of single pairs."
    )
    tables = [_table(f"Load {level:g}", [b for b in found if b.level == level]) for level in protocol.levels]
    if len(protocol.levels) > 1:
        tables.append(_table("All loads", found))
    return Chapter("fair", "Bags beside what users have today", text, [b.told() for b in found], tables, _goals(found))


def _sizes(found: Sequence[Bagged]) -> dict[int, list[Bagged]]:
    return {size: [b for b in found if b.size == size] for size in sorted({b.size for b in found})}


def _ratio(bags: Sequence[Bagged], one: str, other: str) -> Interval:
    return ratio_of_means([b.ttc[one] for b in bags], [b.ttc[other] for b in bags])


def _table(title: str, found: Sequence[Bagged]) -> Table:
    rows = []
    for size, bags in _sizes(found).items():
        least = fmean(b.ttc[BOUND] for b in bags)
        for way in bags[0].ttc:
            if way == BOUND:
                continue
            each = [b.ttc[way] for b in bags]
            rows.append(
                [
                    f"{size}",
                    way,
                    f"{fmean(each):.0f}",
                    f"{median(each):.0f}",
                    f"{least:.0f}",
                    _ratio(bags, way, BOUND).told(".2f"),
                    "" if way == OURS else _ratio(bags, OURS, way).told(),
                    "" if way == OURS else f"{median(b.ttc[OURS] / b.ttc[way] for b in bags):.3f}",
                    f"{fmean(b.moved.get(way, 0) for b in bags):.0f}",
                ]
            )
    return Table(f"{title}: times to completion, {len(found) // len(_sizes(found))} bags a size", _COLUMNS, rows)


def _goals(found: Sequence[Bagged]) -> list[Goal]:
    """Never slower than the least loaded machine, and a tenth sooner than one job in all queues, at every size."""
    goals = []
    for size, bags in _sizes(found).items():
        for rival in (LEAST, LEAST + FAST):
            high = _ratio(bags, OURS, rival).high
            goals.append(Goal(f"{size} tasks", f"ours over {rival}, upper end of the interval", high, 1.0))
    for size, bags in _sizes(found).items():
        for rival in (ANYWHERE, ANYWHERE + FAST):
            what = f"ours over {rival} (the bound: {_ratio(bags, BOUND, rival).value:.3f})"
            goals.append(Goal.of(f"{size} tasks", what, _ratio(bags, OURS, rival), 0.9))
    return goals
