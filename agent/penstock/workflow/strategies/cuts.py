"""How the stages of a workflow are cut into jobs: a stage each, all in one, or some together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

from penstock.errors import UserError
from penstock.workflow.asks import in_one_job, why_apart
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.scripts import GROWTH_WAIT, combined_command, resizing_command

__all__ = ["ELASTIC", "Cut", "elastic", "grouped", "levels", "merged", "place_units", "singles", "together"]

ELASTIC: Final = "elastic"
"""A job of several stages that is called so takes the nodes of each stage in its turn (`elastic`)."""

Cut = tuple[tuple[str, tuple[str, ...]], ...]
"""The jobs of a workflow: what each is called and which stages it runs."""


def singles(stages: Iterable[Stage]) -> Cut:
    """One job per stage."""
    return tuple((stage.name, (stage.name,)) for stage in stages)


def together(name: str, stages: Iterable[Stage]) -> Cut:
    """One job for all of them."""
    return ((name, tuple(stage.name for stage in stages)),)


def levels(workflow: Workflow) -> tuple[tuple[Stage, ...], ...]:
    """The stages by the length of the longest way to them: nobody waits for another of the same level."""
    depth: dict[str, int] = {}
    found: list[list[Stage]] = []
    for stage in workflow.order:
        depth[stage.name] = 1 + max((depth[parent] for parent in stage.after), default=-1)
        if depth[stage.name] == len(found):
            found.append([])
        found[depth[stage.name]].append(stage)
    return tuple(tuple(level) for level in found)


def grouped(rows: Sequence[Sequence[Stage]], groups: Iterable[tuple[int, int]]) -> Cut:
    """The rows of stages by groups, each from a place up to but not including another: a row alone in its group is a
    job a stage, several are one job."""
    taken = {stage.name for row in rows for stage in row}
    made: Cut = ()
    for number, (first, end) in enumerate(groups, 1):
        stages = [stage for row in rows[first:end] for stage in row]
        if end - first == 1:
            made += singles(stages)
            continue
        name = f"part{number}"
        while name in taken:
            name += "_"
        taken.add(name)
        made += together(name, stages)
    return made


def merged(name: str, stages: Sequence[Stage], after: tuple[str, ...] = (), shell: str = "strict") -> Stage:
    """One job that runs the stages, parents first: the most nodes of any, the sums of the limits and of the times.

    The nodes are paid for all the time (equation 1 of the ASA paper); stages that could run side by side do not. It is
    repeated as often as the most patient of them. It asks for the most memory and CPUs of any.

    Raises UserError for stages that cannot be one job (`asks.why_apart`).
    """
    if (why := why_apart([(stage.name, stage.asks) for stage in stages])) is not None:
        raise UserError(f"stages: {why}, so they cannot be one job; use another strategy")
    limit = sum(stage.time_limit for stage in stages)
    # the sum of expectations cannot pass that of the limits, but rounding in another order could
    run_time = min(sum(stage.run_time for stage in stages), limit)
    nodes, retries = max(stage.nodes for stage in stages), max(stage.retries for stage in stages)
    command, asks = combined_command(stages, shell), in_one_job([stage.asks for stage in stages])
    return Stage(name, nodes, limit, run_time, command, after, retries, asks=asks)


def elastic(stages: Sequence[Stage], after: tuple[str, ...] = (), shell: str = "strict") -> Stage:
    """One job that runs the stages, parents first, and has for each the nodes of that stage, at first the first's.

    Its limit has room for the waits for more nodes.
    """
    grows = sum(later.nodes > earlier.nodes for earlier, later in pairwise(stages))
    made = merged(ELASTIC, stages, after, shell)
    limit = made.time_limit + grows * GROWTH_WAIT
    return replace(made, nodes=stages[0].nodes, time_limit=limit, command=resizing_command(stages, shell))


def place_units(workflow: Workflow, cut: Cut) -> tuple[Stage, ...]:
    """The jobs of a cut as stages, each after the jobs that hold its parents, in an order that keeps parents first.

    Raises UserError unless every stage is in exactly one job, and no job comes after a later one.
    """
    order = workflow.order
    stages = {stage.name: stage for stage in order}
    home = {stage: name for name, covered in cut for stage in covered}
    if sorted(home) != sorted(stages) or sum(len(covered) for _, covered in cut) != len(stages):
        raise UserError(f"{workflow.source}: the strategy's jobs do not hold every stage once")
    made: list[Stage] = []
    seen: set[str] = set()
    for name, covered in cut:
        held = set(covered)
        parents = [home[p] for stage in order if stage.name in held for p in stages[stage.name].after]
        after = tuple(dict.fromkeys(parent for parent in parents if parent != name))
        if not seen.issuperset(after):
            raise UserError(f"{workflow.source}: the strategy's job {name!r} stands before one that it comes after")
        seen.add(name)
        if len(covered) == 1 and covered[0] == name:
            made.append(replace(stages[name], after=after))
        else:
            inside = [stage for stage in order if stage.name in held]
            join = partial(elastic, inside) if name == ELASTIC else partial(merged, name, inside)
            try:
                made.append(join(after, workflow.shell))
            except UserError as error:
                raise UserError(f"{workflow.source}: {error}") from error
    return tuple(made)
