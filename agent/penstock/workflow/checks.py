"""Whether a workflow can run on this cluster at all, before anything is submitted. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from penstock.api import Partition
from penstock.errors import UserError
from penstock.values.durations import duration_text
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.registry import strategy_named

__all__ = ["check_against", "check_units"]


def check_against(workflow: Workflow, partitions: Mapping[str, Partition], default: str | None = None) -> Partition:
    """The partition the workflow will run in. `default` is used where it names none; None: the cluster's default.

    Raises UserError naming file and key: unknown partition, more nodes than it has or allows, a limit above its
    maximum.
    """
    where = workflow.source
    name = workflow.partition or default or next((p.name for p in partitions.values() if p.default), None)
    if name is None:
        raise UserError(f"{where}: partition: is missing, and the cluster has no default partition")
    if name not in partitions:
        close = difflib.get_close_matches(name, partitions, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        known = ", ".join(sorted(partitions)) or "none"
        raise UserError(f"{where}: partition: the cluster has no partition {name!r}{hint}; it has: {known}")
    partition = partitions[name]
    most = len(partition.nodes) if partition.max_nodes is None else min(len(partition.nodes), partition.max_nodes)
    for i, stage in enumerate(workflow.stages):
        if stage.nodes > most:
            raise UserError(
                f"{where}: stages[{i}].nodes: must be at most {most}, the most that partition {name!r} gives one job, "
                f"not {stage.nodes}"
            )
        if partition.max_time is not None and stage.time_limit > partition.max_time:
            raise UserError(
                f"{where}: stages[{i}].time: must be at most {duration_text(partition.max_time)}, the limit of "
                f"partition {name!r}, not {duration_text(stage.time_limit)}"
            )
    return partition


def check_units(workflow: Workflow, units: Sequence[Stage], partition: Partition, strategy: str) -> None:
    """Raises UserError when one of the jobs that the strategy makes of the workflow is longer than its partition
    allows (under `bigjob` the limits are summed up), or is an array where it would wait in its script."""
    guarded = strategy_named(strategy).tie.guarded
    for unit in units:
        if guarded and unit.asks.array:
            raise UserError(
                f"{workflow.source}: stages[{workflow.index(unit.name)}].array: under {strategy} a job waits in its "
                "script for those before it, which the tasks of an array cannot; use eager or perstage"
            )
        if partition.max_time is not None and unit.time_limit > partition.max_time:
            raise UserError(
                f"{workflow.source}: stages: as one job they need {duration_text(unit.time_limit)}, partition "
                f"{partition.name!r} allows {duration_text(partition.max_time)}; use another strategy than {strategy}"
            )
