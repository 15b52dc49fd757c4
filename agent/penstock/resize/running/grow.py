"""Asks Slurm for the nodes of an expansion, or has the application's launcher ask, and waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from penstock.api import Allocation, Job, Snapshot
from penstock.core.acts import AskLauncher, Expand, KnownJob
from penstock.core.executor import Concern, Payload
from penstock.errors import NotFound, NotNow, NotPermitted, PenstockError
from penstock.resize.running import ways
from penstock.resize.running.launcher_requests import LauncherRequest, LauncherRequests
from penstock.resize.running.rights import growth_of
from penstock.resize.running.tools import Tools, WithTools
from penstock.resize.running.words import Allocate, ResizePhase, Way

__all__ = ["Grower"]


class Grower(WithTools):
    """One request per growing job. What an earlier agent was waiting for when it died is never asked for again: it may
    yet be granted."""

    def __init__(self, tools: Tools, wake: Callable[[str], None]) -> None:
        super().__init__(tools)
        self._wake = wake
        self.waiting: dict[str, asyncio.Task[None]] = {}
        self.requests = LauncherRequests()
        jobs = tools.registry.jobs.values()
        self._interrupted = {me.resizer_name for me in jobs if me.phase is ResizePhase.ALLOCATING}

    async def ask(self, order: Allocate, job: Job, snapshot: Snapshot) -> None:
        """Send the request, unless it is on its way."""
        if order.name in self.waiting:
            return
        if order.name in self._interrupted:
            await self._adopt(order, job)
            return
        if self.requests.of(order.name) is None and (why := await self._refused(order, job)) is not None:
            self._registry.put(self._registry.jobs[job.id].not_asked(why, self._clock.now()))
            return
        spec = self._spec(order, job, self._last(order, job, snapshot))
        if order.way is Way.COMPANION and self.requests.of(order.name) is None:
            try:  # nodes of the same kind: what runs there expects the same
                needs = await self._backend.node_needs(job.id)
            except PenstockError as e:
                self._registry.put(self._registry.jobs[job.id].grant_failed(str(e), self._clock.now()))
                return
            if needs.unknown:
                me = self._registry.jobs[job.id].not_asked(needs.unknown, self._clock.now())
                self._registry.put(replace(me, failures=me.failures + 1))  # asked for again ever more rarely
                return
            spec = replace(spec, gres=needs.gres, constraint=needs.constraint)
        if order.way is Way.COMPANION and job.user != self._backend.whoami():
            await self._have_asked(order, job, spec)
            return
        task = asyncio.ensure_future(self._allocate(order, job, spec))
        self.waiting[order.name] = task
        task.add_done_callback(lambda _: self.waiting.pop(order.name, None))
        # A backend that answers at once (the simulation) shall have answered within this pass.
        await asyncio.sleep(0)

    async def _refused(self, order: Allocate, job: Job) -> str | None:
        """Why the request is not sent. What is on its way is none of its business."""
        if order.way is Way.MERGE:
            site, added = self._settings.site, self._settings.merge_releases
            why = ways.never_merged(site, job, self._backend.whoami(), added)
            if why is not None:
                return f"nothing is merged into it: {why}"
        denied = await self._rights.to_grow(self._registry.jobs[job.id], job, order.nodes)
        return None if denied is None else denied.text

    async def forget(self, name: str) -> None:
        """Stop waiting for this one."""
        self.requests.over(name)
        if task := self.waiting.pop(name, None):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def unseen(self, snapshot: Snapshot) -> frozenset[int]:
        """Ids of companions that wait for their nodes: no jobs of the queue as far as a policy is concerned."""
        wait = {j.uid for j in snapshot.jobs.values() if j.pending}
        names = [
            (me.resizer_name, me.uid)
            for me in self._registry.jobs.values()
            if me.uid in wait and me.phase is ResizePhase.ALLOCATING and me.way is Way.COMPANION
        ]
        return frozenset([number for name, uid in names for number in await self._backend.find(name, uid)])

    def _last(self, order: Allocate, job: Job, snapshot: Snapshot) -> bool:
        """Whether it is to come behind all who wait. What was announced waits in the queue like any other job."""
        announced = "announced" in self._registry.jobs[order.job].marks
        return not announced and (job.partition not in snapshot.partitions or bool(snapshot.pending(job.partition)))

    async def _running(self, order: Allocate, job: Job) -> list[int]:
        """Jobs of this name that hold nodes: a resizer is the agent's own, a companion its job's user's."""
        named = await self._backend.find(order.name, job.uid if order.way is Way.COMPANION else None)
        seen = {j.id: j for j in await self._backend.jobs()} if named else {}
        return [i for i in named if i in seen and seen[i].running]

    async def _have_asked(self, order: Allocate, job: Job, spec: Allocation) -> None:
        """Give the launcher its request, and look what came of it; called in every pass."""
        now, subject = self._clock.now(), f"job {job.id}/expand"
        request = self.requests.of(order.name)
        if request is None:
            new = LauncherRequest(spec, order.patience, now)

            asked: Payload = {"name": order.name, "nodes": order.nodes}
            wish, companions = growth_of(job, order.nodes, now), self._companions(job)
            act = AskLauncher(KnownJob.of(job), lambda: self.requests.put(new), wish, companions)
            try:
                await self._executor.act(act, subject, asked, Concern.of("malleable", job))
            except (NotNow, NotFound, NotPermitted) as e:
                self._registry.put(self._registry.jobs[job.id].grant_failed(str(e), now))
            return
        if granted := await self._running(order, job):
            self.requests.over(order.name)
            self._registry.changed()
            self._registry.put(self._registry.jobs[job.id].granted(granted[-1], now))
        elif why := request.overdue(now):
            self.requests.over(order.name)
            self._registry.put(self._registry.jobs[job.id].grant_failed(why, now))

    async def _adopt(self, order: Allocate, job: Job) -> None:
        granted = await self._running(order, job)
        me, now = self._registry.jobs[order.job], self._clock.now()
        self._interrupted.discard(order.name)
        if granted:
            self._registry.put(me.granted(granted[-1], now))
        else:
            self._registry.put(me.grant_failed("the agent was restarted while it waited for the nodes", now))

    def _spec(self, order: Allocate, job: Job, last: bool) -> Allocation:
        site = self._settings.site
        return Allocation(
            name=order.name,
            nodes=order.nodes,
            time_limit=order.time_limit,
            partition=job.partition,
            qos=job.qos or None,
            account=job.account or None,
            expands=job.id if order.way is Way.MERGE else None,
            last=last,
            exclusive=site is not None and "linear" not in site.select_type,
        )

    async def _allocate(self, order: Allocate, job: Job, spec: Allocation) -> None:
        subject = f"job {job.id}/expand"
        payload: Payload = {"name": order.name, "nodes": order.nodes, "way": order.way.value, "last": int(spec.last)}
        jobs = self._registry.jobs
        wish = growth_of(job, order.nodes, self._clock.now())
        act = Expand(KnownJob.of(job), spec, order.patience, wish, self._companions(job))
        try:
            resizer = await self._executor.act(act, subject, payload, Concern.of("malleable", job))
        except PenstockError as e:
            if (me := jobs.get(job.id)) and me.resizer_name == order.name:
                self._registry.put(me.grant_failed(str(e), self._clock.now()))
        else:
            self._registry.changed()
            if (me := jobs.get(job.id)) and me.resizer_name == order.name and me.phase is ResizePhase.ALLOCATING:
                self._registry.put(me.granted(resizer, self._clock.now()))
            else:  # nobody wants it any more
                known = KnownJob.named(resizer, job.uid, order.name)
                await self._executor.cancel(known, f"job {job.id}/clean", Concern.of("malleable", job))
        self._wake(f"{subject}: the resizer was answered")

    async def close(self) -> None:
        """Stop waiting for grants; what Slurm grants later is found by name at the next start."""
        tasks = list(self.waiting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
