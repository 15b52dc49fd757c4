"""Submission ahead by the predicted wait, behind a dependency (ASA paper, section 3.2 and the beginning of 4.5)."""

from __future__ import annotations

from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, ahead_of_parents, singles

__all__ = ["Asa"]


class Asa:
    """submits each stage ahead of its queue wait, as learned from earlier waits, behind a dependency

    A predicted wait before its parents are expected to have ended (t_{y-1} - a). A parent that is pending itself
    counts too, so a stage may be submitted before its parents start (section 4.6).
    """

    name = "asa"
    ahead = True
    tie = Tie.AFTEROK

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves."""
        return Plan(singles(workflow.order))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """The last of its parents' expected ends minus the estimate; once all have ended, at once."""
        return ahead_of_parents(run, i, now)
