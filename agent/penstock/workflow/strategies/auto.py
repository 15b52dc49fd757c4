"""Picks a strategy by the site's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from penstock.api import Reason, plural
from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategies.eager import Eager
from penstock.workflow.strategies.handover import Handover
from penstock.workflow.strategies.perstage import PerStage
from penstock.workflow.strategies.seed import Seed
from penstock.workflow.strategy import Due, Outlook, Plan, Rules, Strategy, Tie, after_parents

__all__ = ["Auto", "by_rules"]


class Auto:
    """picks one of the others by the site's rules; `penstock explain` says which and why

    Of the ways to be in the queue early it takes only those under which nodes never idle, so that a stage costs the
    core-hours that it costs under `perstage`. Neighbouring stages of equal width share a job where forecasts of the
    queue as it is exclude a loss (`forecast.better_cut`); else it is a plain chain.
    """

    name = "auto"
    ahead = False
    tie = Tie.NONE
    foresees: Literal[True] = True

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The plan of the strategy that was picked, with the reasons."""
        chosen, reasons = _choose(workflow, outlook)
        plan, gain = chosen.plan(workflow, outlook), None
        if outlook.better is not None and outlook.scripts and chosen.name != PerStage.name:
            plan, reasons = replace(plan, cut=outlook.better.cut), (*reasons, *outlook.better.reasons)
            gain = outlook.better.gain
        return Plan(plan.cut, (*reasons, *plan.reasons), chosen.name, plan.levels_ahead, gain)

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """The strategy that was picked decides; never earlier than the parents' ends."""
        return after_parents(run, i, now)


def _choose(workflow: Workflow, outlook: Outlook) -> tuple[Strategy, tuple[Reason, ...]]:
    if not any(stage.after for stage in workflow.stages):
        return PerStage(), (Reason("auto-nothing-ahead", "perstage: no stage comes after another"),)
    # The tasks of an array would each wait in their script, and the first to end would speak for all.
    arrays = any(stage.asks.array for stage in workflow.stages)
    return by_rules(outlook.rules, scripts=outlook.scripts and not arrays)


def by_rules(rules: Rules, *, scripts: bool = True) -> tuple[Strategy, tuple[Reason, ...]]:
    """What a site's rules make the best way to submit stages that come after one another, and why. `scripts`: they can
    be given a guard."""
    site = []
    if rules.basic:
        text = "priority/basic: the queue is in order of submission, and jobs that depend on others keep their place"
        site.append(Reason("auto-basic", text))
    elif rules.accrues:
        site.append(Reason("auto-accrues", "ACCRUE_ALWAYS: jobs age while they depend on others"))
    else:
        text = "no ACCRUE_ALWAYS: a job ages while it waits for nodes, but not while it depends on another job"
        site.append(Reason("auto-no-accrual", text))
    if rules.weight_age == 0 and not rules.basic:
        text = "PriorityWeightAge is 0: jobs gain no priority by age, and those of equal priority go by submission"
        site.append(Reason("auto-no-age", text))
    if rules.max_accrue is not None:
        text = f"at most {plural(rules.max_accrue, 'pending job')} of a user can age (MaxJobsAccrue)"
        site.append(Reason("auto-accrue-limit", text))
    if rules.may_age:
        text = "an administrator allows stages to age while they depend on others: each ages from its submission on"
        site.append(Reason("auto-ages", text))
    if rules.whole_nodes and scripts:
        text = "handover: jobs do not share nodes, so a stage can wait for a node of the one before it; no node idles"
        return Handover(), (*site, Reason("auto-handover", text))
    if rules.may_age:
        return Seed(), (*site, Reason("auto-seed", "seed: the stage keeps its place in the queue"))
    gain = (
        "the stage keeps its place in the queue"
        if rules.accrues
        else "the stage is in the queue when the one before it ends, but has gained no age"
    )
    why = "the stages' scripts cannot wait for others" if rules.whole_nodes else "jobs share nodes"
    text = f"eager: {why}, so only a dependency keeps a stage from starting too early; {gain}"
    return Eager(), (*site, Reason("auto-eager", text))
