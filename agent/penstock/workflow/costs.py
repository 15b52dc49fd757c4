"""What a workflow cut into jobs will cost by the predicted waits (ASA paper, section 2.2). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.workflow.model import Stage
from penstock.workflow.strategy import Outlook, Rules
from penstock.workflow.ties import Tie

__all__ = ["Cost", "hides_waits", "predicted"]


@dataclass(frozen=True, slots=True)
class Cost:
    """`makespan` from the submission to the last end, `wait` the part of it in which nothing of the way runs (s), and
    `core_hours` by expected run times."""

    makespan: float
    wait: float
    core_hours: float


def hides_waits(tie: Tie, rules: Rules) -> bool:
    """Whether a job that is tied to its parents like this waits for its turn while they run; behind a dependency only
    where such jobs age."""
    return tie is not Tie.NONE and (tie is not Tie.AFTEROK or rules.accrues)


def predicted(units: Sequence[Stage], outlook: Outlook, hidden: bool = False) -> Cost:
    """The cost of these jobs, parents first. `hidden`: a job waits in the queue while its parents run, so that only
    what is left of its wait is felt."""
    waits: dict[str, float] = {}
    ends: dict[str, tuple[float, float]] = {}  # end, and how much of the way to it was waiting
    runs = {unit.name: unit.run_time for unit in units}
    node_seconds = 0.0
    for unit in units:
        key = f"{unit.nodes} {unit.time_limit} {unit.asks.partition}"
        if key not in waits:
            waits[key] = outlook.wait(outlook.geometry(unit.nodes, unit.time_limit, unit.asks.partition))
        wait = waits[key]
        if hidden and unit.after:
            wait = max(wait - max(runs[parent] for parent in unit.after), 0.0)
        ready, waited = max((ends[parent] for parent in unit.after), default=(0.0, 0.0))
        ends[unit.name] = ready + wait + unit.run_time, waited + wait
        node_seconds += unit.nodes * unit.run_time
    makespan, waited = max(ends.values())
    return Cost(makespan, waited, outlook.cores * node_seconds / 3600.0)
