"""Submission as early as possible, behind a node of the parent instead of a dependency on it."""

from __future__ import annotations

from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, levels_ahead, singles, soon

__all__ = ["Handover"]


class Handover:
    """as eager, but a stage whose parents run waits for a node of theirs, not for them: it ages, and no node idles

    A job that asks for a node which its parent holds (`--nodelist`) cannot start before the parent has given it up. To
    Slurm it is an ordinary job that waits for resources: it ages without ACCRUE_ALWAYS, and the backfill plan keeps
    nodes for it (run on 22.05.8 and 24.11.5). When the parents have ended and it still waits, the wish is dropped. A
    guard in the script makes sure that the parents have succeeded. Only where jobs do not share nodes.
    """

    name = "handover"
    ahead = False
    tie = Tie.NODES

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves."""
        return Plan(singles(workflow.order), levels_ahead=levels_ahead(workflow, outlook.rules))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """As soon as its parents are in the queue."""
        return soon(run, i, now)
