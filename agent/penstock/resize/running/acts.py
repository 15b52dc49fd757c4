"""Carries out what the resize machines ask for, one instruction at a time, each journaled before it is sent."""

from __future__ import annotations

from dataclasses import replace

from penstock.api import Job, Reason, Snapshot, plural
from penstock.core.acts import KnownJob, MergeNodes, SetLimit, ShrinkNodes
from penstock.core.executor import Concern, Payload
from penstock.core.ownlimits import Extension, Joining
from penstock.core.verdicts import PASSING
from penstock.errors import Infeasible, NotPermitted
from penstock.resize.running import ways
from penstock.resize.running.cleaner import Cleaner
from penstock.resize.running.grow import Grower
from penstock.resize.running.rights import companions_of, node_count
from penstock.resize.running.tools import Tools, WithTools
from penstock.resize.running.words import (
    Allocate,
    AskSteps,
    CancelResizer,
    Confirm,
    Extend,
    Instruction,
    LookAt,
    Merge,
    Shrink,
)

__all__ = ["ResizeActs", "growth"]

_FINAL = (Infeasible, NotPermitted)


def growth(job: int) -> tuple[str, str]:
    """The subjects under which acts of an expansion are journaled and backed off."""
    return f"job {job}/expand", f"job {job}/merge"


class ResizeActs(WithTools):
    """Acts on Slurm for one job after the other; what comes of it goes into the registry."""

    def __init__(self, tools: Tools, grower: Grower, cleaner: Cleaner) -> None:
        super().__init__(tools)
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
                    await self._merge(resizer, job, snapshot)
                case LookAt(companion=companion):
                    seen = {j.id: j for j in await self._backend.jobs()}
                    ours = job.user == self._backend.whoami()  # else its launcher has asked for it
                    me = self._registry.jobs[job.id].joined(seen.get(companion), self._clock.now(), trusted=ours)
                    self._registry.put(me)
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
                case Extend(time_limit=limit, nodes=nodes):
                    await self._extend(limit, nodes, job)
                case Confirm(time_limit=limit, nodes=nodes):
                    await self._confirm(limit, nodes, job, snapshot)

    async def _merge(self, resizer: int, job: Job, snapshot: Snapshot) -> None:
        subject = growth(job.id)[1]
        site, added = self._settings.site, self._settings.merge_releases
        if (why := ways.never_merged(site, job, self._backend.whoami(), added)) is not None:
            # Slurm may be another release than when this began, and an older agent merged into jobs of others.
            text = f"nothing is merged into it: {why}"
            self._registry.put(self._registry.jobs[job.id].merge_failed(text, self._clock.now()))
            return
        if not self._executor.ready(subject):
            return
        me = self._registry.jobs[job.id]
        if me.resizer_name and resizer not in await self._backend.find(me.resizer_name):
            # Its number may be another job's by now, whose nodes are nothing to this one.
            self._registry.put(me.merge_failed(f"job {resizer} is gone", self._clock.now()))
            return
        holds = snapshot.jobs.get(resizer)
        joining = Joining(len(holds.nodes) if holds is not None else 0)
        merge = MergeNodes(KnownJob.of(job), resizer, joining, self._companions(job))
        try:
            await self._executor.act(merge, subject, {"resizer": resizer}, _ending(job))
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
            await self._executor.act(ShrinkNodes(KnownJob.of(job), keep), subject, payload, _ending(job))
        except _FINAL as e:
            # Tried again ever more rarely: it may be that a node is down, or that the site forbids it.
            note = f"the nodes cannot be given back: {e}"
            self._registry.put(replace(self._registry.jobs[job.id], note=note))
            return
        finally:
            self._registry.changed(set(job.nodes) - set(keep))
        self._registry.put(self._registry.jobs[job.id].shrunk(self._clock.now()))

    async def _extend(self, limit: float, nodes: int, job: Job) -> None:
        """The limit that a shrink has earned, once Slurm shows the shrink in a look younger than a second."""
        if not self._executor.ready(_limit(job.id)):
            return
        me = self._registry.jobs[job.id]
        seen = await self._rights.current(me)
        me = self._registry.jobs[job.id]
        if isinstance(seen, Reason):
            self._not_raised(job, seen)
            return
        if self._registry.outdates(seen.snapshot.taken_at):
            return  # begun before the nodes went: the next pass has a newer one
        now, taken = seen.job, node_count(me, seen.snapshot)
        if taken > nodes and me.before:  # the agent was killed in between, and it did not stay as small
            self._registry.put(me.extended())
            return
        if taken > nodes:
            self._not_raised(job, Reason("grown", f"it has {plural(taken, 'node')}, but was to keep {nodes}"))
            return
        if (denied := await self._rights.to_raise(me, seen, limit)) is not None:
            self._not_raised(job, denied)
            return
        if now.time_limit is None:
            self._registry.put(self._registry.jobs[job.id].kept())
            return
        # Stored before the request: whoever comes next knows what to go back to.
        self._registry.put(self._registry.jobs[job.id].raising(now.time_limit))
        try:
            await self._set_limit("extend", now, limit, seen.snapshot)
        except _FINAL as e:
            self._registry.put(self._registry.jobs[job.id].kept(f"its time limit cannot be raised: {e}"))
            return
        self._registry.changed()
        self._registry.put(self._registry.jobs[job.id].extended())

    def _not_raised(self, job: Job, why: Reason) -> None:
        """The job keeps the limit that it has, and its application is told; or it is asked again in the next pass."""
        me, text = self._registry.jobs[job.id], f"its time limit is not raised: {why.text}"
        self._registry.put(replace(me, note=text) if why.code in PASSING else me.kept(text))

    async def _confirm(self, before: float, nodes: int, job: Job, snapshot: Snapshot) -> None:
        """After a raise: the job is still as small as then, or the limit is lowered again."""
        if self._registry.outdates(snapshot.taken_at) or not self._executor.ready(_limit(job.id)):
            return
        me = self._registry.jobs[job.id]
        if node_count(me, snapshot) <= nodes:
            self._registry.put(me.kept())
            return
        try:
            await self._set_limit("lower", job, before, snapshot)
        except _FINAL as e:
            self._registry.put(self._registry.jobs[job.id].kept(f"its time limit cannot be lowered again: {e}"))
            return
        text = "its time limit is lowered again: it has grown since that was raised"
        self._registry.put(self._registry.jobs[job.id].kept(text))

    async def _set_limit(self, verb: str, job: Job, limit: float, snapshot: Snapshot) -> None:
        """The job's limit, and as much for its companions, which would else end before it (or after)."""
        assert job.start is not None and job.time_limit is not None
        raised = verb == "extend"
        wanted = {job.id: (job, limit)} if (limit > job.time_limit) is raised else {}
        me = self._registry.jobs[job.id]
        lent = {companion.job for companion in me.companions if companion.until is not None}
        for seen in companions_of(me, snapshot):
            if not seen.running or seen.start is None or seen.time_limit is None:
                continue
            if seen.id in lent:  # its nodes were lent for a while, and others are to have them then
                continue
            its = job.start + limit - seen.start
            if (its > seen.time_limit) is raised:
                wanted[seen.id] = seen, its
        for number, (one, seconds) in wanted.items():
            with_it = self._companions(job) if one is job else ()
            act = SetLimit(KnownJob.of(one), Extension(seconds), raised, with_it)
            payload: dict[str, str | float | None] = {"job": number, "time_limit": seconds, "before": job.time_limit}
            await self._executor.act(act, _limit(job.id), payload, _ending(job))


def _limit(job: int) -> str:
    """The subject of acts on its time limit."""
    return f"job {job}/limit"


def _ending(job: Job) -> Concern:
    """A resize that has begun comes to its end, whatever is paused."""
    return Concern.of("malleable", job, ends=True)
