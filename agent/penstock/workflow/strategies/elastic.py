"""One job that changes its size between the stages (DMR paper's malleable jobs under the ASA paper's workflows)."""

from __future__ import annotations

from dataclasses import replace

from penstock.api import Reason
from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategies.bigjob import BigJob
from penstock.workflow.strategies.cuts import ELASTIC, together
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, after_parents

__all__ = ["Elastic"]


class Elastic:
    """submits one malleable job for all stages, and resizes it to the nodes that each stage needs

    The first stage waits in the queue as under `perstage`. A wider one gets its nodes when the one before it has ended,
    at once where they are idle; meanwhile the job holds those that it has. A narrower one gives nodes back. Stages run
    one after the other, parents first. Where a job cannot take more nodes it is `bigjob`.
    """

    name = "elastic"
    ahead = False
    tie = Tie.NONE

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """One job, `elastic`."""
        if outlook.rules.no_merge is not None:
            reason = Reason(
                "elastic-no-merge", f"jobs cannot grow here ({outlook.rules.no_merge}), so one job of one size is used"
            )
            plan = BigJob().plan(workflow, outlook)
            return replace(plan, reasons=(reason, *plan.reasons), by=BigJob.name)
        return Plan(together(ELASTIC, workflow.order))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """At once."""
        return after_parents(run, i, now)
