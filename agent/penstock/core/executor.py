"""The one hand that changes Slurm: intent into the journal first, then the request, then how it went; backs off where
it fails.

Whatever wants to change something calls `act`; nobody else is given a `Changer`. The pauses are asked here once more,
right before the act, whoever has asked it before, and a job that is changed is looked at: it must still be its owner's.
If the agent is killed between the two entries, the intent stays open and whoever owns the subject reads back from Slurm
what became of it (each act has a unique name or is idempotent).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from penstock.api import Decision, Job, Snapshot
from penstock.audit.auditor import Auditor
from penstock.audit.record import RecordOutcome
from penstock.core.numbering import Numbering
from penstock.core.pauses import PauseControl
from penstock.errors import (
    LeftAlone,
    NotNow,
    NotPermitted,
    OutcomeUnknown,
    Overtaken,
    PenstockError,
    SlurmUnavailable,
    StoreError,
)
from penstock.host.clock import Clock, Rest
from penstock.host.logs import get_logger
from penstock.slurm.base import Backend, Changer
from penstock.slurm.meter import asking_for
from penstock.state.store import Store

__all__ = ["FRESH", "Concern", "Executor", "Payload"]

FRESH: Final = 1.0
"""Seconds: a look that is older than this is none to act on."""

T = TypeVar("T")
Payload = Mapping[str, str | float | None]
"""What the journal says of an act besides its verb and subject."""
_log = get_logger(__name__)

_LADDER = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0)
_PAUSE_AFTER = 10
_PAUSE_FOR = 600.0


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    rest: Rest = field(default_factory=Rest)


@dataclass(frozen=True, slots=True)
class Concern:
    """Whose jobs an act is about: `feature` is one of `pauses.FEATURES`, `owner` the uid of their user, `job` the one
    that is changed, if there is one yet. `partitions`, `accounts` and `qos` are where it is, as far as is known.

    `cluster` names the one where the job is; empty: the one that is asked when none is named. `decided` is the picture
    on which the act was decided, which may be as old as the interval between looks: if the job stands otherwise by now
    (somebody held it, changed its dependency, it began), that must not be overrun.
    `ends`: it ends, gives back or brings to its end what is under way, which is done whatever is paused.
    """

    feature: str
    owner: int
    job: int | None = None
    partitions: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    ends: bool = False
    cluster: str = ""
    decided: Snapshot | None = None

    @classmethod
    def of(cls, feature: str, job: Job, *, ends: bool = False) -> Concern:
        """About a job as Slurm shows it."""
        return cls(feature, job.uid, job.id, (job.partition,), (job.account,), (job.qos,), ends)


class Executor:
    """Runs acts one at a time per call, journaled. `scale` shortens the back-off ladder for tests and the demo.

    `slurm` is what it changes; `look` gives a picture that is not older than `FRESH` s (default: it takes one of the
    queue by itself, for all acts of that time). `may_act` is called right before each request, and raises what is in
    its way. `outcomes` counts acts by verb and how they ended (done, failed, unknown), `pauses` how often too many
    failures in a row paused everything. Each act that was asked of Slurm leaves a record in the `audit`; where that
    cannot be written, nothing is done for others than the agent's own user.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        slurm: Backend,
        *,
        look: Callable[[], Awaitable[Snapshot]] | None = None,
        scale: float = 1.0,
        may_act: Callable[[], None] = lambda: None,
        audit: Auditor | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._audit = audit or Auditor(None, clock.now)
        self._slurm = slurm
        self._look = look or self._glance
        self._glanced: dict[str, Snapshot] = {}
        self._numbering: dict[str, Numbering] = {}
        self._scale = scale
        self._may_act = may_act
        self.pause_control = PauseControl(store)
        self._trouble: dict[str, _Trouble] = {}
        # How acts went that the journal has open still, by intent: state, outcome, when.
        self._unsettled: dict[int, tuple[str, str, float]] = {}
        self._in_a_row = 0
        self._pause = Rest()
        self.pauses = 0
        self.outcomes: Counter[tuple[str, str]] = Counter()
        # Called with the end of an automatic pause, the last failure, and how many there were in a row.
        self.on_pause: Callable[[float, str, int], None] = lambda _until, _why, _count: None
        # Called with the jobs that something was asked of Slurm for, however that went, and their owner.
        self.on_act: Callable[[Sequence[int], int], None] = lambda _jobs, _owner: None

    @property
    def may_act(self) -> Callable[[], None]:
        """Raises what is in the way of any act, and of writing down what belongs to one: a lease that is lost, or may
        be."""
        return self._may_act

    @property
    def paused(self) -> bool:
        """Whether nothing is done for now because too many requests failed in a row."""
        return self._pause.lasts(self._clock.now())

    @property
    def paused_until(self) -> float:
        """When that is over; 0 while it is not so."""
        return self._pause.until if self.paused else 0.0

    def ready(self, subject: str) -> bool:
        """Whether the subject is past its back-off and the executor is not paused."""
        return self._clock.now() >= self.ready_at(subject)

    def ready_at(self, subject: str) -> float:
        """When the subject may be acted on again; 0: now."""
        trouble = self._trouble.get(subject)
        rest = trouble.rest if trouble else Rest()
        return max(self.paused_until, rest.until if rest.lasts(self._clock.now()) else 0.0)

    async def act(
        self,
        verb: str,
        subject: str,
        payload: Payload,
        request: Callable[[Changer], Awaitable[T]],
        concern: Concern,
    ) -> T:
        """Journal, request, journal; the request's answer. Its errors pass through after the back-off is set.

        Raises LeftAlone where what it is about is paused or not allowed, NotNow or NotPermitted where the job that it
        changes cannot be looked at or is somebody else's by now, Overtaken where that is not as it was decided on, and
        AuditUnwritable where it could not be written down that it was done for somebody else; nothing is journaled
        then.
        """
        with asking_for(concern.feature, concern.owner):
            return await self._act(verb, subject, payload, request, concern)

    async def _act(
        self,
        verb: str,
        subject: str,
        payload: Payload,
        request: Callable[[Changer], Awaitable[T]],
        concern: Concern,
    ) -> T:
        self.check(concern)
        try:
            await self._verify(concern)
        except NotPermitted as e:
            self._audit.act(verb, subject, concern.owner, payload, concern.job, RecordOutcome.REFUSED, e)
            raise
        self.check(concern)  # somebody may have been told meanwhile that it is paused
        if concern.owner != os.geteuid():
            self._audit.require()
        intent = self._store.intend(verb, subject, payload, self._clock.now())
        # Before the intent is settled: who is killed in between has told of the act, and finds that at the next start.
        tell = partial(self._audit.act, verb, subject, concern.owner, {**payload, "intent": intent})
        asked = False
        try:
            self._may_act()
            asked = True
            try:
                answer = await request(self._slurm)
            finally:
                if concern.job is not None:
                    self.on_act([concern.job], concern.owner)
        except PenstockError as e:
            state = "unknown" if isinstance(e, OutcomeUnknown) else "failed"
            if asked and not (isinstance(e, NotNow) and e.again_in is not None):  # that was not asked of Slurm
                tell(concern.job, RecordOutcome(state), e)
            self._failed(verb, subject, intent, state, e)
            raise
        except BaseException as e:
            tell(concern.job, RecordOutcome.UNKNOWN, e)
            self._settle(intent, "unknown", repr(e))
            raise
        made = answer if concern.job is None and isinstance(answer, int) else concern.job
        if made is not None and concern.job is None:
            self.on_act([made], concern.owner)
        tell(made, RecordOutcome.DONE)
        self.outcomes[verb, "done"] += 1
        self._settle(intent, "done", "")
        self._trouble.pop(subject, None)
        self._in_a_row = 0
        _log.info("done", verb=verb, subject=subject, **payload)
        return answer

    def record(self, decision: Decision) -> None:
        """Keep why something is done or left, for `penstock explain`."""
        self._store.record(decision, self._clock.now())

    async def cancel(self, job: int, subject: str, concern: Concern) -> None:
        """End a job: an act like any other, and done whatever is paused."""

        async def request(slurm: Changer) -> None:
            await slurm.cancel(job)

        await self.act("cancel", subject, {"job": job}, request, replace(concern, job=job, ends=True))

    def check(self, concern: Concern) -> None:
        """Raises LeftAlone if what an act is about is paused or not allowed."""
        if concern.ends:
            return
        held = self.pause_control.on(
            concern.feature,
            concern.owner,
            _named(concern.partitions),
            _named(concern.accounts),
            _named(concern.qos),
            strict=False,
        ) or self.pause_control.rehearses(concern.owner, "nothing is done to it")
        if held is not None:
            raise LeftAlone(held.text)

    async def _verify(self, concern: Concern) -> None:
        """Look at the job. One that is not there is left to Slurm's answer: it may be younger than the look."""
        if concern.job is None:
            return
        seen = await (self._glance(concern.cluster) if concern.cluster else self._look())
        if not seen.usable:
            raise NotNow(f"job {concern.job} cannot be looked at: {'; '.join(seen.problems)}")
        for job in (seen.jobs.get(concern.job), *(j for j in seen.jobs.values() if j.array_job == concern.job)):
            if job is not None and not self._owns(concern.owner, job):
                raise NotPermitted(f"job {concern.job} now belongs to {job.user}: its number was another job's before")
        then = concern.decided
        if then is None or then.taken_at == seen.taken_at:
            return
        if _standing(then, concern.job) != _standing(seen, concern.job):
            raise Overtaken(f"job {concern.job} has changed since this was decided: it is decided anew")

    def _owns(self, uid: int, job: Job) -> bool:
        # Whom this process acts as in Slurm is told by name: in a simulation it may be anybody.
        return job.uid == uid or (uid == os.geteuid() and job.user == self._slurm.whoami())

    async def _glance(self, cluster: str = "") -> Snapshot:
        now, last = self._clock.now(), self._glanced.get(cluster)
        if last is None or not 0 <= now - last.taken_at < FRESH:
            asked = self._slurm.on(cluster) if cluster else self._slurm
            jobs = {job.id: job for job in await asked.jobs()}
            if cluster not in self._numbering:
                self._numbering[cluster] = Numbering(self._store, cluster)
            why = self._numbering[cluster].check(jobs.values(), now)
            last = self._glanced[cluster] = Snapshot(now, jobs, {}, {}, () if why is None else (why,))
        return last

    def _settle(self, intent: int, state: str, outcome: str) -> None:
        """Write down how it went. Where that cannot be done now (a full disk), the caller must hear how it went all the
        same: who takes what was done for a failure does it again."""
        self._unsettled[intent] = (state, outcome, self._clock.now())
        try:
            self._write_down()
        except StoreError as e:
            _log.error("an outcome cannot be written to the journal yet; it is tried again", intent=intent, why=str(e))

    def _write_down(self) -> None:
        for intent, (state, outcome, at) in list(self._unsettled.items()):
            self._store.settle(intent, state, outcome, at)
            del self._unsettled[intent]

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """A controller of the loop as well: writes down what could not be when it happened. Raises StoreError."""
        self._write_down()
        return []

    def next_wake(self, now: float) -> float | None:
        """Nothing is ever due."""
        return None

    def _failed(self, verb: str, subject: str, intent: int, state: str, error: PenstockError) -> None:
        now = self._clock.now()
        self.outcomes[verb, state] += 1
        self._settle(intent, state, str(error))
        trouble = self._trouble.setdefault(subject, _Trouble())
        pause = self._scale * _LADDER[min(trouble.failures, len(_LADDER) - 1)]
        if isinstance(error, NotNow) and error.again_in is not None:
            pause = max(pause, error.again_in)
        else:  # what was not even asked is no new failure
            trouble.failures += 1
            # A refusal is no sign that Slurm is in trouble, and no reason to pause everything.
            self._in_a_row += isinstance(error, OutcomeUnknown | SlurmUnavailable)
        trouble.rest = Rest(now, now + pause)
        _log.warning("an act failed; backing off", verb=verb, subject=subject, why=str(error), again_in=pause)
        if self._in_a_row >= _PAUSE_AFTER:
            self._pause = Rest(now, now + self._scale * _PAUSE_FOR)
            self.pauses += 1
            self._in_a_row = 0
            _log.error("all acts are paused: too many requests failed in a row", until=self._pause.until)
            self.on_pause(self._pause.until, f"{verb} {subject}: {error}", _PAUSE_AFTER)


def _standing(picture: Snapshot, job: int) -> frozenset[tuple[object, ...]]:
    """What a change of the job goes by; of an array whose tasks have all begun, of all of these."""
    waiting = picture.jobs.get(job)
    rows = [waiting] if waiting is not None else [row for row in picture.jobs.values() if row.array_job == job]
    return frozenset(
        (row.id, row.uid, row.state, row.held, row.held and row.reason, row.put_off, row.dependency, row.restarts)
        for row in rows
    )


def _named(names: Iterable[str]) -> list[str]:
    """Those that are known."""
    return [name for name in names if name]
