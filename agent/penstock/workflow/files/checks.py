"""Whether a workflow can run on this cluster at all, before anything is submitted. Pure."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.api import Partition
from penstock.errors import UserError
from penstock.values.durations import duration_text
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.strategies.registry import strategy_named

__all__ = ["check_against", "check_units", "elsewhere", "partitions_of"]


def check_against(workflow: Workflow, partitions: Mapping[str, Partition], default: str | None = None) -> Partition:
    """The partition the workflow will run in; of several what their jobs can reckon with: the nodes of all of them, the
    shortest of the longest times, and exclusive nodes if all have them. `default` is used where it names none; None:
    the cluster's default.

    Raises UserError naming file and key: unknown partition, or a stage that none of its partitions would ever start.
    """
    where = workflow.source
    name = workflow.partition or default or next((p.name for p in partitions.values() if p.default), None)
    found: dict[str, tuple[Partition, ...]] = {}
    if name is not None and (workflow.partition or not all(stage.asks.partition for stage in workflow.stages)):
        found[name] = _named(name, partitions, f"{where}: partition")
    for i, stage in enumerate(workflow.stages):
        own = stage.asks.partition or name
        if own is None:
            raise UserError(f"{where}: partition: is missing, and the cluster has no default partition")
        if own not in found:
            found[own] = _named(own, partitions, f"{where}: stages[{i}].partition")
        if problems := _misfits(found[own], stage.nodes, stage.time_limit):
            raise UserError(f"{where}: stages[{i}].{problems[0]}")
    return _joined(name or min(found), found.values())


def partitions_of(workflow: Workflow, usual: str) -> list[str]:
    """Where any of its stages may start, with the one that counts where it names none."""
    names = (stage.asks.partition or workflow.partition or usual for stage in workflow.stages)
    return list(dict.fromkeys(name for several in names for name in several.split(",")))


def elsewhere(workflow: Workflow) -> str | None:
    """What of it asks for a partition besides one for all stages, for messages; None: nothing."""
    if "," in (workflow.partition or ""):
        return f"partition: {workflow.partition}"
    found = (f"stages[{i}].partition: {s.asks.partition}" for i, s in enumerate(workflow.stages) if s.asks.partition)
    return next(found, None)


def _named(names: str, partitions: Mapping[str, Partition], where: str) -> tuple[Partition, ...]:
    """The partitions of a list with commas."""
    for name in names.split(","):
        if name not in partitions:
            close = difflib.get_close_matches(name, partitions, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            known = ", ".join(sorted(partitions)) or "none"
            raise UserError(f"{where}: the cluster has no partition {name!r}{hint}; it has: {known}")
    return tuple(partitions[name] for name in names.split(","))


def _misfits(parts: Sequence[Partition], nodes: int, limit: float) -> list[str]:
    """Why each of these partitions would never start such a job, as key and problem; nothing where one would."""
    found = []
    for partition in parts:
        if nodes > partition.most_nodes:
            found.append(
                f"nodes: must be at most {partition.most_nodes}, the most that partition {partition.name!r} gives one "
                f"job, not {nodes}"
            )
        elif partition.max_time is not None and limit > partition.max_time:
            found.append(
                f"time: must be at most {duration_text(partition.max_time)}, the limit of partition "
                f"{partition.name!r}, not {duration_text(limit)}"
            )
        else:
            return []
    return found


def _joined(name: str, groups: Collection[Sequence[Partition]]) -> Partition:
    """What jobs can reckon with, each of which may start in any of one of these groups."""
    parts = list({partition.name: partition for group in groups for partition in group}.values())
    if len(parts) == 1:
        return parts[0]
    longest = [max(math.inf if p.max_time is None else p.max_time for p in group) for group in groups]
    return replace(
        parts[0],
        name=name,
        nodes=tuple(dict.fromkeys(node for partition in parts for node in partition.nodes)),
        max_time=None if min(longest) == math.inf else min(longest),
        exclusive=all(partition.exclusive for partition in parts),
    )


def check_units(workflow: Workflow, units: Sequence[Stage], partition: Partition, strategy: str) -> None:
    """Raises UserError when one of the jobs that the strategy makes of the workflow is longer than its partition
    allows (under `bigjob` the limits are summed up), or is an array where it would wait in its script."""
    guarded = strategy_named(strategy).tie.guarded
    alone = {stage.name: stage.time_limit for stage in workflow.stages}
    for unit in units:
        if guarded and unit.asks.array:
            raise UserError(
                f"{workflow.source}: stages[{workflow.index(unit.name)}].array: under {strategy} a job waits in its "
                "script for those before it, which the tasks of an array cannot; use eager or perstage"
            )
        if alone.get(unit.name) == unit.time_limit:
            continue  # it is a stage, which was looked at by itself
        if partition.max_time is not None and unit.time_limit > partition.max_time:
            raise UserError(
                f"{workflow.source}: stages: as one job they need {duration_text(unit.time_limit)}, partition "
                f"{partition.name!r} allows {duration_text(partition.max_time)}; use another strategy than {strategy}"
            )
