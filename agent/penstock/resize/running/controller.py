"""Drives the resize machines of all malleable jobs: one step per job and pass, every state stored before its act.

The application's messages arrive through `checked`, `announced`, `accepted`, `refused`, `done` (called by
ipc.handlers); they change only the job's own state and wake the loop. Decisions are taken in `reconcile`, which the
loop calls with a usable snapshot.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from penstock.api import Decision, Geometry, Job, JobState, Offer, Reason, Snapshot
from penstock.core.parts import Site, Waits
from penstock.errors import NotFound, NotNow, StoreError
from penstock.host.logs import get_logger
from penstock.resize.running.acts import ResizeActs
from penstock.resize.running.cleaner import Cleaner
from penstock.resize.running.decider import Decider
from penstock.resize.running.grow import Grower
from penstock.resize.running.launcher_requests import LauncherRequest
from penstock.resize.running.learning import Learning
from penstock.resize.running.leaving import Leaver
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.registry import Registry
from penstock.resize.running.reordering import QueueOrder
from penstock.resize.running.rights import Rights
from penstock.resize.running.settings import MalleableSettings
from penstock.resize.running.tools import Tools
from penstock.resize.running.words import Announcement, ResizePhase

__all__ = ["MalleableController"]

_log = get_logger(__name__)

# Phases in which something is on its way in Slurm, and the seconds after which it is asked again at first.
_BUSY = {
    ResizePhase.ALLOCATING: 1.0,
    ResizePhase.MERGING: 0.5,
    ResizePhase.JOINING: 0.5,
    ResizePhase.CLEANING: 1.0,
    ResizePhase.GIVING_BACK: 0.5,
    ResizePhase.RELEASING: 0.25,
}
_PATIENT = 10.0
_ALIVE = (JobState.RUNNING, JobState.RESIZING, JobState.SUSPENDED, JobState.CONFIGURING)


class MalleableController:
    """All malleable jobs of one agent."""

    def __init__(self, site: Site, settings: MalleableSettings) -> None:
        self._clock, self._wake, executor = site.clock, site.wake, site.executor
        self._pause_control = executor.pause_control
        self.settings = settings
        self._registry = Registry(site.store, site.clock, site.want_look)
        rights = Rights(site.observer, executor.verdicts, site.clock)
        tools = Tools(site.reader, executor, self._registry, site.clock, settings, rights)
        self._grower = Grower(tools, site.wake)
        self._cleaner = Cleaner(tools, self._grower)
        self._acts = ResizeActs(tools, self._grower, self._cleaner)
        self._decider = Decider(tools, partial(_expected_wait, site.waits))
        self._order = QueueOrder(tools, site.store)
        self._learning = Learning(tools, site.store)
        self.leaver = Leaver(self._registry, site.clock, settings)

    @property
    def jobs(self) -> Mapping[int, MalleableJob]:
        """The malleable jobs that have not ended."""
        return self._registry.jobs

    @property
    def registry(self) -> Registry:
        """What is counted of them."""
        return self._registry

    def held(self, job: Job) -> Reason | None:
        """Why the job is left alone for now."""
        return self._decider.held(job)

    @property
    def waiting(self) -> bool:
        """Whether a request for nodes is still without an answer."""
        return bool(self._grower.waiting)

    # -- what applications say (any time, from ipc.handlers) -----------------------------------------------------------

    def checked(self, job: Job, offer: Offer, epoch: int, sent: float = math.inf, starting: int = 0) -> MalleableJob:
        """A check by the owner of `job`; the state to answer from. `sent`: the sender's clock. `starting`: the epoch
        for which the application has new processes started, while it goes on."""
        known = self.jobs.get(job.id)
        if known is None or not known.lives_in(job):
            me = MalleableJob.registered(job, offer, epoch)
            if known is None:
                self._registry.put(me)
            # Else it was requeued: what is known is about its former life, which the next pass ends.
            self._wake(f"job {job.id} is malleable")
            return me
        me = known.checked(offer, epoch, self._clock.now(), sent, starting)
        if me.phase is not known.phase or _wish(me.offer) != _wish(known.offer):
            self._wake(f"job {job.id} said something new")
        self._registry.put(me)
        return me

    def announced(self, job: int, size: int, in_seconds: float) -> bool:
        """The application will want another size; false when it is not known. The latest word counts."""
        me = self.jobs.get(job)
        if me is None:
            return False
        self._decider.forget(job)
        if self._registry.put(replace(me, announced=Announcement(size, self._clock.now() + in_seconds))):
            self._wake(f"job {job} announced a size")
        return True

    def accepted(self, job: int, epoch: int, sent: float = 0.0) -> bool:
        """The application starts the resize; false when it must not."""
        me = self.jobs.get(job)
        after = me.accepted(epoch, self._clock.now(), sent) if me else None
        if after is None:
            return False
        self._registry.put(after)
        return True

    def refused(self, job: int, epoch: int, why: str) -> None:
        """The application did not resize."""
        if (me := self.jobs.get(job)) and self._registry.put(me.refused(epoch, why, self._clock.now())):
            self._wake(f"job {job} refused")

    def done(self, job: int, epoch: int, timings: Mapping[str, float]) -> None:
        """The application's new ranks run."""
        if (me := self.jobs.get(job)) and self._registry.put(me.done(epoch, timings, self._clock.now())):
            self._wake(f"job {job} has resized")

    def launcher_request(self, job: int) -> LauncherRequest | None:
        """What the job's launcher is to ask Slurm for; it is being told."""
        me = self.jobs.get(job)
        if me is None or me.phase is not ResizePhase.ALLOCATING:
            return None
        return self._grower.requests.tell(me.resizer_name, self._clock.now())

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Take at most one step per job; the decisions taken."""
        decisions: list[Decision] = []
        self._registry.flush()
        self._learning.recall()
        try:
            hidden = await self._grower.unseen(snapshot)
        except NotNow as e:
            _log.debug("malleable jobs are looked at again later", why=str(e))
            return []
        shown = snapshot
        if hidden:
            shown = replace(snapshot, jobs={n: j for n, j in snapshot.jobs.items() if n not in hidden})
        shown = self._decider.believed(shown)
        running = {n: j for n, me in self.jobs.items() if (j := snapshot.jobs.get(n)) and j.running and me.lives_in(j)}
        self._decider.begin({n: j for n, j in running.items() if self._decider.held(j) is None}, shown)
        # Who was resized longest ago is served first: else few idle nodes would always go to the same jobs.
        for number in sorted(self.jobs, key=lambda n: self.jobs[n].since):
            await asyncio.sleep(0)  # applications are answered in between
            try:
                decisions.extend(await self._serve(number, snapshot, shown))
            except StoreError:
                raise  # nothing can be written down, of no job: the loop says so
            except (NotNow, NotFound) as e:  # it, or a job of its nodes, may have ended since the look
                _log.debug("a malleable job is looked at again later", job=number, why=str(e))
            except Exception:
                # One bad subject, or a policy that fails, must not keep the others from being served.
                _log.exception("a malleable job could not be served", job=number)
        if self.jobs:
            decisions += await self._order.keep(shown)
        self._learning.save()
        return decisions

    async def _serve(self, number: int, snapshot: Snapshot, shown: Snapshot) -> list[Decision]:
        job = snapshot.jobs.get(number)
        if job is None or job.state.ended or job.pending or not self.jobs[number].lives_in(job):
            await self._cleaner.ended(number, job)
            self._decider.forget(number)
            return []
        if not job.running:
            return []
        self._bury(number, snapshot)
        await self._cleaner.sweep(job)
        if (off := self._pause_control.off) is not None:
            decisions = self.leaver.decide(job, snapshot, off)
        else:
            decisions = await self._decider.decide(job, snapshot, shown)
        await self._acts.advance(job, snapshot)
        return decisions

    def _bury(self, number: int, snapshot: Snapshot) -> None:
        """Companions that ended by themselves are no longer counted with."""
        me = self.jobs[number]
        held = {c.job: c.since for c in me.companions}
        if me.resizer is not None and "joined" in me.marks:
            held[me.resizer] = me.marks["joined"]
        ended = [
            companion
            for companion, since in held.items()
            if snapshot.taken_at > since
            and (companion not in snapshot.jobs or snapshot.jobs[companion].state not in _ALIVE)
        ]
        if ended:
            self._registry.put(me.lost(ended, self._clock.now()))

    def next_wake(self, now: float) -> float | None:
        """When this controller wants the next pass at the latest; infinity while jobs are merely registered."""
        if not self.jobs:
            return None
        announced = [at for me in self.jobs.values() if (at := self._decider.due_at(me)) is not None]
        return min([*announced, *(now + _pause(me, now) for me in self.jobs.values())])

    async def close(self) -> None:
        """Stop waiting for grants; what Slurm grants later is found by name at the next start."""
        await self._learning.close()
        await self._grower.close()
        self._registry.flush()


async def _expected_wait(waits: Waits, geometry: Geometry) -> float:
    """Seconds that a job of it would wait."""
    await waits.prepare([geometry])
    return waits.model_store.predict(geometry).seconds


def _wish(offer: Offer) -> tuple[int, int, int, int, int | None]:
    return (offer.size, offer.minimum, offer.maximum, offer.factor, offer.preferred)


def _pause(me: MalleableJob, now: float) -> float:
    """Seconds until a job that something is on its way for is looked at again: soon at first, then ever more rarely."""
    if me.phase not in _BUSY:
        return math.inf
    return min(_PATIENT, max(_BUSY[me.phase], (now - me.since) / 4))
