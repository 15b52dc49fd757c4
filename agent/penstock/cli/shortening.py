"""`penstock submit --shorten`: time limits of stages as their own earlier runs would do with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.api import AccountingRecord, plural
from penstock.cli.backends import backend_of
from penstock.config import Config
from penstock.provision.advice import JobKind, PastRuns, advise, kind_name, past_runs, runs_needed
from penstock.values.durations import duration_text
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.scripts import read_job_name

__all__ = ["DAYS", "named", "shorten", "shortened"]

DAYS: Final = 90
_DAY: Final = 86400.0


def named(job: str) -> str:
    """What a job is called in advice: a stage's as WORKFLOW/STAGE, whatever the run and attempt."""
    parts = read_job_name(job)
    return job if parts is None else f"{parts.workflow}/{parts.stage}"


def shorten(config: Config, flow: Workflow, risk: float) -> tuple[Workflow, list[str]]:
    """The workflow with shorter limits where accounting knows enough runs, and what to tell of each stage."""
    return shortened(flow, past_runs(asyncio.run(_history(config)), named), risk)


def shortened(flow: Workflow, known: Sequence[PastRuns], risk: float) -> tuple[Workflow, list[str]]:
    """The same by these runs."""
    by_kind = {runs.kind: runs for runs in known}
    stages, told = [], []
    for stage in flow.stages:
        runs = _runs_of(flow, stage, by_kind)
        found = None if runs is None else advise(replace(runs, limit=stage.time_limit), risk)
        if found is None or found.limit is None:
            count, needed = 0 if runs is None else len(runs.took), runs_needed(risk)
            why = f"{plural(count, 'run')} known of {needed} that a risk of {risk:.3g} takes"
            if count >= needed:
                why = f"{plural(count, 'run')} carry no limit that is much shorter"
            told.append(f"stage {stage.name} keeps its time limit of {duration_text(stage.time_limit)}: {why}")
            stages.append(stage)
            continue
        old, new = duration_text(stage.time_limit), duration_text(found.limit)
        by = plural(len(found.runs.took), "run")
        told.append(
            f"stage {stage.name} has a time limit of {new}, not {old}: by {by} of it, at most {found.risk:.1%} "
            "take longer and are cut off"
        )
        run_time = found.limit if stage.guessed else min(stage.run_time, found.limit)
        stages.append(replace(stage, time_limit=found.limit, run_time=run_time))
    return replace(flow, stages=tuple(stages)), told


def _runs_of(flow: Workflow, stage: Stage, known: Mapping[JobKind, PastRuns]) -> PastRuns | None:
    """Those of the same stage on as many nodes, in its partition; where it names none, in that of the most runs."""
    name = kind_name(f"{flow.name}/{stage.name}")
    alike = [
        runs
        for kind, runs in known.items()
        if (kind.name, kind.nodes) == (name, stage.nodes) and flow.partition in (None, kind.partition)
    ]
    return max(alike, key=lambda runs: len(runs.took), default=None)


async def _history(config: Config) -> Sequence[AccountingRecord]:
    async with backend_of(config) as backend:
        return await backend.history(since=time.time() - DAYS * _DAY)
