"""Drives the resize machines of all malleable jobs: one step per job and pass, every state stored before its act.

The application's messages arrive through `checked`, `accepted`, `refused`, `done` (called by ipc.handlers); they change
only the job's own state and wake the loop. Decisions are taken in `reconcile`, which the loop calls with a usable
snapshot.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping

import structlog

from penstock.api import Allocation, Decision, Job, Offer, ResizePolicy, Snapshot, Verb
from penstock.clock import Clock
from penstock.errors import Infeasible, NotNow, PenstockError
from penstock.executor import Executor
from penstock.malleable.machine import (
    Allocate,
    AskSteps,
    CancelResizer,
    Deadlines,
    Instruction,
    MalleableJob,
    Merge,
    Phase,
    Shrink,
)
from penstock.slurm.base import Backend
from penstock.store import Store

__all__ = ["MalleableController"]

_log = structlog.get_logger(__name__)

# Phases in which something is on its way in Slurm and the next look should come soon.
_BUSY = {Phase.ALLOCATING: 1.0, Phase.MERGING: 0.5, Phase.CLEANING: 1.0, Phase.GIVING_BACK: 0.5, Phase.RELEASING: 0.25}


class MalleableController:
    """All malleable jobs of one agent. `wake` is called when an application said something new."""

    def __init__(
        self,
        backend: Backend,
        executor: Executor,
        store: Store,
        clock: Clock,
        policy: ResizePolicy,
        limits: Deadlines,
        wake: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._executor = executor
        self._store = store
        self._clock = clock
        self.policy = policy
        self.limits = limits
        self._wake = wake
        self.jobs: dict[int, MalleableJob] = {}
        self._allocating: dict[str, asyncio.Task[None]] = {}
        # What an earlier agent was waiting for when it died is never asked for again: it may yet be granted.
        self._interrupted: set[str] = set()
        for state in store.malleable():
            me = MalleableJob.from_dict(state)
            self.jobs[me.job] = me
            if me.phase is Phase.ALLOCATING:
                self._interrupted.add(me.resizer_name)

    # -- what applications say (any time, from ipc.handlers) -----------------------------------------------------------

    def checked(self, job: Job, offer: Offer, epoch: int) -> MalleableJob:
        """A check by the owner of `job`; the state to answer from."""
        now = self._clock.now()
        known = self.jobs.get(job.id)
        if known is None:
            me = MalleableJob(job.id, job.uid, offer, offer.nodes or job.nodes, epoch=epoch)
            self._wake(f"job {job.id} is malleable")
        else:
            me = known.checked(offer, epoch, now)
            if me.phase is not known.phase or _wish(me.offer) != _wish(known.offer):
                self._wake(f"job {job.id} said something new")
        self._put(me)
        return me

    def accepted(self, job: int, epoch: int) -> bool:
        """The application starts the resize; false when it must not."""
        me = self.jobs.get(job)
        after = me.accepted(epoch, self._clock.now()) if me else None
        if after is None:
            return False
        self._put(after)
        return True

    def refused(self, job: int, epoch: int, why: str) -> None:
        """The application did not resize."""
        if me := self.jobs.get(job):
            self._put(me.refused(epoch, why, self._clock.now()))
            self._wake(f"job {job} refused")

    def done(self, job: int, epoch: int, timings: Mapping[str, float]) -> None:
        """The application's new ranks run."""
        if me := self.jobs.get(job):
            self._put(me.done(epoch, timings, self._clock.now()))
            self._wake(f"job {job} has resized")

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Take at most one step per job; the decisions taken."""
        decisions: list[Decision] = []
        for number in list(self.jobs):
            job = snapshot.jobs.get(number)
            if job is None or job.state.ended:
                await self._ended(number, job)
            elif job.running:
                decisions.extend(self._decide(job, snapshot))
                await self._advance(job)
        return decisions

    def next_wake(self, now: float) -> float | None:
        """When this controller wants the next pass at the latest; infinity while jobs are merely registered."""
        if not self.jobs:
            return None
        return now + min(_BUSY.get(me.phase, math.inf) for me in self.jobs.values())

    def _decide(self, job: Job, snapshot: Snapshot) -> list[Decision]:
        me = self.jobs[job.id]
        if me.phase not in (Phase.IDLE, Phase.PROPOSED) or not self._executor.ready(f"job {job.id}"):
            return []
        verdict = self.policy.decide(me.offer, job, snapshot)
        decision = Decision(
            _verb(verdict.size, me.offer.size), f"job {job.id}", verdict.reasons, {"size": verdict.size}
        )
        if decision.verb is Verb.NOTHING:
            pass
        elif verdict.size not in me.offer.reachable():
            return [decision.rewritten(Verb.NOTHING, "unreachable", f"size {verdict.size} cannot be reached")]
        elif me.phase is Phase.IDLE and self._promised(me, verdict.size, verdict.beneficiary, snapshot):
            return [
                decision.rewritten(Verb.NOTHING, "one-at-a-time", "another resize already uses or frees those nodes")
            ]
        after = me.decided(verdict, job, f"penstock-{job.id}-{secrets.token_hex(6)}", self.limits, self._clock.now())
        if after is me and decision.verb is not Verb.NOTHING:
            return []
        self._put(after)
        return [decision]

    def _promised(self, me: MalleableJob, size: int, beneficiary: int | None, snapshot: Snapshot) -> bool:
        """Whether resizes under way leave nothing for this one: two jobs must not count the same idle nodes, nor shrink
        for the same pending job."""
        others = [o for o in self.jobs.values() if o.job != me.job]
        if beneficiary is not None:
            return any(o.beneficiary == beneficiary for o in others)
        asked = sum(o.target // o.offer.per_node - len(o.nodes) for o in others if o.phase is Phase.ALLOCATING)
        idle = len(snapshot.idle_nodes(snapshot.jobs[me.job].partition))
        return size > me.offer.size and (size - me.offer.size) // me.offer.per_node > idle - asked

    async def _advance(self, job: Job) -> None:
        after, instructions = self.jobs[job.id].advance(job, self.limits, self._clock.now())
        self._put(after)
        if not self._executor.ready(f"job {job.id}"):
            return
        for instruction in instructions:
            try:
                await self._carry_out(instruction, job)
            except NotNow as e:
                _log.debug("not now", job=job.id, why=str(e))

    async def _carry_out(self, instruction: Instruction, job: Job) -> None:
        me = self.jobs[job.id]
        subject = f"job {job.id}"
        match instruction:
            case Allocate(name=name):
                if name not in self._allocating:
                    await self._start_allocating(instruction, job)
            case Merge(resizer=resizer):
                try:
                    await self._executor.act(
                        "merge", subject, {"resizer": resizer}, lambda: self._backend.merge(resizer, job.id)
                    )
                except Infeasible as e:
                    self._put(me.merge_failed(str(e), self._clock.now()))
                    return
                await self._after_merge(me)
            case Shrink(keep=keep):
                if set(job.nodes) == set(keep):
                    self._put(me.shrunk(self._clock.now()))
                    return
                payload: dict[str, str | float | None] = {"keep": ",".join(keep), "epoch": me.epoch}
                try:
                    await self._executor.act("shrink", subject, payload, lambda: self._backend.shrink(job.id, keep))
                except Infeasible as e:
                    self._put(me.shrunk(self._clock.now()))
                    _log.error("nodes cannot be given back", job=job.id, why=str(e))
                    return
                self._put(self.jobs[job.id].shrunk(self._clock.now()))
            case AskSteps():
                steps = await self._backend.steps(job.id)
                if self.jobs[job.id].leaving_clear(steps):
                    await self._carry_out(Shrink(job.id, self.jobs[job.id].target_nodes), job)
            case CancelResizer(name=name):
                await self._clean(name, job)

    async def _start_allocating(self, order: Allocate, job: Job) -> None:
        if order.name in self._interrupted:
            await self._adopt(order)
            return
        task = asyncio.ensure_future(self._allocate(order, job))
        self._allocating[order.name] = task
        task.add_done_callback(lambda _: self._allocating.pop(order.name, None))
        # A backend that answers at once (the simulation) shall have answered within this pass.
        await asyncio.sleep(0)

    async def _adopt(self, order: Allocate) -> None:
        seen = {j.id: j for j in await self._backend.jobs()}
        granted = [i for i in await self._backend.find(order.name) if i in seen and seen[i].running]
        me, now = self.jobs[order.job], self._clock.now()
        self._interrupted.discard(order.name)
        if granted:
            self._put(me.granted(granted[-1], now))
        else:
            self._put(me.grant_failed("the agent was restarted while it waited for the nodes", now))

    async def _allocate(self, order: Allocate, job: Job) -> None:
        spec = Allocation(
            name=order.name,
            nodes=order.nodes,
            time_limit=order.time_limit,
            partition=job.partition,
            qos=job.qos or None,
            account=job.account or None,
            expands=job.id,
        )
        subject = f"job {job.id}"
        try:
            resizer = await self._executor.act(
                "expand",
                subject,
                {"name": order.name, "nodes": order.nodes},
                lambda: self._backend.allocate(spec, self.limits.grant),
            )
        except PenstockError as e:
            if me := self.jobs.get(job.id):
                self._put(me.grant_failed(str(e), self._clock.now()))
        else:
            if (me := self.jobs.get(job.id)) and me.resizer_name == order.name:
                self._put(me.granted(resizer, self._clock.now()))
        self._wake(f"{subject}: the resizer was answered")

    async def _after_merge(self, me: MalleableJob) -> None:
        """Read back what the job has now; a failed look leaves MERGING, which is safe to repeat."""
        job = {j.id: j for j in await self._backend.jobs()}.get(me.job)
        if job is not None:
            self._put(me.merged(job, self._clock.now()))

    async def _clean(self, name: str, job: Job) -> None:
        seen = {j.id: j for j in await self._backend.jobs()}
        alive = [i for i in await self._backend.find(name) if i in seen and not seen[i].state.ended]
        for resizer in alive:
            await self._executor.act(
                "cancel",
                f"job {job.id}",
                {"resizer": resizer},
                lambda r=resizer: self._backend.cancel(r),  # type: ignore[misc]
            )
        if not alive:
            self._put(self.jobs[job.id].resizer_gone(seen.get(job.id, job), self.limits, self._clock.now()))

    async def _ended(self, number: int, job: Job | None) -> None:
        """The job is gone: nothing of it may be left."""
        me = self.jobs[number]
        if me.resizer_name:
            try:
                seen = {j.id: j for j in await self._backend.jobs()}
                if job is None and number in seen:
                    return
                for resizer in await self._backend.find(me.resizer_name):
                    if resizer in seen and not seen[resizer].state.ended:
                        await self._backend.cancel(resizer)
            except PenstockError as e:
                _log.warning("a resizer may be left", job=number, name=me.resizer_name, why=str(e))
                return
        if task := self._allocating.pop(me.resizer_name, None):
            task.cancel()
        del self.jobs[number]
        self._store.save_malleable(number, me.to_dict(), ended=self._clock.now())

    def _put(self, after: MalleableJob) -> None:
        """The one way a job's state changes: stored, logged, finished resizes kept with their instants."""
        before = self.jobs.get(after.job)
        if before == after:
            return
        self.jobs[after.job] = after
        self._store.save_malleable(after.job, after.to_dict())
        if before is not None and before.phase is not after.phase:
            _log.info("resize", job=after.job, epoch=after.epoch, was=before.phase.value, now=after.phase.value)
        if before is not None and after.phase is Phase.IDLE and before.phase is not Phase.IDLE:
            grew = before.resizer_name != ""
            completed = "done" in after.marks and before.phase in (Phase.RESIZING, Phase.RELEASING)
            self._store.add_resize(
                after.job,
                after.epoch,
                "expand" if grew else "shrink",
                (before.origin, before.target),
                "completed" if completed else after.note or "withdrawn",
                after.marks,
                self._clock.now(),
            )

    async def close(self) -> None:
        """Stop waiting for grants; what Slurm grants later is found by name at the next start."""
        tasks = list(self._allocating.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _wish(offer: Offer) -> tuple[int, int, int, int, int | None]:
    return (offer.size, offer.minimum, offer.maximum, offer.factor, offer.preferred)


def _verb(new: int, old: int) -> Verb:
    return Verb.NOTHING if new == old else Verb.EXPAND if new > old else Verb.SHRINK
