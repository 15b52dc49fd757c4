"""Some stages together in one job, others on their own: whatever is cheapest by the predicted waits."""

from __future__ import annotations

import math

from penstock.api import Reason, plural
from penstock.waits.learners.geometry import key_of
from penstock.workflow.asks import Asks, why_apart
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategies.cuts import grouped, levels
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, after_parents

__all__ = ["Packed"]


class Packed:
    """packs neighbouring stages into one job where that saves more waiting than it costs in core-hours

    The levels of the workflow are cut into groups: a group of one level is a job per stage, of several levels one job
    that runs them all (`cuts.merged`). Dynamic programming finds the cut with the least sum over groups of wait + run
    time + `core_hour_weight` * core-hours; exact for chains whose waits are as predicted. With a large weight it is
    `perstage`, with none and waits that do not grow with the size it is `bigjob`.
    """

    name = "packed"
    ahead = False
    tie = Tie.NONE

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The cheapest cut; a group never needs more time than the partition allows, nor what one job cannot have."""
        rows = levels(workflow)
        prices = _Prices(outlook)
        best: list[tuple[float, int]] = [(0.0, 0)]  # of the first n levels: the price, and where the last group begins
        for last in range(len(rows)):
            found = (math.inf, last)
            group = _Group()
            for first in range(last, -1, -1):
                group.add(rows[first])
                if first < last and not group.fits(outlook.max_time):
                    break
                price = prices.alone(rows[first]) if first == last else prices.together(group)
                found = min(found, (best[first][0] + price, first))
            best.append(found)
        groups: list[tuple[int, int]] = []
        end = len(rows)
        while end > 0:
            first = best[end][1]
            groups.append((first, end))
            end = first
        groups.reverse()
        text = (
            f"{plural(len(rows), 'level')} in {plural(len(groups), 'group')} "
            f"(levels in each: {', '.join(str(b - a) for a, b in groups)}), "
            f"by learned waits, with each core-hour counted as {outlook.core_hour_weight:g} s"
        )
        return Plan(grouped(rows, groups), (Reason("packed-cut", text),))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """When those before it have ended."""
        return after_parents(run, i, now)


class _Group:
    """Levels that become one job, from the last to the first."""

    def __init__(self) -> None:
        self.nodes = 0
        self.limit = 0.0
        self.run_time = 0.0
        self.partition = ""
        self._stages: list[tuple[str, Asks]] = []

    def fits(self, max_time: float | None) -> bool:
        """Whether all of it can be one job; no larger group could, if not."""
        return (max_time is None or self.limit <= max_time) and why_apart(self._stages) is None

    def add(self, row: tuple[Stage, ...]) -> None:
        self.nodes = max(self.nodes, *(stage.nodes for stage in row))
        self.limit += sum(stage.time_limit for stage in row)
        self.run_time += sum(stage.run_time for stage in row)
        self.partition = row[0].asks.partition  # all of a job have the same
        self._stages += [(stage.name, stage.asks) for stage in row]


class _Prices:
    """What jobs cost in seconds; a class of geometries is predicted once."""

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook
        self._waits: dict[str, float] = {}

    def alone(self, row: tuple[Stage, ...]) -> float:
        """Each stage of a level as a job of its own, side by side."""
        longest = max(self._wait(s.nodes, s.time_limit, s.asks.partition) + s.run_time for s in row)
        return longest + self._weight(sum(s.nodes * s.run_time for s in row))

    def together(self, group: _Group) -> float:
        """One job."""
        return (
            self._wait(group.nodes, group.limit, group.partition)
            + group.run_time
            + self._weight(group.nodes * group.run_time)
        )

    def _weight(self, node_seconds: float) -> float:
        return self._outlook.core_hour_weight * self._outlook.cores * node_seconds / 3600.0

    def _wait(self, nodes: int, limit: float, partition: str) -> float:
        geometry = self._outlook.geometry(nodes, limit, partition)
        key = key_of(geometry)  # geometries of one class are predicted alike
        if key not in self._waits:
            self._waits[key] = self._outlook.wait(geometry)
        return self._waits[key]
