"""Drives all moldable jobs of one agent: one step for each in a pass, through the executor, every state stored before.

A job that waits is asked to have the shape with which it ends first (`choose`). One that runs, and whose owner has said
how it saves its state, is put back into the queue where another shape ends it much sooner:

    WAITING    it waits or runs, and what it has is looked at in each pass
    SAVING     its script was sent the signal; its file must be new and whole before anything else is done
    STOPPING   it is being put back. Slurm starts it no sooner than two minutes later, with its new shape by then

It is never held: whoever is killed in between, the job goes on, or starts again by itself with the shape that it has.
Nor is its start brought forward: where a node still holds the credential of its first run for revoked, Slurm ends the
job as one that cannot be started (run on 22.05).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.api import Decision, Job, Reason, Snapshot, Verb
from penstock.core.acts import KnownJob, Mold, RequeueJob, Signal, SlurmAct
from penstock.core.executor import Concern, Payload
from penstock.core.ownlimits import Shape
from penstock.core.parts import Site
from penstock.core.verdicts import FRESH
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted, OutcomeUnknown, PenstockError, UserError
from penstock.future.cluster import Cluster
from penstock.resize.waiting.checkpoints import Checkpoints
from penstock.resize.waiting.choose import MoldChoice, choose, choose_new, choose_restart
from penstock.resize.waiting.model import Checkpoint, MoldableJob, MoldPhase, MoldShape
from penstock.values.durations import duration_text

__all__ = ["MoldableController"]

_LIMITS: Final = ("Assoc", "QOS", "PartitionNodeLimit", "PartitionTimeLimit")
"""How Slurm's reasons begin of jobs that ask for more than their owner may have."""
_UNSEEN: Final = 10.0
"""Seconds within which a look at Slurm shows a job that was submitted."""
_REASON_AGE: Final = 10.0
"""Seconds within which Slurm looks at a job that has changed."""
_REST: Final = 3600.0
"""Seconds until it is tried again."""


class MoldableController:
    """All of one agent.

    Only jobs of the agent's own user are put back: nobody else's files are looked at.
    """

    def __init__(
        self,
        site: Site,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._observer, self._executor, self._store, self._clock = site.observer, site.executor, site.store, site.clock
        self._config, self._want_look = site.config, site.want_look
        self._checkpoints = checkpoints or Checkpoints()
        self._jobs: dict[int, MoldableJob] = {}
        self._announced: dict[int, MoldableJob] = {}  # no look has shown them yet
        for state in site.store.moldable.live():
            me = MoldableJob.from_dict(state)
            self._jobs[me.job] = me

    @property
    def jobs(self) -> Mapping[int, MoldableJob]:
        """Those that have not ended."""
        return self._jobs

    # -- what owners say (any time, from ipc.operations) -------------------------------------------------------------

    async def register(
        self,
        uid: int,
        job: int,
        shapes: tuple[MoldShape, ...],
        checkpoint: Checkpoint | None = None,
        born: float | None = None,
    ) -> MoldableJob:
        """A job of this user may have any of these shapes from now on. It may be so young that a look at Slurm does not
        show it yet; `born` is its submission time as its owner's command has seen it. Raises NotFound for somebody
        else's, NotNow or UserError."""
        seen = await self._observer.look(FRESH)
        if not seen.usable:
            raise NotNow(f"job {job} cannot be looked at: {'; '.join(seen.problems)}")
        row = seen.jobs.get(job)
        if row is not None and (row.uid != uid or born not in (None, row.submit)):
            raise NotFound(f"there is no job {job} of yours in the queue")
        if row is not None and row.array_job is not None:
            raise UserError(f"job {job} is an array: its tasks keep their size")
        me = MoldableJob(job, uid, shapes, checkpoint, since=self._clock.now(), born=born)
        if row is None:
            self._announced[job] = me
        else:
            self._put(replace(me, restarts=row.restarts, born=row.submit))
        self._want_look()
        return me

    async def shape_for(self, partition: str, shapes: tuple[MoldShape, ...]) -> MoldShape:
        """What a job that is about to be submitted should ask for; the smallest where nothing can be said."""
        seen = await self._observer.look(FRESH)
        choice = choose_new(Cluster.of(seen), partition, shapes) if seen.usable else None
        return shapes[0] if choice is None else choice.shape

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Take at most one step for each job; the decisions taken."""
        decisions: list[Decision] = []
        self._take_in(snapshot)
        for number, me in list(self._jobs.items()):
            row = snapshot.jobs.get(number)
            if row is None or row.state.ended or row.uid != me.uid or not me.is_job(row):
                self._drop(me)
                continue
            if row.submit != me.born:  # it was requeued, or is of a release that did not keep this
                me = replace(me, born=row.submit)
                self._put(me)
            if row.pending and snapshot.taken_at > me.since:
                decisions += self._changed(me, row) or self._limited(row)
        if not self._jobs or self._executor.pause_control.off is not None:
            return decisions
        cluster = Cluster.of(snapshot)
        # What a job was asked to have after this picture was taken is not in it.
        current = {number: me for number, me in self._jobs.items() if snapshot.taken_at > me.since}
        waiting = {number: me for number, me in current.items() if snapshot.jobs[number].pending}
        choices = choose(cluster, waiting) if waiting else {}
        for number, me in current.items():
            row = snapshot.jobs[number]
            if not self._executor.ready(_subject(number)) or self._left_alone(row):
                continue
            if row.pending:
                decisions += await self._waits(me, row, choices.get(number), snapshot)
            elif row.running:
                decisions += await self._runs(me, row, cluster)
        return decisions

    def next_wake(self, now: float) -> float | None:
        """Soon while a checkpoint is waited for or a job is being put back; else there is no hurry."""
        if any(me.phase is not MoldPhase.WAITING for me in self._jobs.values()):
            return now + 1.0
        return math.inf if self._jobs else None

    def _take_in(self, snapshot: Snapshot) -> None:
        """What was announced is known from when a look shows it, as its owner's; else it was a mistake."""
        for number, me in list(self._announced.items()):
            row = snapshot.jobs.get(number)
            if row is None and snapshot.taken_at < me.since + _UNSEEN:
                continue
            del self._announced[number]
            if row is not None and row.uid == me.uid and row.array_job is None and me.is_job(row):
                self._put(replace(me, restarts=row.restarts, born=row.submit))

    def _drop(self, me: MoldableJob) -> None:
        self._store.moldable.save(me.job, me.uid, me.to_dict(), ended=self._clock.now())
        del self._jobs[me.job]

    def _left_alone(self, row: Job) -> bool:
        held = self._executor.pause_control.on("malleable", row.uid, [row.partition], [row.account], [row.qos])
        return held is not None

    # -- jobs that wait ----------------------------------------------------------------------------------------------

    def _changed(self, me: MoldableJob, row: Job) -> list[Decision]:
        """Somebody has given it another size, who knows better. Of a job that was put back Slurm does not show it."""
        shape = me.shape(row.num_nodes)
        if row.restarts or (row.least_nodes == row.num_nodes and shape and shape.limit == row.time_limit):
            return []
        self._drop(me)
        return [Decision(Verb.HOLD, _subject(me.job), (Reason("changed", "somebody has changed its size"),))]

    def _limited(self, row: Job) -> list[Decision]:
        """What Slurm does not let the owner have is not asked for again."""
        me = self._jobs[row.id]
        nodes = row.least_nodes
        others = any(shape.nodes != nodes for shape in me.open_shapes)
        if self._clock.now() - me.since < _REASON_AGE:
            return []  # it may be the reason of the size that it had before
        if not row.reason.startswith(_LIMITS) or nodes in me.refused or me.shape(nodes) is None or not others:
            return []
        self._put(me.without(nodes))
        text = f"{nodes} nodes are more than its owner may have ({row.reason})"
        return [Decision(Verb.HOLD, _subject(row.id), (Reason("limits", text),))]

    async def _waits(self, me: MoldableJob, row: Job, choice: MoldChoice | None, seen: Snapshot) -> list[Decision]:
        if me.phase is not MoldPhase.WAITING:  # by this agent or somebody else it was put back
            me = replace(me, phase=MoldPhase.WAITING, restarts=row.restarts)
            self._put(me)
        others = [s for s in me.open_shapes if s.nodes != row.least_nodes]
        if others and row.least_nodes in me.refused and row.reason.startswith(_LIMITS):
            # The largest of those that are smaller, else the smallest: fewer nodes may be within a limit, or less time.
            shape = next((s for s in reversed(others) if s.nodes < row.least_nodes), others[0])
            why = Reason("limits", f"{shape.nodes} nodes are within the limits of its owner")
        elif choice is not None:
            shape = choice.shape
            why = _why(choice)
        else:
            return []
        payload: Payload = {"job": row.id, "nodes": shape.nodes, "limit": shape.limit}
        try:
            judged = self._executor.is_own(row) and not (await self._executor.verdicts.site()).operator
        except PenstockError:
            return []  # Slurm does not say now what it judges
        act = Mold(KnownJob.of(row), Shape(shape.nodes, shape.limit, judged))
        if (refused := await self._act(replace(me, asked=shape.nodes), payload, act, row, seen)) is not None:
            return refused
        return [Decision(Verb.CHANGE, _subject(row.id), (why,), payload)]

    # -- jobs that run -----------------------------------------------------------------------------------------------

    async def _runs(self, me: MoldableJob, row: Job, cluster: Cluster) -> list[Decision]:
        now = self._clock.now()
        if row.restarts > me.restarts or me.phase is MoldPhase.STOPPING:
            # It has started again, or was not stopped at all.
            self._put(replace(me, phase=MoldPhase.WAITING, restarts=row.restarts))
            return []
        saves, settings = me.checkpoint, self._config().malleable
        if saves is None or me.uid != os.geteuid() or row.start is None:
            return []
        if me.phase is MoldPhase.WAITING:
            if now < max(me.rests_until, row.start + settings.put_back_after):
                return []
            choice = choose_restart(cluster, row, me, settings.put_back_gain)
            if choice is None:
                return []
            return await self._save(me, row, saves, choice)
        if self._checkpoints.complete(saves.file, me.saved, now):
            choice = choose_restart(cluster, row, me, settings.put_back_gain)
            if choice is None:
                return self._go_on(me, "overtaken", "it would not end sooner any more, and goes on")
            return await self._stop(me, row, choice)
        if now - me.since > settings.put_back_grace:
            text = f"{saves.file} was not written within {duration_text(settings.put_back_grace)}"
            return self._go_on(me, "no-checkpoint", text)
        return []

    async def _save(self, me: MoldableJob, row: Job, saves: Checkpoint, choice: MoldChoice) -> list[Decision]:
        saving = replace(me, phase=MoldPhase.SAVING, saved=self._checkpoints.now(saves.file))
        payload: Payload = {"job": row.id, "signal": saves.signal}
        if (refused := await self._act(saving, payload, Signal(KnownJob.of(row), saves.signal), row)) is not None:
            return refused
        return [Decision(Verb.CHANGE, _subject(row.id), (_why(choice), Reason("saves", "it is told to save")), payload)]

    async def _stop(self, me: MoldableJob, row: Job, choice: MoldChoice) -> list[Decision]:
        now = self._clock.now()
        done = 1.0 - me.left(row, now)
        stopping = replace(me, phase=MoldPhase.STOPPING, done=done, asked=None, rests_until=now + _REST)
        if (refused := await self._act(stopping, {"job": row.id}, RequeueJob(KnownJob.of(row)), row)) is not None:
            if self._jobs[row.id].phase is MoldPhase.SAVING:
                self._put(replace(me, phase=MoldPhase.WAITING, rests_until=now + _REST))
            return refused
        return [Decision(Verb.CHANGE, _subject(row.id), (_why(choice),), {"job": row.id})]

    def _go_on(self, me: MoldableJob, code: str, text: str) -> list[Decision]:
        self._put(replace(me, phase=MoldPhase.WAITING, rests_until=self._clock.now() + _REST))
        return [Decision(Verb.HOLD, _subject(me.job), (Reason(code, text),))]

    # -- both --------------------------------------------------------------------------------------------------------

    async def _act(
        self,
        after: MoldableJob,
        payload: Payload,
        act: SlurmAct[None],
        row: Job,
        decided: Snapshot | None = None,
    ) -> list[Decision] | None:
        """None where it was done, else what there is to say of that. `after` is stored before, and what was before it
        again where it was not done."""
        before = self._jobs[row.id]
        self._put(replace(after, since=self._clock.now()))
        concern = replace(Concern.of("malleable", row), decided=decided)
        try:
            await self._executor.act(act, _subject(row.id), payload, concern)
        except PenstockError as e:
            nodes = payload.get("nodes")
            if isinstance(e, Infeasible | NotPermitted) and isinstance(nodes, int):
                before = before.without(nodes)
            if not isinstance(e, OutcomeUnknown):
                self._put(before)
            if not isinstance(e, NotPermitted):
                return []  # the executor has written it down, and backs off
            return [Decision(Verb.HOLD, _subject(row.id), (Reason("limits", str(e)),))]
        finally:
            self._want_look()
        return None

    def _put(self, me: MoldableJob) -> None:
        self._jobs[me.job] = me
        self._store.moldable.save(me.job, me.uid, me.to_dict())


def _subject(job: int) -> str:
    return f"job {job}"


def _why(choice: MoldChoice) -> Reason:
    sooner = "" if math.isinf(choice.instead) else f", {duration_text(choice.instead - choice.end)} sooner"
    nodes = "1 node" if choice.shape.nodes == 1 else f"{choice.shape.nodes} nodes"
    return Reason("ends-first", f"on {nodes} it is planned to end first{sooner}")
