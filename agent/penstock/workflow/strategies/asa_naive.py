"""Submission ahead without a dependency (ASA paper, section 4.5, "ASA Naïve")."""

from __future__ import annotations

from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, ahead_of_parents, singles

__all__ = ["AsaNaive"]


class AsaNaive:
    """as asa, but without a dependency: a job that starts too early idles, or is taken back and submitted again

    The job ages and is planned like any other. Started before its parents have ended, its script waits for them if
    they are expected to end within the grace time (the idle core-hours are the overhead OH); else it is cancelled and
    submitted again, which is a miss.
    """

    name = "asa-naive"
    ahead = True
    tie = Tie.GUARD

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves."""
        return Plan(singles(workflow.order))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """The last of its parents' expected ends minus the estimate; after two misses, when they have ended."""
        return ahead_of_parents(run, i, now)
