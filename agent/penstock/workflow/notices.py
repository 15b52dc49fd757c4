"""What people are told of workflows. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dmr.wire import clean
from penstock.core.events import Event
from penstock.workflow.phases import StagePhase
from penstock.workflow.state import StageRun, WorkflowRun

__all__ = ["failed_stages"]


def failed_stages(before: WorkflowRun | None, run: WorkflowRun, *, uid: int, user: str, now: float) -> Iterator[Event]:
    """The stages that have failed since the run was as `before` (None: all that have)."""
    known = {(stage.name, stage.job) for stage in (before.stages if before else ()) if _failed(stage)}
    for stage in run.stages:
        if not _failed(stage) or (stage.name, stage.job) in known:
            continue
        # A job that Slurm never took has no number; of those each attempt is another one.
        which = f"attempt {stage.attempt}" if stage.job is None else f"job {stage.job}"
        why = clean(stage.failure or "it failed")
        yield Event(
            f"stage-failed workflow {run.id}/{stage.name} {which}",
            "stage-failed",
            now,
            f"stage {stage.name} of workflow {run.name} has failed",
            f"Stage {stage.name} of workflow {run.id} ({run.name}): {why}\n\n"
            f"What was decided: penstock explain w{run.id}\nWhat it wrote: penstock logs {run.id} {stage.name}\n"
            f"To run it again: penstock retry {run.id}\n",
            uid,
            user,
            {"workflow": run.id, "name": run.name, "stage": stage.name, "job": stage.job, "why": why},
        )


def _failed(stage: StageRun) -> bool:
    return stage.phase is StagePhase.FAILED
