"""A workflow that has ended runs again from where it failed. Pure."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from penstock.errors import UserError
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.state import StageRun, WorkflowRun

__all__ = ["retried"]

_KEPT: Final = ("name", "after", "attempt", "covers", "exclude")


def retried(run: WorkflowRun, stage: str | None = None, *, token: str, now: float) -> WorkflowRun:
    """The run with every stage that has not completed waiting again; with `stage`: that one and all after it, too.
    They wait from `now` on. A new `token` parts its jobs from the earlier ones: what those left on the disk no longer
    counts (`guard.py`).

    Raises UserError for one that has not ended, an unknown stage, and when there is nothing to run again.
    """
    if not run.phase.final:
        raise UserError(f"workflow {run.id} is {run.phase.value}: it can be retried when it has ended")
    again = {s.name for s in run.stages if s.phase is not StagePhase.DONE}
    if stage is not None:
        names = [s.name for s in run.stages]
        if stage not in names:
            raise UserError(f"workflow {run.id} has no stage {stage!r} (stages: {', '.join(names)})")
        place = names.index(stage)
        again |= {stage, *(run.stages[i].name for i in run.following([place]))}
    if not again:
        raise UserError(f"all stages of workflow {run.id} have completed: name the stage to run again")
    stages = tuple(replace(_fresh(s), again_from=now) if s.name in again else s for s in run.stages)
    anew = replace(run, token=token, stage_first=True, environment="")
    return replace(anew, phase=RunPhase.ACTIVE, why=None, ended_at=None, stages=stages)


def _fresh(stage: StageRun) -> StageRun:
    # The number of attempts stays: job names hold it.
    return StageRun(**{f.name: getattr(stage, f.name) for f in fields(stage) if f.name in _KEPT})
