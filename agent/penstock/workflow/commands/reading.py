"""Workflows of the agent's answers, for `runs`, which loads this where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.output import clock
from penstock.workflow.commands.runs import KEPT_BACK, NEVER, NEVER_STARTS, Shown, StageLine
from penstock.workflow.documents import run_from_dict
from penstock.workflow.metrics import waited
from penstock.workflow.phases import StagePhase
from penstock.workflow.state import StageRun

__all__ = ["of_reserved", "of_run", "with_its_waits"]

_STUCK: Final = (
    f"a job that it depends on has not ended as it must ({NEVER}): `penstock retry` repeats that, `cancel` ends it all"
)


def of_run(answer: Mapping[str, Any]) -> Shown:
    """A workflow of the agent's answer; its stages are told with what Slurm says of their jobs."""
    run = run_from_dict(answer)
    stages = tuple(
        StageLine(s.name, phase, s.job, s.submitted, s.start, s.end, waited(run, i), why)
        for i, (s, one) in enumerate(zip(run.stages, answer["stages"], strict=True))
        for phase, why in ((NEVER_STARTS, _STUCK) if one.get("reason") == NEVER else (_phase_of(s), _why(s)),)
    )
    title = (run.id, run.name, run.strategy, run.phase.value, run.phase.final, run.why)
    return Shown(*title, stages, owned=run if run.owned else None, open_until=run.open_until)


def _why(stage: StageRun) -> str | None:
    """What went wrong with it; as long as it waits, what else than its stages Slurm has it wait for."""
    if stage.failure is None and stage.own is not None and stage.own.chained and stage.phase is StagePhase.QUEUED:
        return f"Slurm sees to its {stage.own.base}" if stage.own.base else None
    return stage.failure


def with_its_waits(workflow: Mapping[str, Any]) -> dict[str, Any]:
    """See `runs.with_waits`."""
    run = run_from_dict(workflow)
    stages = []
    for i, stage in enumerate(workflow["stages"]):
        found = None if run.in_slots else waited(run, i)  # a slot's begin is no wait
        parts = ("perceived", "paused", "reaction")
        values = {name: None if found is None else getattr(found, name) for name in parts}
        stages.append({**stage, "perceived_wait": values.pop("perceived"), **values})
    return {**workflow, "stages": stages}


def _phase_of(stage: StageRun) -> str:
    """The phase in a word for people: a job that is kept back is in the queue and does not wait to be asked for."""
    return KEPT_BACK if stage.own is not None and stage.phase is StagePhase.WAITING else stage.phase.value


def of_reserved(answer: Mapping[str, Any]) -> Shown:
    """A workflow in slots."""
    run = run_from_dict(answer)
    stages = []
    for s in run.stages:
        slot = f"slot of hold {s.held.hold} at {clock(answer['slots'][s.name]['wanted']['start'])}"
        why = run.told.get(s.name) or s.failure
        told = f"{slot}: {why}" if why else slot
        stages.append(StageLine(s.name, s.phase.value, s.job, s.submitted, s.start, s.end, None, told))
    why = run.told.get("") or run.why
    title = (None, run.name, "reserved", run.phase.value, run.phase.final, why)
    return Shown(*title, tuple(stages), flow=run.workflow.name)
