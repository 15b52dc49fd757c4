"""Which strategy would have brought a chain of stages through a site's own queue, in pairs.

Windows of a history are replayed on the simulated Slurm. At an instant of each the same chain is submitted in every
way, each in a fork of the same queue (`paired.forks`): as a plain chain of `sbatch --dependency=afterok`, and by the
agent under each strategy. Run times are the expected ones. Nobody else's jobs differ until the chain makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from penstock.api import JobSpec
from penstock.errors import UserError
from penstock.host import logs
from penstock.workflow.model import Stage, Workflow
from penstock_lab.intervals import Interval, ratio_of_means
from penstock_lab.mock.engine import Engine
from penstock_lab.paired.forks import in_forks
from penstock_lab.paired.ways import Outcome, plain, seconds_of, under_agent
from penstock_lab.papers import site as papers_site
from penstock_lab.papers.drive import let_arrive
from penstock_lab.whatif.simulate import Setup
from penstock_lab.whatif.windows import Length, Window

__all__ = ["LENGTH", "PLAIN", "STRATEGIES", "StrategyRow", "chain_of", "measured", "rows_of", "usual_chain"]

PLAIN: Final = "plain chain"
STRATEGIES: Final = ("auto", "perstage", "asa", "bigjob")
LENGTH: Final = Length(lead=300, judged=1, tail=900)
"""A chain takes long, and others must go on coming meanwhile."""
_PART: Final = 32
_HOUR: Final = 3600.0
_USERS: Final = 40


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """One way over all windows: the mean makespan and wait of the later stages (s), the makespan over the plain chain's
    with its 95 % interval and median, node-seconds over the plain chain's, and in how many windows it took longer."""

    strategy: str
    windows: int
    makespan: float
    later: float
    ratio: Interval
    median: float
    cost: Interval
    worse: int

    def told(self) -> dict[str, Any]:
        """As JSON."""
        spans = {"makespan_over_plain": self.ratio, "node_seconds_over_plain": self.cost}
        found: dict[str, Any] = {
            "strategy": self.strategy,
            "windows": self.windows,
            "mean_makespan": self.makespan,
            "mean_later_waits": self.later,
            "median_over_plain": self.median,
            "worse": self.worse,
        }
        for name, span in spans.items():
            found |= {name: span.value, f"{name}_low": span.low, f"{name}_high": span.high}
        return found


def usual_chain(units: int) -> Workflow:
    """Four stages of an hour with limits of one and a half, each on a 32nd of the machine."""
    nodes = max(units // _PART, 1)
    stages: list[Stage] = []
    for number in range(1, 5):
        after = (stages[-1].name,) if stages else ()
        stages.append(Stage(f"stage-{number}", nodes, 1.5 * _HOUR, _HOUR, _command(_HOUR), after))
    return Workflow("chain", tuple(stages))


def chain_of(workflow: Workflow, units: int) -> Workflow:
    """A workflow of somebody's as it is simulated: its nodes, limits and expected run times, nothing of what it runs.
    UserError if its stages do not come one after the other, or do not fit."""
    stages: list[Stage] = []
    for stage in workflow.order:
        if stage.after != ((stages[-1].name,) if stages else ()):
            raise UserError(f"{workflow.source}: stage {stage.name} does not come after the one before it alone")
        if stage.nodes > units:
            raise UserError(f"{workflow.source}: stage {stage.name} has {stage.nodes} nodes, the machine {units}")
        run = min(stage.run_time, stage.time_limit)
        after = (stages[-1].name,) if stages else ()
        stages.append(Stage(stage.name, stage.nodes, stage.time_limit, run, _command(run), after))
    return Workflow(workflow.name, tuple(stages))


def _command(seconds: float) -> str:
    return f"bench-stage {seconds:g}"


def measured(window: Window, setup: Setup, workflow: Workflow, at_once: int | None = None) -> dict[str, Outcome]:
    """What each way came to in one window, by its name."""
    logs.configure("critical", "text")
    engine = Engine(setup.config(), 0.0, duration=seconds_of)
    let_arrive(engine, _others(window))
    engine.advance(next(arrival.eligible for arrival in window.arrivals if arrival.judged))
    engine.take_effects()
    ways: dict[str, Callable[[], Outcome]] = {PLAIN: partial(plain, engine, workflow)}
    for strategy in STRATEGIES:
        ways[strategy] = partial(under_agent, engine, workflow, strategy, {})
    told = in_forks({name: partial(_told, way) for name, way in ways.items()}, at_once)
    return {name: Outcome.read(each) for name, each in told.items()}


def _told(way: Callable[[], Outcome]) -> dict[str, Any]:
    return way().told()


def _others(window: Window) -> Iterator[papers_site.Arrival]:
    for at, arrival in enumerate(sorted(window.arrivals, key=lambda one: one.eligible)):
        spec = JobSpec("other", "#!/bin/sh\n", arrival.units, arrival.limit)
        yield papers_site.Arrival(arrival.eligible, arrival.run, spec, f"user{at % _USERS}")


def rows_of(found: Sequence[dict[str, Outcome]]) -> list[StrategyRow]:
    """A row for each way, the plain chain first."""
    usual = [one[PLAIN] for one in found]
    rows = []
    for name in (PLAIN, *STRATEGIES):
        these = [one[name] for one in found]
        ratios = [a.makespan / max(b.makespan, 1.0) for a, b in zip(these, usual, strict=True)]
        rows.append(
            StrategyRow(
                name,
                len(found),
                float(np.mean([one.makespan for one in these])),
                float(np.mean([one.later for one in these])),
                ratio_of_means([one.makespan for one in these], [one.makespan for one in usual]),
                float(np.median(ratios)),
                ratio_of_means([one.node_seconds for one in these], [one.node_seconds for one in usual]),
                sum(ratio > 1.0 + 1e-3 for ratio in ratios),
            )
        )
    return rows
