"""Submission as early as possible, behind a dependency."""

from __future__ import annotations

from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, levels_ahead, singles, soon

__all__ = ["Eager"]


class Eager:
    """submits each stage as soon as those before it are in the queue, behind a dependency: nodes never idle

    What a chain of `sbatch --dependency=afterok` does: all stages are in the queue from the beginning. Where dependent
    jobs age, or priorities tie and the order of submission counts, each has its place by that; elsewhere it is in the
    queue when the one before it ends.
    """

    name = "eager"
    ahead = False
    tie = Tie.AFTEROK

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves."""
        return Plan(singles(workflow.order), levels_ahead=levels_ahead(workflow, outlook.rules))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """As soon as its parents are in the queue."""
        return soon(run, i, now)
