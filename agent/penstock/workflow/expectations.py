"""How long stages took in earlier runs of the same workflow: better than their limits. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import Phase, WorkflowRun

__all__ = ["expected_by"]

_LATEST = 10


def expected_by(workflow: Workflow, runs: Iterable[WorkflowRun]) -> Workflow:
    """The workflow, whose stages of unknown run time expect the mean of the latest ten times that the stage of this
    name completed on as many nodes, in `runs` (oldest first) of a workflow of the same name."""
    if not any(stage.guessed for stage in workflow.stages):
        return workflow
    took: dict[tuple[str, int], list[float]] = defaultdict(list)
    for run in runs:
        if run.workflow.name != workflow.name:
            continue
        for stage, unit in zip(run.stages, run.units, strict=True):
            if stage.phase is Phase.DONE and stage.start is not None and stage.end is not None:
                took[stage.name, unit.nodes].append(max(stage.end - stage.start, 1.0))

    def expected(stage: Stage) -> Stage:
        known = took.get((stage.name, stage.nodes), [])[-_LATEST:]
        if not stage.guessed or not known:
            return stage
        return replace(stage, run_time=min(sum(known) / len(known), stage.time_limit))

    return replace(workflow, stages=tuple(map(expected, workflow.stages)))
