"""One job for everything (ASA paper, section 2.2, figure 2a)."""

from __future__ import annotations

from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategies.cuts import together
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, after_parents

__all__ = ["BigJob"]


class BigJob:
    """submits one job with the most nodes and the sum of the times

    One wait, but the nodes are paid for all the time (equation 1). Stages run one after the other, parents first, also
    those that could run side by side.
    """

    name = "bigjob"
    ahead = False
    tie = Tie.NONE

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """One job, `bigjob`, which runs all stages in order and stops at the first that fails."""
        return Plan(together("bigjob", workflow.order))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """At once."""
        return after_parents(run, i, now)
