"""Jobs of a chain that wait follow a stage before them, which was submitted again, to its new job; as their owner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from penstock.config import Config
from penstock.console.acting import acting
from penstock.core.acts import KnownJob, Retarget
from penstock.core.executor import Concern, Payload
from penstock.errors import PenstockError
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.owned import moved as moved_dependency
from penstock.workflow.state import StageRun, WorkflowRun, updated

__all__ = ["follow_moved"]


def follow_moved(config: Config, run: WorkflowRun, places: Sequence[int], moved: Mapping[int, int]) -> None:
    """Have the jobs of these stages wait for the new jobs of those before them (`moved`, by the old ones), and for all
    else that they wait for. One that Slurm does not show waiting is left alone.

    Raises PenstockError with what could not be done; the agent tries it as well, with its next look.
    """
    asyncio.run(_follow_moved(config, run, places, moved))


async def _follow_moved(config: Config, run: WorkflowRun, places: Sequence[int], moved: Mapping[int, int]) -> None:
    failed = []
    async with acting(config) as hand:
        seen = {job.id: job for job in await hand.slurm.jobs()}
        for i in places:
            job = seen.get(run.stages[i].job or 0)
            if job is None or not job.pending or job.uid != run.uid:
                continue
            wanted = moved_dependency(job.dependency, [_now(parent, moved) for parent in run.parents(i)])
            concern = Concern.of("workflows", job, ends=True)  # what its owner asks for by `retry`, whatever is paused
            payload: Payload = {"job": job.id, "dependency": wanted}
            try:
                await hand.executor.act(Retarget(KnownJob.of(job), wanted), f"job {job.id}", payload, concern)
            except PenstockError as e:
                failed.append(f"job {job.id} waits for the old job still, `scontrol update jobid={job.id} "
                              f"dependency={wanted}` mends that: {e}")  # fmt: skip
    if failed:
        raise PenstockError("; ".join(failed))


def _now(parent: StageRun, moved: Mapping[int, int]) -> StageRun:
    """The entry as it will be when its new job is registered."""
    if parent.job is None or parent.job not in moved:
        return parent
    former = (*parent.mine.former, parent.job)
    again = updated(parent.mine, former=former)
    return updated(parent, own=again, job=moved[parent.job], phase=StagePhase.QUEUED)
