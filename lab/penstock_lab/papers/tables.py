"""Table 1 of the ASA paper again: three workflows in six sizes under every strategy, each under three priority rules.

One simulation a machine, rule and strategy: the same jobs of others, the same workflows at the same times (three at
once, one a minute; the next size four hours later), and what is learned is kept from run to run. Means over the rounds
after the first ones, in which the waits are learned. Times in seconds, core-hours of four cores a slot.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.host import logs
from penstock.workflow.metrics import gap_before, run_metrics
from penstock.workflow.model import Workflow
from penstock.workflow.phases import RunPhase
from penstock.workflow.state import WorkflowRun
from penstock_lab.intervals import Interval, mean_of
from penstock_lab.papers import paper
from penstock_lab.papers.drive import Submission, drive
from penstock_lab.papers.report import Goal
from penstock_lab.papers.site import MACHINES, RULES, background, cluster

__all__ = ["PROTOCOL", "STRATEGIES", "Protocol", "Row", "bounds", "goals", "measure", "normalised"]

STRATEGIES: Final = ("bigjob", "perstage", "asa", "asa-naive", "asa-after", "packed", "auto")
_DAY: Final = 86400.0
_GAP: Final = 4 * 3600.0
_APART: Final = 60.0
_FIRST: Final = 3 * _DAY
_TAIL: Final = 30 * _DAY
_WAITS: Final = 0.3  # of its makespan that Per-Stage waits at least where goals are judged


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is run: `rounds` of every workflow and size, of which the first `learning` are not counted."""

    strategies: tuple[str, ...] = STRATEGIES
    rules: tuple[str, ...] = RULES
    machines: tuple[str, ...] = tuple(MACHINES)
    rounds: int = 6
    learning: int = 1
    seed: int = 1


PROTOCOL: Final = Protocol()


@dataclass(frozen=True, slots=True)
class Row:
    """Means over `runs` of a workflow: `wait` is the total, `perceived` that of stages 2 to the last, `misses` how
    often a job started too early and was taken back. `makespan_low` and `makespan_high` are the ends of the
    mean makespan's 95 % interval.

    `beyond` is what of `perceived` is longer than the time from the workflow's submission to the stage's turn. Under
    Per-Stage it is what no earlier submission could have hidden, had the stage waited as long.
    """

    machine: str
    rule: str
    workflow: str
    cores: int
    strategy: str
    runs: int
    wait: float
    perceived: float
    beyond: float
    makespan: float
    core_hours: float
    overhead: float
    misses: float
    makespan_low: float = math.nan
    makespan_high: float = math.nan

    def row(self) -> dict[str, object]:
        """The table's row, the paper's own values beside it where it has them."""
        cell = paper.TABLE_1.get((self.workflow, self.cores, self.strategy))
        return {
            "machine": self.machine,
            "rule": self.rule,
            "workflow": self.workflow,
            "cores": self.cores,
            "strategy": self.strategy,
            "runs": self.runs,
            "total_wait": self.wait,
            "perceived_wait": self.perceived,
            "beyond_hiding": self.beyond,
            "makespan": self.makespan,
            "makespan_low": self.makespan_low,
            "makespan_high": self.makespan_high,
            "core_hours": self.core_hours,
            "overhead_core_hours": self.overhead,
            "misses": self.misses,
            "paper_total_wait": cell and cell.wait,
            "paper_makespan": cell and cell.makespan,
            "paper_core_hours": cell and cell.core_hours,
        }


def measure(protocol: Protocol, tell: Callable[[str], None] = lambda text: None) -> list[Row]:
    """Run all simulations, as many at once as there are cores; rows by machine, rule, workflow, size and strategy."""
    cases = [(m, r, s) for m in protocol.machines for r in protocol.rules for s in protocol.strategies]
    rows: list[Row] = []
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        pending = {pool.submit(_simulate, protocol, *case): case for case in cases}
        try:
            for done, future in enumerate(as_completed(pending), 1):
                rows += future.result()
                tell(f"{done}/{len(cases)} {' '.join(pending[future])}")
        except BaseException:  # without this the pool would first run all that is left
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    order = {name: place for place, name in enumerate(protocol.strategies)}
    names = list(paper.WORKFLOWS)
    return sorted(rows, key=lambda r: (r.rule, names.index(r.workflow), r.cores, order[r.strategy]))


def _simulate(protocol: Protocol, machine: str, rule: str, strategy: str) -> list[Row]:
    logs.configure("error", "text")
    submissions = _submissions(protocol, machine)
    others = background(MACHINES[machine], (submissions[-1].at + _TAIL) / _DAY, protocol.seed)
    config = cluster(MACHINES[machine], rule)
    runs = asyncio.run(drive(config, others, submissions, strategy, {}, protocol.seed))
    found: dict[tuple[str, int], list[WorkflowRun]] = defaultdict(list)
    for run in runs:
        workflow, cores, number = run.workflow.name.split("-")
        if int(number) >= protocol.learning:
            found[workflow, int(cores)].append(run)
    return [_row(machine, rule, strategy, *key, each) for key, each in found.items()]


def _submissions(protocol: Protocol, machine: str) -> list[Submission]:
    found, at = [], _FIRST
    for number in range(protocol.rounds):
        for cores in paper.SCALES[machine]:
            for place, name in enumerate(paper.WORKFLOWS):
                workflow = Workflow(f"{name}-{cores}-{number}", paper.stages(name, cores))
                found.append(Submission(at + _APART * place, workflow))
            at += _GAP
    return found


def _row(machine: str, rule: str, strategy: str, workflow: str, cores: int, runs: Sequence[WorkflowRun]) -> Row:
    unfinished = [run for run in runs if run.phase is not RunPhase.COMPLETED]
    if unfinished:
        raise RuntimeError(f"{strategy} on {machine} under {rule}: {unfinished[0].workflow.name} did not complete")
    metrics = [run_metrics(run) for run in runs]
    makespan = mean_of([m.makespan or 0.0 for m in metrics])
    waits = [[(i, gap_before(run, i) or 0.0) for i in range(1, len(run.stages))] for run in runs]
    perceived = [sum(wait for _, wait in each) for each in waits]
    beyond = [sum(_beyond(run, i, wait) for i, wait in each) for run, each in zip(runs, waits, strict=True)]
    return Row(
        machine,
        rule,
        workflow,
        cores,
        strategy,
        len(runs),
        float(np.mean([m.total_wait for m in metrics])),
        float(np.mean(perceived)),
        float(np.mean(beyond)),
        makespan.value,
        float(np.mean([m.node_hours for m in metrics])) * paper.SLOT,
        float(np.mean([m.overhead_node_hours for m in metrics])) * paper.SLOT,
        float(np.mean([sum(stage.misses for stage in run.stages) for run in runs])),
        makespan.low,
        makespan.high,
    )


def _beyond(run: WorkflowRun, i: int, wait: float) -> float:
    ready = run.ready_at(i)
    return 0.0 if ready is None else max(wait - (ready - run.submitted_at), 0.0)


def normalised(rows: Iterable[Row], metric: Callable[[Row], float]) -> dict[tuple[str, str, str], Interval]:
    """By rule, workflow and strategy: the metric over the lowest of its size, averaged over the sizes (table 1)."""
    cells: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    for row in rows:
        cells[row.rule, row.workflow, row.cores][row.strategy] = metric(row)
    ratios: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for (rule, workflow, _), values in cells.items():
        lowest = max(min(values.values()), 1.0)
        for strategy, value in values.items():
            ratios[rule, workflow, strategy].append(max(value, 1.0) / lowest)
    return {key: mean_of(each) for key, each in ratios.items()}


def goals(rows: Sequence[Row], strategy: str = "auto") -> list[Goal]:
    """The goals of a strategy under each rule, over the sizes where Per-Stage waits at least 30 % of its makespan.

    Big-Job's core-hours are compared over all sizes.
    """
    found: list[Goal] = []
    for rule in dict.fromkeys(row.rule for row in rows):
        cells = _cells(rows, rule)
        waiting = _waiting(cells)
        if waiting:
            best = np.mean([c[strategy].makespan / min(r.makespan for r in c.values()) for c in waiting])
            hours = [sum(c[s].core_hours for c in waiting) for s in (strategy, "perstage")]
            perceived = [sum(c[s].perceived for c in waiting) for s in (strategy, "perstage")]
            found += [
                Goal(rule, "makespan over the best strategy's, normalised average", float(best), 1.01),
                Goal(rule, "core-hours over Per-Stage's", hours[0] / hours[1], 1.01),
                Goal(rule, "perceived wait of stages 2 to s over Per-Stage's", perceived[0] / perceived[1], 0.25),
            ]
        every = [sum(c[s].core_hours for c in cells) for s in (strategy, "bigjob")]
        found.append(Goal(rule, "core-hours over Big-Job's, all sizes", every[0] / every[1], 0.57))
    return found


def bounds(rows: Sequence[Row]) -> dict[str, float]:
    """By rule: which part of Per-Stage's perceived waits no earlier submission could have hidden (`Row.beyond`).

    Over the sizes in which the goals are judged; a rule without any is left out.
    """
    found = {}
    for rule in dict.fromkeys(row.rule for row in rows):
        waiting = [cell["perstage"] for cell in _waiting(_cells(rows, rule))]
        if waiting:
            found[rule] = sum(row.beyond for row in waiting) / sum(row.perceived for row in waiting)
    return found


def _cells(rows: Iterable[Row], rule: str) -> list[dict[str, Row]]:
    """One a workflow and size: its rows by strategy."""
    cells: dict[tuple[str, int], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.rule == rule:
            cells[row.workflow, row.cores][row.strategy] = row
    return list(cells.values())


def _waiting(cells: Iterable[dict[str, Row]]) -> list[dict[str, Row]]:
    return [c for c in cells if c["perstage"].wait >= _WAITS * c["perstage"].makespan]
