"""When a stage is submitted: one small class per strategy, one job each. Pure.

Sources: paper 002, sections 2.2 (big job, per stage), 3.2 (ASA). `strategy.py` says what a strategy is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.errors import UserError
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.scripts import combined_command
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Strategy, after_parents, ahead_of_parents

__all__ = ["STRATEGIES", "Asa", "BigJob", "PerStage", "strategy_named"]


class PerStage:
    """Submits a stage once all before it have completed (section 2.2, figure 2b): no dependency, full waits."""

    name = "perstage"
    ahead = False

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """The stages themselves."""
        return workflow.order

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """At the last of its parents' ends; without parents at once."""
        return after_parents(run, i, now)


class BigJob:
    """One job for everything (section 2.2, figure 2a): the most nodes of any stage, the sum of the limits.

    One wait, but the nodes are paid for all the time (equation 1). Stages run one after the other, parents first, also
    those that could run side by side.
    """

    name = "bigjob"
    ahead = False

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """One stage, `bigjob`, whose command runs all others in order and stops at the first that fails."""
        stages = workflow.order
        nodes = max(s.nodes for s in stages)
        limit = sum(s.time_limit for s in stages)
        # the sum of expectations cannot pass that of the limits, but rounding in another order could
        run_time = min(sum(s.run_time for s in stages), limit)
        return (Stage("bigjob", nodes, limit, run_time, combined_command(stages)),)

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """At once."""
        return after_parents(run, i, now)


class Asa:
    """Submits a stage a predicted wait before its parents are expected to have ended (section 3.2: t_{y-1} - a).

    A parent that is pending itself counts too, so a stage may be submitted before its parents start (section 4.6).
    """

    name = "asa"
    ahead = True

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """The stages themselves."""
        return workflow.order

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """The last of its parents' expected ends minus the estimate; once all have ended, at once."""
        return ahead_of_parents(run, units, i, now)


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType({"asa": Asa(), "perstage": PerStage(), "bigjob": BigJob()})


def strategy_named(name: str) -> Strategy:
    """The strategy of that name. Raises UserError."""
    if name not in STRATEGIES:
        raise UserError(f"strategy: must be one of {', '.join(STRATEGIES)}, not {name!r}")
    return STRATEGIES[name]
