"""Submission as early as possible, behind a dependency, with an age that counts from then on."""

from __future__ import annotations

from penstock.errors import UserError
from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Due, Outlook, Plan, Tie, levels_ahead, singles, soon

__all__ = ["Seed"]


class Seed:
    """as eager, and each stage ages from its submission on although it depends on others, where the site allows that

    Each job gets a begin time that comes at once. Where no limits are enforced Slurm counts its age from that instant,
    whatever it waits for besides (run on 22.05.8, 24.11.5 and 26.05.5). It never starts before its parents have ended:
    the dependency is there from the beginning. That bends what a site means by an age that does not count while a job
    depends on others, so only an administrator can allow it (`workflows.age_while_dependent`).
    """

    name = "seed"
    ahead = False
    tie = Tie.AGED

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves. UserError where the site does not allow it, or Slurm does not count such an age."""
        if outlook.rules.no_early_age is not None:
            raise UserError(f"the strategy seed cannot be used here: {outlook.rules.no_early_age}")
        return Plan(singles(workflow.order), levels_ahead=levels_ahead(workflow, outlook.rules))

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """As soon as its parents are in the queue."""
        return soon(run, i, now)
