"""`penstock submit --shorten` and `--less-memory`: what stages ask for, as their own earlier runs would do with."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.advice.advice import JobKind, PastRuns, advise, kind_name, past_runs, runs_needed
from penstock.advice.commands import DAYS
from penstock.advice.commands.used_memory import UsedMemory, megabytes, used_memory
from penstock.advice.memory import PastMemory, advise_memory, past_memory
from penstock.api import AccountingRecord, plural
from penstock.config import Config
from penstock.console.backends import backend_of
from penstock.state.pools import POOL_JOBS
from penstock.values.durations import duration_text
from penstock.workflow.asks import megabytes as asked_megabytes
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.scripts import read_job_name

__all__ = ["by_history", "named", "of_the_user", "shortened", "with_less_memory"]

_DAY: Final = 86400.0


def named(job: str) -> str:
    """What a job is called in advice: a stage's as WORKFLOW/STAGE, whatever the run and attempt."""
    parts = read_job_name(job)
    return job if parts is None else f"{parts.workflow}/{parts.stage}"


def of_the_user(records: Sequence[AccountingRecord]) -> list[AccountingRecord]:
    """Without the jobs that Penstock itself has got for a pool: their limit is not for their owner to choose."""
    return [record for record in records if not record.name.startswith(POOL_JOBS)]


def by_history(
    config: Config, flow: Workflow, risk: float, *, time_limits: bool, memory: bool
) -> tuple[Workflow, list[str]]:
    """The workflow with shorter limits, or less memory, where accounting knows enough runs, and what to tell of each
    stage."""
    records, used = asyncio.run(_history(config, memory))
    told: list[str] = []
    if time_limits:
        flow, told = shortened(flow, past_runs(records, named), risk)
    if memory and used.unknown:
        told.append(f"stages keep their memory: {used.unknown}")
    elif memory:
        known = past_memory(records, {job: (m.asked, m.used) for job, m in used.jobs.items()}, named)
        flow, more = with_less_memory(flow, known, risk)
        told += more
        if used.unscheduled:
            told.append(f"less memory starts no stage sooner: {used.unscheduled}")
    return flow, told


def shortened(flow: Workflow, known: Sequence[PastRuns], risk: float) -> tuple[Workflow, list[str]]:
    """The same by these runs."""
    by_kind = {runs.kind: runs for runs in known}
    stages, told = [], []
    for stage in flow.stages:
        kind = _kind_of(flow, stage, {kind: len(runs.took) for kind, runs in by_kind.items()})
        runs = None if kind is None else by_kind[kind]
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


def with_less_memory(flow: Workflow, known: Sequence[PastMemory], risk: float) -> tuple[Workflow, list[str]]:
    """The workflow whose stages ask for less memory, where they ask for any, by these runs, and what to tell."""
    by_kind = {past.kind: past for past in known}
    stages, told = [], []
    for stage in flow.stages:
        asked = asked_megabytes(stage.asks.memory)
        if not 0 < asked < math.inf:
            told.append(f"stage {stage.name} says no `memory` of its own, which could be less")
            stages.append(stage)
            continue
        kind = _kind_of(flow, stage, {kind: len(past.used) for kind, past in by_kind.items()})
        past = None if kind is None else by_kind[kind]
        found = None if past is None else advise_memory(replace(past, asked=asked * 1024**2), risk)
        if found is None or found.memory is None:
            count, needed = 0 if past is None else len(past.used), runs_needed(risk)
            why = f"accounting has what {plural(count, 'run')} used, of {needed} that a risk of {risk:.3g} takes"
            if count >= needed:
                why = f"{plural(count, 'run')} used hardly less, or ran out of it"
            told.append(f"stage {stage.name} keeps its memory of {stage.asks.memory} a node: {why}")
            stages.append(stage)
            continue
        less = megabytes(found.memory)
        told.append(
            f"stage {stage.name} has {less} of memory a node, not {stage.asks.memory}: by "
            f"{plural(len(found.past.used), 'run')} of it, at most {found.risk:.1%} use more and may be ended"
        )
        stages.append(replace(stage, asks=replace(stage.asks, memory=less)))
    return replace(flow, stages=tuple(stages)), told


def _kind_of(flow: Workflow, stage: Stage, known: Mapping[JobKind, int]) -> JobKind | None:
    """The same stage on as many nodes, in a partition that it names; where it names none, or several, in that of the
    most runs."""
    name, named = kind_name(f"{flow.name}/{stage.name}"), stage.asks.partition or flow.partition
    alike = [
        kind
        for kind in known
        if (kind.name, kind.nodes) == (name, stage.nodes) and (named is None or kind.partition in named.split(","))
    ]
    return max(alike, key=lambda kind: known[kind], default=None)


async def _history(config: Config, memory: bool) -> tuple[Sequence[AccountingRecord], UsedMemory]:
    async with backend_of(config) as backend:
        records = await backend.history(since=time.time() - DAYS * _DAY)
        return records, await used_memory(config, backend, DAYS * _DAY) if memory else UsedMemory()
