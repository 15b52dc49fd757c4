"""Submission as early as possible, behind a dependency."""

from __future__ import annotations

from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, singles, soon

__all__ = ["Eager"]


class Eager:
    """submits each stage as soon as those before it are in the queue, behind a dependency: nodes never idle

    Where dependent jobs age, or the order of submission counts, nothing is gained by submitting later. Elsewhere it
    saves the time until the agent has seen a parent's end and submitted what follows.
    """

    name = "eager"
    ahead = False
    tie = Tie.AFTEROK

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves."""
        return Plan(singles(workflow.order))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """As soon as its parents are in the queue."""
        return soon(run, i, now)
