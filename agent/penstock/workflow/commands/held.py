"""penstock submit where the agent may not submit for its users: all stages at once, kept back, as the user."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api import Partition
from penstock.config import Config
from penstock.console.backends import backend_of, cancel_all
from penstock.console.door import ask_or_leave, plan_stages
from penstock.core.acts import KnownJob
from penstock.errors import PenstockError
from penstock.sbatch.commands.keeping import KEEPS_BACK, check_agent
from penstock.sbatch.submission import as_seen, submit
from penstock.workflow.model import Workflow
from penstock.workflow.submit.held import HeldJob, held

__all__ = ["HeldStages"]


@dataclass(frozen=True, slots=True)
class HeldStages:
    """The caller submits every stage now, kept back behind its parents, and registers them."""

    config: Config

    def submit(self, workflow: Workflow, strategy: str) -> int | None:
        """See `handing.Submitting`."""
        config = self.config
        wanted = held(workflow, strategy, asyncio.run(_partitions(config)), secrets.token_hex(3))
        check_agent(plan_stages(config, wanted.registration()))
        jobs: list[KnownJob] = []
        sent: dict[str, dict[str, Any]] = {}
        try:
            for job in wanted.jobs:
                number = _submitted(job, [sent[parent]["job"] for parent in job.after])
                jobs.append(KnownJob.named(number, os.geteuid(), job.name))
                order = {"words": job.words, "workdir": workflow.workdir or ".", "script": job.script}
                sent[job.stage] = {
                    "job": number,
                    "order": order,
                    "called_in_slurm": job.name,
                    "born": as_seen(number)[1],
                }
            answer = ask_or_leave(config, "guide", wanted.registration(sent))
        except BaseException:
            asyncio.run(cancel_all(config, jobs))
            raise
        return None if answer is None else int(answer["run"])


def _submitted(job: HeldJob, parents: Sequence[int]) -> int:
    """Its number, once sbatch has taken it, kept back behind these jobs."""
    behind = [f"--dependency=afterok:{':'.join(map(str, parents))}"] if parents else []
    done = submit([*job.words, KEEPS_BACK, *behind, "--parsable"], job.script.encode(), {})
    code = done.end()
    if done.job is None:
        raise PenstockError(f"stage {job.stage} was not submitted (sbatch ended with {code})")
    return done.job


async def _partitions(config: Config) -> Sequence[Partition]:
    async with backend_of(config) as backend:
        return await backend.partitions()
