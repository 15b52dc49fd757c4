"""One job per stage, each after the other (ASA paper, section 2.2, figure 2b)."""

from __future__ import annotations

from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, after_parents, singles

__all__ = ["PerStage"]


class PerStage:
    """submits each stage when those before it have ended: no dependency, full waits"""

    name = "perstage"
    ahead = False
    tie = Tie.NONE

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves."""
        return Plan(singles(workflow.order))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """At the last of its parents' ends; without parents at once."""
        return after_parents(run, i, now)
