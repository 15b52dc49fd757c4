"""What windows of paired runs say together: each way over the plain chain in the same queue, with intervals. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock_lab.intervals import Interval, ratio_of_means
from penstock_lab.paired.ways import Outcome
from penstock_lab.paired.windows import ALONE, MERGED, PLAIN, Window

__all__ = ["BEST", "FREE", "NOBODY", "Row", "by_rule", "by_workflow", "regret", "rows"]

BEST: Final = "best merge in hindsight"
FREE: Final = "best merge at equal core-hours"
"""The same of those that use at most 1.01 of the plain chain's."""
NOBODY: Final = "no wait but the first"
"""All stages run one after the other as soon as the first alone would have begun: less nobody could reach unless the
first itself began earlier."""
_EQUAL: Final = 1.01


@dataclass(frozen=True, slots=True)
class Row:
    """One way against the plain chain under a rule of priority: ratios of means over all windows, each with its 95 %
    interval, and of single windows' makespans the median and the 95th percentile. `waits` is of the perceived waits of
    all jobs but the first. None where a way has no waits or node-seconds of its own."""

    rule: str
    way: str
    windows: int
    makespan: Interval
    median: float
    p95: float
    waits: Interval | None
    used: Interval | None

    def row(self) -> dict[str, Any]:
        """For programs."""
        found: dict[str, Any] = {"rule": self.rule, "way": self.way, "windows": self.windows}
        for name, interval in (("makespan", self.makespan), ("later_waits", self.waits), ("node_seconds", self.used)):
            for part, value in zip(("", "_low", "_high"), interval or (None, None, None), strict=True):
                found[f"{name}_ratio{part}"] = value
        return {**found, "makespan_ratio_median": self.median, "makespan_ratio_p95": self.p95}


def rows(windows: Sequence[Window]) -> list[Row]:
    """Each way under each rule, the rules and ways in the order of the first window."""
    return [row for rule, those in by_rule(windows).items() for row in _rows(rule, those)]


def by_workflow(windows: Sequence[Window]) -> dict[str, list[Window]]:
    """The windows of each workflow, in whatever size."""
    found: dict[str, list[Window]] = defaultdict(list)
    for window in windows:
        found[window.workflow.partition("-")[0]].append(window)
    return dict(found)


def by_rule(windows: Sequence[Window]) -> dict[str, list[Window]]:
    """The windows of each rule of priority."""
    found: dict[str, list[Window]] = defaultdict(list)
    for window in windows:
        found[window.case.rule].append(window)
    return dict(found)


def _rows(rule: str, windows: Sequence[Window]) -> list[Row]:
    plain = [window.outcomes[PLAIN] for window in windows]
    made = []
    for way in windows[0].outcomes:
        if way in (PLAIN, ALONE) or way.startswith(MERGED):
            continue
        these = [window.outcomes[way] for window in windows]
        waits = ratio_of_means([o.later for o in these], [o.later for o in plain])
        used = ratio_of_means([o.node_seconds for o in these], [o.node_seconds for o in plain])
        made.append(_row(rule, way, [o.makespan for o in these], [o.makespan for o in plain], waits, used))
    for way, judged in ((BEST, _best), (FREE, _best_free), (NOBODY, _least)):
        made.append(_row(rule, way, [judged(window) for window in windows], [o.makespan for o in plain], None, None))
    return made


def _row(
    rule: str, way: str, these: Sequence[float], plain: Sequence[float], waits: Interval | None, used: Interval | None
) -> Row:
    ratios = np.asarray(these) / np.asarray(plain)
    median, p95 = np.percentile(ratios, (50, 95))
    return Row(rule, way, len(these), ratio_of_means(these, plain), float(median), float(p95), waits, used)


def _best(window: Window, most: float = math.inf) -> float:
    plain = window.outcomes[PLAIN]
    merged = [o.makespan for name, o in window.outcomes.items() if name.startswith(MERGED) and _used(o, plain) <= most]
    return min([plain.makespan, *merged])


def _best_free(window: Window) -> float:
    return _best(window, _EQUAL)


def _used(outcome: Outcome, plain: Outcome) -> float:
    return outcome.node_seconds / plain.node_seconds


def _least(window: Window) -> float:
    plain = window.outcomes[PLAIN]
    return window.outcomes[ALONE].waits[0] + plain.makespan - sum(plain.waits)


def regret(windows: Sequence[Window], way: str) -> Interval:
    """A way's mean makespan over that of the best merge in hindsight, which is chosen for each window by itself."""
    return ratio_of_means([w.outcomes[way].makespan for w in windows], [_best(w) for w in windows])
