"""The one hand that changes Slurm: intent into the journal first, then the request, then how it went; backs off where
it fails.

Whatever wants to change something calls `act` with one of `core.acts`; nothing else is given a `Changer`. Right before
the act the executor asks the pauses once more, looks at the job that is changed, which must be the very one that was
meant (a number alone is none), and has `core.verdicts` say whether its owner may have what the act gives.
If the agent is killed between the two entries, the intent stays open and whoever owns the subject reads back from Slurm
what became of it (each act has a unique name or is idempotent).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from penstock.api import Decision, Job, Snapshot
from penstock.audit.auditor import Auditor
from penstock.audit.record import RecordOutcome
from penstock.core.acts import CancelJob, KnownJob, SlurmAct, bears_name
from penstock.core.events import Event, paused
from penstock.core.numbering import Numbering
from penstock.core.pauses import PauseControl
from penstock.core.verdicts import FRESH, PASSING, Verdicts
from penstock.errors import (
    LeaseLost,
    LeftAlone,
    NoCluster,
    NotFound,
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
from penstock.slurm.base import Backend
from penstock.slurm.meter import asking_for
from penstock.state.store import Store

__all__ = ["FRESH", "Concern", "Executor", "Payload"]

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
    """Whose jobs an act is about: `feature` is one of `pauses.FEATURES`, `owner` the uid of their user. `partitions`,
    `accounts` and `qos` are where the job is, as far as is known.

    `cluster` names the one where the job is; empty: the one that is asked when none is named. `decided` is the picture
    on which the act was decided, which may be as old as the interval between looks: if the job stands otherwise by now
    (somebody held it, changed its dependency, it began), that must not be overrun.
    `ends`: it ends, gives back or brings to its end what is under way, which is done whatever is paused.
    """

    feature: str
    owner: int
    partitions: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    ends: bool = False
    cluster: str = ""
    decided: Snapshot | None = None

    @classmethod
    def of(cls, feature: str, job: Job, *, ends: bool = False) -> Concern:
        """About a job as Slurm shows it."""
        return cls(feature, job.uid, (job.partition,), (job.account,), (job.qos,), ends)


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
        self.verdicts = Verdicts(slurm, clock)
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
        # Called when it has paused all acts by itself, for people to be told.
        self.tell: Callable[[Event], None] = lambda _event: None
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

    async def act(self, act: SlurmAct[T], subject: str, payload: Payload, concern: Concern) -> T:
        """Journal, request, journal; the request's answer. Its errors pass through after the back-off is set.

        Nothing is journaled, and these are raised, where the act may not be: LeftAlone where what it is about is paused
        or not allowed; NotFound where the job is gone, whether or not another has its number now; NotPermitted where
        it is somebody else's, or its owner may not have what the act gives; NotNow where neither can be looked at;
        Overtaken where the job is not as it was decided on; AuditUnwritable where it could not be written down that it
        was done for somebody else.
        """
        with asking_for(concern.feature, concern.owner):
            return await self._act(act, subject, payload, concern)

    async def _act(self, act: SlurmAct[T], subject: str, payload: Payload, concern: Concern) -> T:
        verb, job = act.verb, None if act.job is None else act.job.number
        self.check(concern)
        try:
            await self._verify(act, concern)
        except (NotPermitted, NotFound) as e:
            self._audit.act(verb, subject, concern.owner, payload, job, RecordOutcome.REFUSED, e)
            raise
        self.check(concern)  # somebody may have been told meanwhile that it is paused
        if concern.owner != os.geteuid():
            self._audit.require()
        intent = self._intend(act, subject, payload)
        # Before the intent is settled: who is killed in between has told of the act, and finds that at the next start.
        tell = partial(self._audit.act, verb, subject, concern.owner, {**payload, "intent": intent})
        asked = False
        try:
            self._may_act()
            asked = True
            try:
                answer = await act.carry_out(self._slurm.on(concern.cluster) if concern.cluster else self._slurm)
            finally:
                if job is not None:
                    self.on_act([job], concern.owner)
        except PenstockError as e:
            state = "unknown" if isinstance(e, OutcomeUnknown) else "failed"
            if asked and not (isinstance(e, NotNow) and e.again_in is not None):  # that was not asked of Slurm
                tell(job, RecordOutcome(state), e)
            self._failed(verb, subject, intent, state, e)
            raise
        except BaseException as e:
            tell(job, RecordOutcome.UNKNOWN, e)
            self._settle(intent, "unknown", repr(e))
            raise
        made = answer if job is None and isinstance(answer, int) else job
        if made is not None and job is None:
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
        self._store.decisions.record(decision, self._clock.now())

    async def cancel(self, job: KnownJob, subject: str, concern: Concern) -> None:
        """End a job: an act like any other, and done whatever is paused. One that is gone is as it was wanted."""
        try:
            await self.act(CancelJob(job), subject, {"job": job.number}, replace(concern, ends=True))
        except NoCluster:
            raise
        except NotFound as e:
            _log.debug("gone before it was cancelled", subject=subject, why=str(e))

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

    async def _verify(self, act: SlurmAct[T], concern: Concern) -> None:
        """Look at the job: is it the one that was meant, as it was decided on, and may it have what it is to get? One
        that was never seen is left to Slurm's answer: it may be younger than the look."""
        if act.job is None:
            return
        job, number = act.job, act.job.number
        seen = await (self._glance(concern.cluster) if concern.cluster else self._look())
        if not seen.usable:
            raise NotNow(f"job {number} cannot be looked at: {'; '.join(seen.problems)}")
        head = seen.jobs.get(number)
        rows = [] if head is None else [head]
        rows += _tasks(seen, number)
        for row in rows:
            if not self._owns(job.uid, row):
                raise NotPermitted(f"job {number} now belongs to {row.user}: its number was another job's before")
        await self._identify(job, rows, concern.cluster)
        then = concern.decided
        if then is not None and then.taken_at != seen.taken_at and _standing(then, number) != _standing(seen, number):
            raise Overtaken(f"job {number} has changed since this was decided: it is decided anew")
        if act.wish is None:
            return
        if not rows:
            raise NotFound(f"job {number} is not in the queue")
        held = [one for n in act.companions if (one := seen.jobs.get(n)) is not None and one.state.holds_nodes]
        why = await self.verdicts.against(rows[0], held, act.wish, seen, counts=True)
        if why is not None:
            raise NotNow(why.text) if why.code in PASSING else NotPermitted(why.text)

    async def _identify(self, job: KnownJob, rows: Sequence[Job], cluster: str) -> None:
        """Raises NotFound where these rows of the job's number are not the job that was meant."""
        another = f"job {job.number} is gone: Slurm has given its number to another job"
        if job.submit is not None:
            if not rows:
                raise NotFound(f"job {job.number} is not in the queue any more")
            if any(row.submit == job.submit for row in rows):
                return
            if not job.name or all(row.restarts <= job.restarts for row in rows):
                raise NotFound(another)
        if job.name and rows:
            asked = self._slurm.on(cluster) if cluster else self._slurm
            named = await asked.find(job.name, None if self._owns(os.geteuid(), rows[0]) else job.uid)
            if not bears_name(job.number, rows, named):
                raise NotFound(another)

    def is_own(self, job: Job) -> bool:
        """Whether a job is that of the user as whom this process acts."""
        return self._owns(os.geteuid(), job)

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

    def _intend(self, act: SlurmAct[T], subject: str, payload: Payload) -> int | None:
        """Write down what is about to be done; its number. None where that cannot be done and need not be: who is
        killed then cancels once more, and a job ends once."""
        try:
            return self._store.intents.intend(act.verb, subject, payload, self._clock.now())
        except LeaseLost:
            raise
        except StoreError:
            if not isinstance(act, CancelJob):
                raise
            return None

    def _settle(self, intent: int | None, state: str, outcome: str) -> None:
        """Write down how it went. Where that cannot be done now (a full disk), the caller must hear how it went all the
        same: who takes what was done for a failure does it again."""
        if intent is None:
            return
        self._unsettled[intent] = (state, outcome, self._clock.now())
        try:
            self._write_down()
        except StoreError as e:
            _log.error("an outcome cannot be written to the journal yet; it is tried again", intent=intent, why=str(e))

    def _write_down(self) -> None:
        for intent, (state, outcome, at) in list(self._unsettled.items()):
            self._store.intents.settle(intent, state, outcome, at)
            del self._unsettled[intent]

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """A controller of the loop as well: writes down what could not be when it happened. Raises StoreError."""
        self._write_down()
        self.pause_control.write()
        return []

    def next_wake(self, now: float) -> float | None:
        """Nothing is ever due."""
        return None

    def _failed(self, verb: str, subject: str, intent: int | None, state: str, error: PenstockError) -> None:
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
            self._tell(paused(self._pause.until, f"{verb} {subject}: {error}", _PAUSE_AFTER, now=now))

    def _tell(self, event: Event) -> None:
        try:
            self.tell(event)
        except StoreError as error:  # the pause matters more than the word about it
            _log.warning("the message about the agent's pause cannot be stored", why=str(error))


def _standing(picture: Snapshot, job: int) -> frozenset[tuple[object, ...]]:
    """What a change of the job goes by; of an array whose tasks have all begun, of all of these."""
    waiting = picture.jobs.get(job)
    rows = [waiting] if waiting is not None else _tasks(picture, job)
    return frozenset(
        (
            row.id,
            row.uid,
            row.submit,
            row.state,
            row.held,
            row.held and row.reason,
            row.put_off,
            row.dependency,
            row.restarts,
        )
        for row in rows
    )


def _tasks(picture: Snapshot, job: int) -> list[Job]:
    """Those of an array that it shows apart."""
    return [row for row in picture.jobs.values() if row.array_job == job and row.id != job]


def _named(names: Iterable[str]) -> list[str]:
    """Those that are known."""
    return [name for name in names if name]
