"""Slurm's own clock for the submission ahead: `--dependency=after:J+T`."""

from __future__ import annotations

from dataclasses import replace

from penstock.api import Reason
from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, ahead_of_parents, singles, soon

__all__ = ["AsaAfter"]


class AsaAfter:
    """as asa-naive, but Slurm keeps the time: a job becomes eligible T minutes after its parent's start

    T is the parent's expected run time less the estimate (`--dependency=after:J+T`). It is estimated anew while the
    parent runs, and the dependency changed if T differs by some minutes, a few times at most.
    """

    name = "asa-after"
    ahead = True
    tie = Tie.AFTER

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves."""
        return Plan(singles(workflow.order))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """As soon as its parents are in the queue: the rest of the time is Slurm's."""
        stage = run.stages[i]
        if stage.estimate is None:
            return ahead_of_parents(run, i, now)
        due = soon(run, i, now)
        if due.at is None or due.fixed:
            return due
        text = f"{due.reason.text}; it becomes eligible {stage.estimate:g} s before their expected end"
        return replace(due, reason=Reason(due.reason.code, text))
