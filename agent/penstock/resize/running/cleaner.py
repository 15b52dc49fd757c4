"""Sees to it that no resizer and no companion is left that nobody uses: each has a unique name and is found by it."""

from __future__ import annotations

from penstock.api import Job
from penstock.core.acts import KnownJob
from penstock.core.executor import Concern
from penstock.host.logs import get_logger
from penstock.resize.running.grow import Grower
from penstock.resize.running.tools import Tools, WithTools
from penstock.resize.running.words import ResizePhase

__all__ = ["Cleaner"]

_log = get_logger(__name__)
_STRAY = 60.0


class Cleaner(WithTools):
    """Cancels by name."""

    def __init__(self, tools: Tools, grower: Grower) -> None:
        super().__init__(tools)
        self._grower = grower
        # Names under which an interrupted request may still surface, however late, and when to look for them next.
        self._strays = {
            me.resizer_name: (me.job, tools.clock.now() + _STRAY)
            for me in tools.registry.jobs.values()
            if me.phase in (ResizePhase.ALLOCATING, ResizePhase.CLEANING)
        }

    async def cancel(self, name: str, job: Job) -> None:
        """Cancel the allocation of this name; when none is left, the job's state hears of it."""
        subject = f"job {job.id}/clean"
        if not self._executor.ready(subject):
            return
        self._grower.requests.over(name)
        found, seen = await self._alive(name, job.uid)
        for resizer in found:
            await self._cancel(subject, resizer)
        if not found:
            me = self._registry.jobs[job.id]
            self._registry.put(me.gone(name, seen.get(job.id, job), self._settings.limits, self._clock.now()))

    async def sweep(self, job: Job) -> None:
        """Cancel what surfaces of requests that a killed agent had sent: nobody else would give those nodes back."""
        now = self._clock.now()
        me = self._registry.jobs[job.id]
        used = {me.resizer_name, *(c.name for c in me.companions)}
        for name, (number, due) in list(self._strays.items()):
            if number == job.id and now >= due and name not in used:
                self._strays[name] = (number, now + _STRAY)
                await self.cancel(name, job)

    async def ended(self, number: int, job: Job | None) -> None:
        """The job is gone, or lives anew after a requeue: nothing of it may be left."""
        me = self._registry.jobs[number]
        subject = f"job {number}/clean"
        strays = [n for n, (of, _) in self._strays.items() if of == number]
        names = dict.fromkeys(n for n in (me.resizer_name, *(c.name for c in me.companions), *strays) if n)
        for name in names:
            if not self._executor.ready(subject):
                return
            await self._grower.forget(name)
            found, _ = await self._alive(name, me.uid)
            for resizer in found:
                await self._cancel(subject, resizer)
            self._strays.pop(name, None)
        self._registry.drop(number)
        if job is not None and job.running:
            _log.info("a malleable job has started anew; what was known of it is dropped", job=number)

    async def _alive(self, name: str, uid: int) -> tuple[list[Job], dict[int, Job]]:
        """Those of this name that have not ended, and all jobs. Names first: what appears in between is not missed.

        A resizer is the agent's own, a companion belongs to user `uid`, the job's.
        """
        named = [*await self._backend.find(name), *(await self._backend.find(name, uid) if self._settings.all else ())]
        seen = {j.id: j for j in await self._backend.jobs()}
        return [seen[i] for i in named if i in seen and not seen[i].state.ended], seen

    async def _cancel(self, subject: str, resizer: Job) -> None:
        await self._executor.cancel(KnownJob.of(resizer), subject, Concern.of("malleable", resizer))
        self._registry.changed(resizer.nodes)
