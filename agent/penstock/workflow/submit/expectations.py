"""How long stages took in earlier runs of the same workflow: better than their limits. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import StagePhase
from penstock.workflow.state import StageRun, WorkflowRun

__all__ = ["expected_by", "took_in"]

_LATEST = 10


def expected_by(workflow: Workflow, runs: Iterable[WorkflowRun]) -> Workflow:
    """The workflow, whose stages of unknown run time expect the mean of the latest ten times that the stage of this
    name completed on as many nodes, in `runs` (oldest first) of a workflow of the same name."""
    if not any(stage.guessed for stage in workflow.stages):
        return workflow
    took: dict[tuple[str, int], list[float]] = defaultdict(list)
    for run in runs:
        for stage, unit, seconds in _times(run, workflow.name):
            took[stage.name, unit.nodes].append(seconds)

    def expected(stage: Stage) -> Stage:
        known = took.get((stage.name, stage.nodes))
        return replace(stage, run_time=min(_mean(known), stage.time_limit)) if stage.guessed and known else stage

    return replace(workflow, stages=tuple(map(expected, workflow.stages)))


def took_in(runs: Iterable[WorkflowRun], name: str) -> dict[str, float]:
    """The same by stage, on however many nodes, for jobs of which that is not known yet."""
    took: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for stage, _unit, seconds in _times(run, name):
            took[stage.name].append(seconds)
    return {stage: _mean(known) for stage, known in took.items()}


def _times(run: WorkflowRun, name: str) -> Iterator[tuple[StageRun, Stage, float]]:
    """How long (s) each stage of a run that completed took, if it is one of the workflow of this name."""
    for stage, unit in zip(run.stages, run.units, strict=True) if run.name == name else ():
        if stage.phase is StagePhase.DONE and stage.start is not None and stage.end is not None:
            yield stage, unit, max(stage.end - stage.start, 1.0)


def _mean(known: Sequence[float]) -> float:
    latest = known[-_LATEST:]
    return sum(latest) / len(latest)
