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
from dataclasses import replace

import structlog

from penstock.api import Allocation, Decision, Job, Offer, ResizePolicy, Snapshot, Verb
from penstock.clock import Clock
from penstock.errors import Infeasible, NotNow, NotPermitted, PenstockError
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

# Phases in which something is on its way in Slurm, and the seconds after which it is asked again at first.
_BUSY = {Phase.ALLOCATING: 1.0, Phase.MERGING: 0.5, Phase.CLEANING: 1.0, Phase.GIVING_BACK: 0.5, Phase.RELEASING: 0.25}
_PATIENT = 10.0
_STRAY = 60.0


class MalleableController:
    """All malleable jobs of one agent.

    `wake` is called when an application said something new, `want_look` when a newer picture is needed.
    """

    def __init__(
        self,
        backend: Backend,
        executor: Executor,
        store: Store,
        clock: Clock,
        policy: ResizePolicy,
        limits: Deadlines,
        wake: Callable[[str], None],
        want_look: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._executor = executor
        self._store = store
        self._clock = clock
        self.policy = policy
        self.limits = limits
        self._wake = wake
        self._want_look = want_look
        self.jobs: dict[int, MalleableJob] = {}
        # Whether this site lets jobs grow at all; set when the site has been looked at.
        self.can_grow = True
        # A picture begun before this instant does not show what was changed since, and nothing is decided on it.
        self._acted_at = -math.inf
        self._allocating: dict[str, asyncio.Task[None]] = {}
        # What an earlier agent was waiting for when it died is never asked for again: it may yet be granted.
        self._interrupted: set[str] = set()
        # Names under which an interrupted request may still surface, however late, and when to look for them next.
        self._strays: dict[str, tuple[int, float]] = {}
        for state in store.malleable():
            me = MalleableJob.from_dict(state)
            self.jobs[me.job] = me
            if me.phase is Phase.ALLOCATING:
                self._interrupted.add(me.resizer_name)
            if me.phase in (Phase.ALLOCATING, Phase.CLEANING):
                self._strays[me.resizer_name] = (me.job, clock.now() + _STRAY)

    # -- what applications say (any time, from ipc.handlers) -----------------------------------------------------------

    def checked(self, job: Job, offer: Offer, epoch: int, sent: float = math.inf) -> MalleableJob:
        """A check by the owner of `job`; the state to answer from. `sent`: the sender's clock."""
        now = self._clock.now()
        known = self.jobs.get(job.id)
        if known is not None and not _same(known, job):
            # It was requeued: what is known is about its former life, which the next pass ends.
            self._wake(f"job {job.id} has started anew")
            return MalleableJob(job.id, job.uid, offer, offer.nodes, epoch=epoch)
        if known is None:
            me = MalleableJob(job.id, job.uid, offer, offer.nodes or job.nodes, epoch=epoch, started=job.start)
            self._wake(f"job {job.id} is malleable")
        else:
            me = known.checked(offer, epoch, now, sent)
            if me.phase is not known.phase or _wish(me.offer) != _wish(known.offer):
                self._wake(f"job {job.id} said something new")
        self._put(me)
        return me

    def accepted(self, job: int, epoch: int, sent: float = 0.0) -> bool:
        """The application starts the resize; false when it must not."""
        me = self.jobs.get(job)
        after = me.accepted(epoch, self._clock.now(), sent) if me else None
        if after is None:
            return False
        self._put(after)
        return True

    def refused(self, job: int, epoch: int, why: str) -> None:
        """The application did not resize."""
        if (me := self.jobs.get(job)) and self._put(me.refused(epoch, why, self._clock.now())):
            self._wake(f"job {job} refused")

    def done(self, job: int, epoch: int, timings: Mapping[str, float]) -> None:
        """The application's new ranks run."""
        if (me := self.jobs.get(job)) and self._put(me.done(epoch, timings, self._clock.now())):
            self._wake(f"job {job} has resized")

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Take at most one step per job; the decisions taken."""
        decisions: list[Decision] = []
        for number in list(self.jobs):
            try:
                decisions.extend(await self._serve(number, snapshot))
            except NotNow as e:
                _log.debug("not now", job=number, why=str(e))
            except Exception:
                # One bad subject, or a policy that fails, must not keep the others from being served.
                _log.exception("a malleable job could not be served", job=number)
        return decisions

    async def _serve(self, number: int, snapshot: Snapshot) -> list[Decision]:
        job = snapshot.jobs.get(number)
        if job is None or job.state.ended or job.pending or not _same(self.jobs[number], job):
            await self._ended(number, job)
            return []
        if not job.running:
            return []
        await self._sweep(job)
        decisions = self._decide(job, snapshot)
        await self._advance(job)
        return decisions

    def next_wake(self, now: float) -> float | None:
        """When this controller wants the next pass at the latest; infinity while jobs are merely registered."""
        if not self.jobs:
            return None
        return now + min(_pause(me, now) for me in self.jobs.values())

    def _decide(self, job: Job, snapshot: Snapshot) -> list[Decision]:
        me = self.jobs[job.id]
        if me.phase not in (Phase.IDLE, Phase.PROPOSED) or job.partition not in snapshot.partitions:
            return []
        if snapshot.taken_at <= self._acted_at:
            return []
        verdict = self.policy.decide(me.offer, job, snapshot)
        decision = Decision(
            _verb(verdict.size, me.offer.size), f"job {job.id}", verdict.reasons, {"size": verdict.size}
        )
        if decision.verb is Verb.NOTHING:
            pass
        elif verdict.size not in me.offer.reachable():
            return [decision.rewritten(Verb.NOTHING, "unreachable", f"size {verdict.size} cannot be reached")]
        elif decision.verb is Verb.EXPAND and not self.can_grow:
            return [decision.rewritten(Verb.NOTHING, "no-expansion", "this site does not let jobs grow")]
        elif decision.verb is Verb.EXPAND and not all(map(self._executor.ready, _growth(job.id))):
            return [decision.rewritten(Verb.NOTHING, "backing-off", "growing failed a moment ago")]
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
        for instruction in instructions:
            await self._carry_out(instruction, job)

    async def _carry_out(self, instruction: Instruction, job: Job) -> None:
        me = self.jobs[job.id]
        subject = f"job {job.id}"
        match instruction:
            case Allocate(name=name):
                if name not in self._allocating:
                    await self._start_allocating(instruction, job)
            case Merge(resizer=resizer):
                subject = f"{subject}/merge"
                if not self._executor.ready(subject):
                    return
                try:
                    await self._executor.act(
                        "merge", subject, {"resizer": resizer}, lambda: self._backend.merge(resizer, job.id)
                    )
                except (Infeasible, NotPermitted) as e:
                    self._put(self.jobs[job.id].merge_failed(str(e), self._clock.now()))
                    return
                finally:
                    self._changed()
                await self._after_merge(job.id)
            case Shrink(keep=keep):
                if not self._executor.ready(subject):
                    return
                payload: dict[str, str | float | None] = {"keep": ",".join(keep), "epoch": me.epoch}
                try:
                    await self._executor.act("shrink", subject, payload, lambda: self._backend.shrink(job.id, keep))
                except (Infeasible, NotPermitted) as e:
                    # Tried again ever more rarely: it may be that a node is down, or that the site forbids it.
                    self._put(replace(self.jobs[job.id], note=f"the nodes cannot be given back: {e}"))
                    return
                finally:
                    self._changed()
                self._put(self.jobs[job.id].shrunk(self._clock.now()))
            case AskSteps():
                steps = await self._backend.steps(job.id)
                me = self.jobs[job.id]
                if me.phase is Phase.RELEASING and me.clear_beyond(me.target_nodes, steps):
                    await self._carry_out(Shrink(job.id, me.target_nodes), job)
                elif me.phase is Phase.RESIZING and me.clear_beyond(me.nodes, steps):
                    self._put(me.refused(me.epoch, "no new rank is running", self._clock.now()))
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
        subject = f"job {job.id}/expand"
        try:
            resizer = await self._executor.act(
                "expand",
                subject,
                {"name": order.name, "nodes": order.nodes},
                lambda: self._backend.allocate(spec, self.limits.grant),
            )
        except PenstockError as e:
            if (me := self.jobs.get(job.id)) and me.resizer_name == order.name:
                self._put(me.grant_failed(str(e), self._clock.now()))
        else:
            self._changed()
            if (me := self.jobs.get(job.id)) and me.resizer_name == order.name and me.phase is Phase.ALLOCATING:
                self._put(me.granted(resizer, self._clock.now()))
            else:  # nobody wants it any more
                await self._backend.cancel(resizer)
        self._wake(f"{subject}: the resizer was answered")

    async def _after_merge(self, number: int) -> None:
        """Read back what the job has now; a failed look leaves MERGING, which is safe to repeat."""
        job = {j.id: j for j in await self._backend.jobs()}.get(number)
        if job is not None:
            self._put(self.jobs[number].merged(job, self._clock.now()))

    def _changed(self) -> None:
        """Slurm was asked to move nodes: what was seen before is old, and a new look is wanted."""
        self._acted_at = self._clock.now()
        self._want_look()

    async def _clean(self, name: str, job: Job) -> None:
        subject = f"job {job.id}/clean"
        if not self._executor.ready(subject):
            return
        named = await self._backend.find(name)
        seen = {j.id: j for j in await self._backend.jobs()}
        alive = [i for i in named if i in seen and not seen[i].state.ended]
        for resizer in alive:
            await self._cancel(subject, resizer)
        if not alive and self.jobs[job.id].resizer_name == name:
            self._put(self.jobs[job.id].resizer_gone(seen.get(job.id, job), self.limits, self._clock.now()))

    async def _sweep(self, job: Job) -> None:
        """Cancel what surfaces of requests that a killed agent had sent: nobody else would give those nodes back."""
        now = self._clock.now()
        for name, (number, due) in list(self._strays.items()):
            if number == job.id and now >= due and name != self.jobs[number].resizer_name:
                self._strays[name] = (number, now + _STRAY)
                await self._clean(name, job)

    async def _cancel(self, subject: str, resizer: int) -> None:
        async def request() -> None:
            await self._backend.cancel(resizer)

        await self._executor.act("cancel", subject, {"resizer": resizer}, request)
        self._changed()

    async def _ended(self, number: int, job: Job | None) -> None:
        """The job is gone, or lives anew after a requeue: nothing of it may be left."""
        me = self.jobs[number]
        subject = f"job {number}/clean"
        names = [n for n, (of, _) in self._strays.items() if of == number and n != me.resizer_name]
        for name in [me.resizer_name, *names] if me.resizer_name else names:
            if not self._executor.ready(subject):
                return
            if task := self._allocating.pop(name, None):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            named = await self._backend.find(name)
            seen = {j.id: j for j in await self._backend.jobs()}
            for resizer in named:
                if resizer in seen and not seen[resizer].state.ended:
                    await self._cancel(subject, resizer)
            self._strays.pop(name, None)
        del self.jobs[number]
        self._store.save_malleable(number, me.to_dict(), ended=self._clock.now())
        if job is not None and job.running:
            _log.info("forgotten: the job has started anew", job=number)

    def _put(self, after: MalleableJob) -> bool:
        """The one way a job's state changes: stored, logged, finished resizes kept with their instants.

        Whether anything changed.
        """
        before = self.jobs.get(after.job)
        if before == after:
            return False
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
        return True

    async def close(self) -> None:
        """Stop waiting for grants; what Slurm grants later is found by name at the next start."""
        tasks = list(self._allocating.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _wish(offer: Offer) -> tuple[int, int, int, int, int | None]:
    return (offer.size, offer.minimum, offer.maximum, offer.factor, offer.preferred)


def _same(me: MalleableJob, job: Job) -> bool:
    """Whether this is the life of the job that is known, and not one after a requeue or under a reused number."""
    return me.uid == job.uid and (me.started is None or job.start is None or abs(me.started - job.start) < 1.0)


def _growth(number: int) -> tuple[str, str]:
    return f"job {number}/expand", f"job {number}/merge"


def _pause(me: MalleableJob, now: float) -> float:
    """Seconds until a job that something is on its way for is looked at again: soon at first, then ever more rarely."""
    if me.phase not in _BUSY:
        return math.inf
    return min(_PATIENT, max(_BUSY[me.phase], (now - me.since) / 4))


def _verb(new: int, old: int) -> Verb:
    return Verb.NOTHING if new == old else Verb.EXPAND if new > old else Verb.SHRINK
