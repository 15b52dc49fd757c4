"""The random work of a soak: workflows under every strategy, guided chains, malleable jobs, arrays, rigid jobs.

Pure: everything comes from one `random.Random`. `Scale` turns the virtual part's minutes into the real one's seconds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.workflow.model import Stage, Workflow

__all__ = [
    "REAL",
    "STRATEGIES",
    "VIRTUAL",
    "Rigid",
    "Scale",
    "WorkflowPlan",
    "random_rigid",
    "random_workflow",
    "shape",
]

STRATEGIES: Final = (
    "asa",
    "asa-after",
    "asa-naive",
    "auto",
    "bigjob",
    "eager",
    "elastic",
    "handover",
    "packed",
    "perstage",
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How long things take (s): the shortest and the longest stage, and the time limit over the run time. `widest` is
    the most nodes of a stage, `strategies` are those that can be had."""

    shortest: float
    longest: float
    limit: float
    widest: int
    strategies: Sequence[str] = STRATEGIES


VIRTUAL: Final = Scale(20.0, 900.0, 6.0, 4)
# The nodes of a real job share two cores: a stage is hardly more than its sleep. `elastic` resizes its own job, which
# the light jobs of this part cannot.
REAL: Final = Scale(2.0, 12.0, 30.0, 3, tuple(s for s in STRATEGIES if s != "elastic"))


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """A workflow to submit under a strategy. `fails` is the stage that ends with an error; empty: none."""

    workflow: Workflow
    strategy: str
    fails: str


@dataclass(frozen=True, slots=True)
class Rigid:
    """A job that asks the agent for nothing: so many nodes for so long (s), `tasks` of them if it is an array."""

    name: str
    nodes: int
    seconds: float
    limit: float
    tasks: int = 1


def shape(draw: random.Random, count: int) -> list[tuple[int, ...]]:
    """The parents of each of so many stages, by place: a chain, a fork and join, or any graph without a cycle."""
    kind = draw.choice(("chain", "chain", "fork", "any"))
    if kind == "chain" or count < 3:
        return [() if i == 0 else (i - 1,) for i in range(count)]
    if kind == "fork":
        middle = tuple(range(1, count - 1))
        return [(), *(((0,),) * len(middle)), middle]
    return [tuple(j for j in range(i) if draw.random() < 0.4)[-3:] for i in range(count)]


def random_workflow(
    draw: random.Random, number: int, scale: Scale, *, command: str = "sleep {seconds}"
) -> WorkflowPlan:
    """One of two to five stages. `command` is what a stage runs: `{run}`, `{stage}` and `{seconds}` are filled in."""
    name = f"w{number}"
    parents = shape(draw, draw.randint(2, 5))
    fails = draw.randrange(len(parents)) if draw.random() < 0.08 else -1
    stages = []
    for i, after in enumerate(parents):
        seconds = round(min(scale.longest, scale.shortest * 2 ** draw.uniform(0, 6)), 1)
        text = command.format(run=name, stage=f"s{i}", seconds=f"{seconds:g}") + ("\nexit 3" if i == fails else "")
        expected = seconds * draw.choice((0.7, 1.0, 1.0, 1.3))  # users are seldom right
        limit = max(seconds, expected) * scale.limit
        retries = 1 if i == fails and draw.random() < 0.3 else 0
        nodes = draw.randint(1, scale.widest)
        stages.append(Stage(f"s{i}", nodes, limit, expected, text, tuple(f"s{j}" for j in after), retries))
    strategy = draw.choice(list(scale.strategies))
    return WorkflowPlan(Workflow(name, tuple(stages)), strategy, f"s{fails}" if fails >= 0 else "")


def random_rigid(draw: random.Random, number: int, scale: Scale) -> Rigid:
    """Now and then an array."""
    seconds = round(min(2 * scale.longest, scale.shortest * 2 ** draw.uniform(0, 7)), 1)
    tasks = draw.randint(2, 6) if draw.random() < 0.15 else 1
    return Rigid(f"rigid{number}", draw.randint(1, scale.widest), seconds, seconds * scale.limit, tasks)
