"""Workflows as the page draws them, out of what the agent says: JSON-able values, times in epoch s."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.workflow.documents import run_from_dict
from penstock.workflow.metrics import perceived_wait
from penstock.workflow.state import StagePhase, StageRun, WorkflowRun

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
        before = [stages[j] for j in s.after]
        # A job that is kept back does not stand in the queue before it is let go.
        queued = s.released if s.own is not None and s.own.kept else s.submitted
        length = unit.run_time if math.isfinite(unit.run_time) else None
        stages.append(
            {
                "name": s.name,
                "after": [p["name"] for p in before],
                "phase": "kept" if s.own is not None and s.phase is StagePhase.WAITING else s.phase.value,
                "job": s.job,
                "nodes": unit.nodes,
                "queued": queued,
                "start": s.start,
                "end": s.end,
                "estimate": s.estimate,
                "waited": perceived_wait(run, i),
                "why": s.failure,
                **_expected(s, queued, length, before, now, starts.get(str(s.job), {})),
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


def _expected(
    stage: StageRun,
    queued: float | None,
    length: float | None,
    before: Sequence[Json],
    now: float,
    planned: Json,
) -> Json:
    """When a stage is expected to start and to end, as far as it has not: where the queue's plan has its job, by that
    (`latest`), else after its wait, and after its parents."""
    begin, latest = stage.start, False
    if begin is None and not stage.phase.final:
        ends = [p["end"] if p["end"] is not None else p["expected_end"] for p in before]
        known = [e for e in ends if e is not None]
        if planned:
            begin, latest = planned["start"], True
        elif len(known) == len(ends):
            waited_out = None if queued is None or stage.estimate is None else queued + stage.estimate
            candidates = [now, *known, *([waited_out] if waited_out is not None else [])]
            begin = max(candidates) if known or waited_out is not None else None
    over = None
    if stage.end is None and begin is not None and length is not None and not stage.phase.final:
        over = max(begin + length, now)
    return {
        "expected_start": None if stage.start is not None else begin,
        "expected_end": over,
        "latest": latest,
        "likely": {name: planned[name] for name in ("low", "likely", "high")}
        if "likely" in planned and latest
        else None,
    }
