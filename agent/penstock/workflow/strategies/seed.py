"""Submission as early as possible, behind a dependency, with an age that counts from then on."""

from __future__ import annotations

from penstock.errors import UserError
from penstock.workflow.model import Workflow
from penstock.workflow.strategies.eager import Eager
from penstock.workflow.strategy import Outlook, Plan
from penstock.workflow.ties import Tie

__all__ = ["Seed"]


class Seed(Eager):
    """as eager, and each stage ages from its submission on although it depends on others, where the site allows that

    Each job gets a begin time that comes at once. Where no limits are enforced Slurm counts its age from that instant,
    whatever it waits for besides (run on 22.05.8, 24.11.5 and 26.05.5). It never starts before its parents have ended:
    the dependency is there from the beginning. That bends what a site means by an age that does not count while a job
    depends on others, so only an administrator can allow it (`workflows.age_while_dependent`).
    """

    name = "seed"
    tie = Tie.AGED

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The stages themselves. UserError where the site does not allow it, or Slurm does not count such an age."""
        if outlook.rules.no_early_age is not None:
            raise UserError(f"the strategy seed cannot be used here: {outlook.rules.no_early_age}")
        return super().plan(workflow, outlook)
