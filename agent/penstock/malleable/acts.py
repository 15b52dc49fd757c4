"""Carries out what the resize machines ask for, one instruction at a time, each journaled before it is sent."""

from __future__ import annotations

from dataclasses import replace

from penstock.api import Job, Snapshot
from penstock.clock import Clock
from penstock.errors import Infeasible, NotPermitted
from penstock.executor import Concern, Executor, Payload
from penstock.malleable.cleaner import Cleaner
from penstock.malleable.grow import Grower
from penstock.malleable.registry import Registry
from penstock.malleable.settings import Settings
from penstock.malleable.words import (
    Allocate,
    AskSteps,
    CancelResizer,
    Extend,
    Instruction,
    LookAt,
    Merge,
    Shrink,
)
from penstock.slurm.base import Changer, Reader

__all__ = ["Acts", "growth"]

_FINAL = (Infeasible, NotPermitted)


def growth(job: int) -> tuple[str, str]:
    """The subjects under which acts of an expansion are journaled and backed off."""
    return f"job {job}/expand", f"job {job}/merge"


class Acts:
    """Acts on Slurm for one job after the other; what comes of it goes into the registry."""

    def __init__(
        self,
        backend: Reader,
        executor: Executor,
        registry: Registry,
        clock: Clock,
        settings: Settings,
        grower: Grower,
        cleaner: Cleaner,
    ) -> None:
        self._backend = backend
        self._executor = executor
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._grower = grower
        self._cleaner = cleaner

    async def advance(self, job: Job, snapshot: Snapshot) -> None:
        """The job's next step."""
        after, instructions = self._registry.jobs[job.id].advance(job, self._settings.limits, self._clock.now())
        self._registry.put(after)
        await self._all(instructions, job, snapshot)

    async def _all(self, instructions: tuple[Instruction, ...], job: Job, snapshot: Snapshot) -> None:
        for instruction in instructions:
            match instruction:
                case Allocate():
                    await self._grower.ask(instruction, job, snapshot)
                case Merge(resizer=resizer):
                    await self._merge(resizer, job)
                case LookAt(companion=companion):
                    seen = {j.id: j for j in await self._backend.jobs()}
                    self._registry.put(self._registry.jobs[job.id].joined(seen.get(companion), self._clock.now()))
                case Shrink(keep=keep):
                    await self._shrink(keep, job)
                case AskSteps(jobs=jobs):
                    steps = {number: await self._backend.steps(number) for number in jobs}
                    me = self._registry.jobs[job.id]
                    after, then = me.steps_seen(steps, self._settings.limits, self._clock.now())
                    self._registry.put(after)
                    await self._all(then, job, snapshot)
                case CancelResizer(name=name):
                    await self._cleaner.cancel(name, job)
                case Extend(time_limit=limit):
                    await self._extend(limit, job, snapshot)

    async def _merge(self, resizer: int, job: Job) -> None:
        subject = growth(job.id)[1]
        if not self._executor.ready(subject):
            return
        try:
            await self._executor.act(
                "merge", subject, {"resizer": resizer}, lambda slurm: slurm.merge(resizer, job.id), _ending(job)
            )
        except _FINAL as e:
            self._registry.put(self._registry.jobs[job.id].merge_failed(str(e), self._clock.now()))
            return
        finally:
            self._registry.changed()
        # Read back what the job has now; a failed look leaves MERGING, which is safe to repeat.
        seen = {j.id: j for j in await self._backend.jobs()}
        if job.id in seen:
            self._registry.put(self._registry.jobs[job.id].merged(seen[job.id], self._clock.now()))

    async def _shrink(self, keep: tuple[str, ...], job: Job) -> None:
        subject = f"job {job.id}"
        if not self._executor.ready(subject):
            return
        payload: Payload = {"keep": ",".join(keep), "epoch": self._registry.jobs[job.id].epoch}
        try:
            await self._executor.act("shrink", subject, payload, lambda slurm: slurm.shrink(job.id, keep), _ending(job))
        except _FINAL as e:
            # Tried again ever more rarely: it may be that a node is down, or that the site forbids it.
            note = f"the nodes cannot be given back: {e}"
            self._registry.put(replace(self._registry.jobs[job.id], note=note))
            return
        finally:
            self._registry.changed(set(job.nodes) - set(keep))
        self._registry.put(self._registry.jobs[job.id].shrunk(self._clock.now()))

    async def _extend(self, limit: float, job: Job, snapshot: Snapshot) -> None:
        """The job's limit, and as much for its companions, which would else end before it."""
        subject = f"job {job.id}/limit"
        if not self._executor.ready(subject) or job.start is None:
            return
        end = job.start + limit
        wanted = {job.id: limit}
        for companion in self._registry.jobs[job.id].companions:
            seen = snapshot.jobs.get(companion.job)
            if seen is not None and seen.running and seen.start is not None:
                wanted[companion.job] = end - seen.start
        for number, seconds in wanted.items():

            async def request(slurm: Changer, number: int = number, seconds: float = seconds) -> None:
                await slurm.update(number, time_limit=seconds)

            try:
                payload = {"job": number, "time_limit": seconds}
                await self._executor.act("extend", subject, payload, request, _ending(job))
            except _FINAL as e:
                me = replace(self._registry.jobs[job.id].extended(), note=f"its time limit cannot be raised: {e}")
                self._registry.put(me)
                return
        self._registry.put(self._registry.jobs[job.id].extended())


def _ending(job: Job) -> Concern:
    """A resize that has begun comes to its end, whatever is paused."""
    return Concern.of("malleable", job, ends=True)
