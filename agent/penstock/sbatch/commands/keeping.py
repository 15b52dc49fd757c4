"""How a stage's job is kept back until the agent releases it: by a begin time that does not come.

Not by a hold: who lifts a hold as an Operator, which a site's agent is, lifts an administrator's of the same moment
with it. A begin time is brought forward, and every hold stays in place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from penstock.api import FAR
from penstock.config import Config
from penstock.console.acting import acting
from penstock.core.acts import KnownJob, PutOff, ReleaseJob
from penstock.core.executor import Concern
from penstock.errors import NotFound, PenstockError
from penstock.workflow.phases import Kept

__all__ = ["KEEPS_BACK", "check_agent", "put_off"]

KEEPS_BACK: Final = f"--begin={FAR}"


def check_agent(answer: Mapping[str, Any]) -> None:
    """Raises PenstockError where the agent that gave this answer to `plan` would never let such a job go."""
    if Kept.BEGIN.value not in answer.get("keeps", ()):
        raise PenstockError("the agent is of an older release than this command: it must be started anew")


def put_off(config: Config, job: int) -> float | None:
    """Put off a job of the caller's that is held, and release it; the begin time that it had before (epoch s).

    None where it had none, or that has come already. Slurm itself reads the time, so that it means what it does to
    sbatch. Raises PenstockError; the job is then held still.
    """
    return asyncio.run(_put_off(config, job))


async def _put_off(config: Config, job: int) -> float | None:
    async with acting(config) as hand:
        seen = next((row for row in await hand.slurm.jobs() if row.id == job), None)
        if seen is None:
            raise NotFound(f"job {job} is not in the queue")
        now = hand.slurm.now()
        # Its user has asked for it by submitting a stage: no pause keeps it held for good.
        concern = Concern.of("workflows", seen, ends=True)
        subject, known = f"job {job}", KnownJob.of(seen)
        await hand.executor.act(PutOff(known), subject, {"job": job, "begin": FAR}, concern)
        await hand.executor.act(ReleaseJob(known, hold=True), subject, {"job": job}, concern)
    return seen.eligible if seen.eligible is not None and seen.eligible > now else None
