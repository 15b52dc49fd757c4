"""penstock submit where the agent may not submit for its users: all stages at once, kept back, as the user."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.api import Partition
from penstock.config import Config
from penstock.console.backends import backend_of, cancel_all
from penstock.console.door import ask_or_leave, plan_stages
from penstock.core.acts import KnownJob
from penstock.errors import PenstockError
from penstock.sbatch.commands.keeping import KEEPS_BACK, check_agent
from penstock.sbatch.submission import as_seen, submit
from penstock.slurm.sbatch_options import spec_words
from penstock.workflow.files.checks import check_against, check_units
from penstock.workflow.model import Workflow
from penstock.workflow.phases import Kept
from penstock.workflow.scripts import job_spec, with_exports
from penstock.workflow.strategies.cuts import place_units
from penstock.workflow.strategies.perstage import PerStage
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import Outlook
from penstock.workflow.ties import Tie

__all__ = ["submit_held"]


def submit_held(config: Config, workflow: Workflow, strategy: str) -> int | None:
    """Submit every stage, kept back behind its parents, and register them; the workflow's number (None: at the next
    tick).

    Raises PenstockError, and then nothing of the workflow is left in the queue.
    """
    rules = strategy_named(strategy)
    plan = rules.plan(workflow, Outlook(lambda _geometry: 0.0, scripts=False))
    units = place_units(workflow, plan.cut)
    partitions = asyncio.run(_partitions(config))
    default = next((p.name for p in partitions if p.default), None)
    check_units(workflow, units, check_against(workflow, {p.name: p for p in partitions}, default), strategy)
    known = {unit.name for unit in units}
    stages: list[dict[str, Any]] = [
        {
            "name": u.name,
            "job": 0,
            "after": [a for a in u.after if a in known],
            "expect": u.run_time,
            "kept": Kept.BEGIN.value,
        }
        for u in units
    ]
    # What cuts stages into jobs, which has been done by now, lets each go when those before it have ended.
    cuts = rules.tie is Tie.NONE and not rules.ahead and plan.by is None
    chosen = PerStage.name if cuts else strategy
    request = {"workflow": workflow.name, "strategy": chosen, "stages": stages}
    check_agent(plan_stages(config, request))
    token = secrets.token_hex(3)
    jobs: dict[str, int] = {}
    called: dict[str, str] = {}
    try:
        for unit, stage in zip(units, stages, strict=True):
            spec = job_spec(workflow, unit, token, 1, ())
            # The agent may have to put back what was started too early; when a stage fails, those after it must stay.
            words, script = (
                spec_words(replace(spec, requeue=True), spec.workdir),
                with_exports(spec.script, spec.environment),
            )
            behind = [str(jobs[parent]) for parent in stage["after"]]
            added = [KEEPS_BACK, *([f"--dependency=afterok:{':'.join(behind)}"] if behind else []), "--parsable"]
            done = submit([*words, *added], script.encode(), {})
            code = done.end()
            if done.job is None:
                raise PenstockError(f"stage {unit.name} was not submitted (sbatch ended with {code})")
            jobs[unit.name], called[unit.name] = done.job, spec.name
            _, born = as_seen(done.job)
            stage |= {"called_in_slurm": spec.name, "born": born}
            stage |= {"job": done.job, "order": {"words": words, "workdir": workflow.workdir or ".", "script": script}}
        answer = ask_or_leave(config, "guide", request)
    except BaseException:
        sent = [KnownJob.named(job, os.geteuid(), called[name]) for name, job in jobs.items()]
        asyncio.run(cancel_all(config, sent))
        raise
    return None if answer is None else int(answer["run"])


async def _partitions(config: Config) -> Sequence[Partition]:
    async with backend_of(config) as backend:
        return await backend.partitions()
