"""Workflows as the page draws them, out of what the agent says: JSON-able values, times in epoch s."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from penstock.workflow.documents import run_from_dict
from penstock.workflow.metrics import perceived_wait
from penstock.workflow.phases import StagePhase
from penstock.workflow.state import StageRun, WorkflowRun

__all__ = ["workflows_model"]

_ENDED_SHOWN: Final = 10
Json = dict[str, Any]


def workflows_model(status: Mapping[str, Any], now: float, starts: Mapping[str, Json] | None = None) -> list[Json]:
    """Open workflows and the latest that have ended, newest first, out of an answer to `status`. `starts` are those of
    jobs that wait, by `data.waiting_starts`: of one job the page says one instant."""
    found = [_run(run_from_dict(w), now, starts or {}) for w in status["workflows"]]
    found.sort(key=lambda w: w["number"], reverse=True)
    ended = [w["number"] for w in found if w["final"]]
    return [w for w in found if not w["final"] or w["number"] in ended[:_ENDED_SHOWN]]


def _run(run: WorkflowRun, now: float, starts: Mapping[str, Json]) -> Json:
    stages: list[Json] = []
    for i, (s, unit) in enumerate(zip(run.stages, run.units, strict=True)):
        # A job that is kept back does not stand in the queue before it is let go.
        queued = s.released if s.own is not None and s.own.kept else s.submitted
        length = unit.run_time if math.isfinite(unit.run_time) else None
        stages.append(
            {
                "name": s.name,
                "after": [run.stages[j].name for j in s.after],
                "phase": "kept" if s.own is not None and s.phase is StagePhase.WAITING else s.phase.value,
                "job": s.job,
                "nodes": unit.nodes,
                "queued": queued,
                "start": s.start,
                "end": s.end,
                "waited": perceived_wait(run, i),
                "why": s.failure,
                **_expected(s, length, now, starts.get(str(s.job), {})),
            }
        )
    return {
        "number": run.id,
        "name": run.name,
        "strategy": run.strategy if run.acting == run.strategy else f"{run.strategy}: {run.acting}",
        "phase": run.phase.value,
        "final": run.phase.final,
        "why": run.why,
        "stages": stages,
    }


def _expected(stage: StageRun, length: float | None, now: float, planned: Json) -> Json:
    """When a stage is expected to start and to end, as far as it has not. Of one that waits this is known where the
    queue's plan has its job: the latest start by limits, and what is likely in the drawn futures. Nothing else is said:
    the wait that a strategy reckons with is no forecast of this workflow."""
    waits = stage.start is None and not stage.phase.final
    likely = {name: planned[name] for name in ("low", "likely", "high")} if waits and "likely" in planned else None
    begin = stage.start if likely is None else likely["likely"]
    over = None
    if stage.end is None and begin is not None and length is not None and not stage.phase.final:
        over = max(begin + length, now)
    return {"expected_start": planned.get("start") if waits else None, "expected_end": over, "likely": likely}
