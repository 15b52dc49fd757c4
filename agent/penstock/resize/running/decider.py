"""Decides about one job: what it announced or what the policy wants, and what the core makes of that."""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from penstock.api import (
    Decision,
    Geometry,
    Job,
    Reason,
    ResizePolicy,
    ResizeVerdict,
    Snapshot,
    Verb,
    is_joint,
    plural,
)
from penstock.core.verdicts import PASSING
from penstock.errors import PenstockError
from penstock.future.leftover import Leftover, Room
from penstock.future.speeds import measured_by
from penstock.future.turns import Turns, grant_of, turn_of
from penstock.host.logs import get_logger
from penstock.resize.running import announce, ways
from penstock.resize.running.acts import growth
from penstock.resize.running.bounds import ResizeBounds, bounded, returns
from penstock.resize.running.caps import room
from penstock.resize.running.leaving import smaller
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.tools import Tools, WithTools
from penstock.resize.running.words import ResizePhase, ResizeTerms, Way
from penstock.values import merging
from penstock.values.durations import duration_text

__all__ = ["Decider", "due_back"]

_log = get_logger(__name__)
_GOOD_FOR = 60.0
_SAID = 300  # characters of what a policy raises that are kept
_SPARE = 10.0  # seconds, until the agent looks and the program asks


@dataclass(frozen=True, slots=True)
class _ResizeWish:
    """What a job is to become: what was said about it, the decision and the size that are left of that by now."""

    verdict: ResizeVerdict
    decision: Decision
    size: int
    terms: ResizeTerms

    @property
    def final(self) -> ResizeVerdict:
        """The verdict as it is left."""
        return replace(self.verdict, size=self.size, reasons=self.decision.reasons)


class Decider(WithTools):
    """`expected_wait` predicts the wait (s) of a job of that geometry."""

    def __init__(self, tools: Tools, expected_wait: Callable[[Geometry], Awaitable[float]]) -> None:
        super().__init__(tools)
        self._expected_wait = expected_wait
        self._leads: dict[int, tuple[float, float]] = {}  # by job: until when it counts, and how long ahead to ask
        self._gres: dict[int, bool] = {}
        self._ways: dict[int, Way | None] = {}
        self._joint: Mapping[int, ResizeVerdict] = {}
        self._failure: Reason | None = None  # of a policy that decides jointly
        self._held: set[int] = set()
        self._leftover: Leftover | None = None

    def believed(self, shown: Snapshot) -> Snapshot:
        """What of the picture may be believed in this pass; called first."""
        site = self._settings.site
        parameters = site.scheduler_parameters if site else ()
        turns = Turns(shown, turn_of(parameters))
        believed = turns.believed()
        self._leftover = Leftover(believed, turns, grant_of(parameters))
        return believed

    def begin(self, jobs: Mapping[int, Job], shown: Snapshot) -> None:
        """Before `decide` is called for these running jobs in a pass: a policy that decides jointly does so now."""
        self._joint, self._failure = {}, None
        policy, limits, now = self._settings.policy, self._settings.limits, self._clock.now()
        if not is_joint(policy) or self._registry.outdates(shown.taken_at):
            return
        running = [self._registry.jobs[number] for number, job in jobs.items() if job.partition in shown.partitions]
        known = [me for me in running if not _odd(me)]
        try:
            self._joint = dict(policy.decide_all([me.offer_now(limits, now) for me in known], shown))
        except Exception as error:
            self._failure = self._failed(error)

    def held(self, job: Job) -> Reason | None:
        """Why the job is left alone for now."""
        return self._executor.pause_control.on("malleable", job.uid, [job.partition], [job.account], [job.qos])

    async def decide(self, job: Job, snapshot: Snapshot, shown: Snapshot) -> list[Decision]:
        """The decisions about a running job. `shown` is what the policy is to see."""
        now = self._clock.now()
        over = self._forgotten(job, now)
        decision = await self._decide(job, snapshot, shown, now)
        return [one for one in (over, decision) if one is not None]

    def _forgotten(self, job: Job, now: float) -> Decision | None:
        """That the job's announcement is over, if it is."""
        me = self._registry.jobs[job.id]
        over = announce.expired(me, self._settings.limits, now)
        if not over:
            return None
        self._registry.put(replace(me, announced=None))
        return _nothing(job, Reason("announcement-over", over))

    async def _decide(self, job: Job, snapshot: Snapshot, shown: Snapshot, now: float) -> Decision | None:
        me = self._registry.jobs[job.id]
        if me.phase not in (ResizePhase.IDLE, ResizePhase.PROPOSED) or job.partition not in snapshot.partitions:
            return None
        kept = self._kept(me, job, now) or await self._withdrawn(me, job, now)
        # What was decided jointly was decided in view of all that this pass does.
        if kept is not None or (self._registry.outdates(snapshot.taken_at) and not self._joint):
            return kept
        me = self._registry.jobs[job.id]
        wish = await self._wish(me, job, snapshot, shown, now)
        if wish is None or isinstance(wish, Decision):
            return wish
        if wish.decision.verb is not Verb.NOTHING and me.phase is ResizePhase.IDLE:
            fitting = await self._fitting(me, job, wish, snapshot)
            if isinstance(fitting, Decision):
                return fitting
            wish = fitting
        return await self._begin(me, job, wish, now)

    def _kept(self, me: MalleableJob, job: Job, now: float) -> Decision | None:
        """Why nothing at all is decided about the job now, if there is a reason."""
        self._held.discard(job.id)
        if (paused := self.held(job)) is not None:
            self._held.add(job.id)
            # A shrink that the application has not taken up is withdrawn.
            stay = ResizeVerdict(me.offer.size, (paused,))
            self._registry.put(me.decided(stay, job, "", self._settings.limits, now))
            return Decision(Verb.HOLD, f"job {job.id}", (paused,))
        if _odd(me):
            text = f"its {me.offer.size} ranks, {me.offer.per_node} on a node, do not fill whole nodes"
            return _nothing(job, Reason("part-of-a-node", text))
        return None

    async def _withdrawn(self, me: MalleableJob, job: Job, now: float) -> Decision | None:
        """That a proposed shrink is taken back, as the program would leave for a limit that it does not get."""
        if me.phase is not ResizePhase.PROPOSED or not me.extend:
            return None
        _, denied = await self._may_have(me, job, me.target, me.extend, whole=True)
        me = self._registry.jobs[job.id]
        if denied is None or returns(me, me.target):
            return None
        stay = ResizeVerdict(me.offer.size, (denied,))
        self._registry.put(me.decided(stay, job, "", self._settings.limits, now))
        return _nothing(job, denied)

    async def _wish(
        self, me: MalleableJob, job: Job, snapshot: Snapshot, shown: Snapshot, now: float
    ) -> _ResizeWish | Decision | None:
        """What the job is to become by what it must give back, has announced, or by the policy, within its bounds; or
        the decision that it is left alone, as the policy has failed."""
        limits, policy = self._settings.limits, self._settings.policy
        said = announce.due(me, await self._lead(me, job), limits, now) if me.phase is ResizePhase.IDLE else None
        due = due_back(me, now)
        verdict = due or (said.verdict if said else self._verdict(me, job, shown))
        said = None if due else said
        if verdict is None or isinstance(verdict, Decision):
            return verdict
        cost, partition = self._registry.cost(limits.cost), snapshot.partitions[job.partition]
        bounds = ResizeBounds(now, cost, *self._allowed(), partition, speeds=measured_by(policy, job))
        allowed = bounded(me, job, verdict.size, bounds)
        decision = Decision(
            _verb(allowed.size, me.offer.size),
            f"job {job.id}",
            (*verdict.reasons, *allowed.reasons),
            {"size": verdict.size},
        )
        patience = said.patience if said else None
        terms = ResizeTerms(patience=patience, extend=allowed.extend, announced=said is not None, due=due is not None)
        return _ResizeWish(verdict, decision, allowed.size, terms)

    async def _fitting(
        self, me: MalleableJob, job: Job, wish: _ResizeWish, snapshot: Snapshot
    ) -> _ResizeWish | Decision:
        """The wish after all that limits it now, with the way to grow; or the decision that it must wait."""
        terms = wish.terms
        decision, size = self._capped(me, wish.decision, wish.size, whole=terms.announced)
        # What was announced waits in the queue like any other job.
        if decision.verb is Verb.EXPAND and not terms.announced:
            decision, size, loan = self._left_over(me, job, decision, size)
            terms = replace(terms, loan=loan)
        if decision.verb is Verb.EXPAND:
            choice = await self._choose(me, job)
            if choice.way is None:
                # The application is told, too: it may be one that can never grow here.
                self._registry.put(replace(self._registry.jobs[job.id], note=choice.reason.text))
                return decision.rewritten(Verb.NOTHING, choice.reason.code, choice.reason.text)
            decision = decision.because(choice.reason.code, choice.reason.text)
            if terms.loan and choice.way is Way.MERGE:  # what is merged into a job it has to its end
                text = f"nodes that are free for {duration_text(terms.loan)} can only be lent by a companion"
                return decision.rewritten(Verb.NOTHING, "promised", text)
            terms = replace(terms, way=choice.way)
        if decision.verb is not Verb.NOTHING:
            against = self._busy(me, job, size, wish.verdict.beneficiary, snapshot)
            rehearsed = f"it would be resized from {me.offer.size} to {size}"
            against = against or self._executor.pause_control.rehearses(me.uid, rehearsed)
            if against is not None:
                return decision.rewritten(Verb.NOTHING, against.code, against.text)
        return replace(wish, decision=decision, size=size, terms=terms)

    async def _begin(self, me: MalleableJob, job: Job, wish: _ResizeWish, now: float) -> Decision | None:
        """Begin the resize, as far as the job's owner may have it."""
        name = f"penstock-{job.id}-{secrets.token_hex(6)}"
        limits = self._settings.limits
        after = me.decided(wish.final, job, name, limits, now, wish.terms)
        # Only then is it worth to ask.
        if after.phase in (ResizePhase.ALLOCATING, ResizePhase.PROPOSED) and me.phase is ResizePhase.IDLE:
            size, terms = wish.size, wish.terms
            may, denied = await self._may_have(me, job, size, terms.extend, whole=terms.announced)
            # Messages of the application may have come in meanwhile.
            me = self._registry.jobs[job.id]
            if denied is not None and size < me.offer.size and returns(me, size):
                # It goes back without the longer limit, which it would not have had either without the growth.
                denied, wish = None, replace(wish, terms=replace(terms, extend=0.0))
            if denied is not None and may == me.offer.size:
                return wish.decision.rewritten(Verb.NOTHING, denied.code, denied.text)
            if denied is not None:
                only = wish.decision.because(denied.code, f"{denied.text}: it only grows to {may}")
                wish = replace(wish, size=may, decision=only)
            after = me.decided(wish.final, job, name, limits, now, wish.terms)
        decision = wish.decision
        if after is me and decision.verb is not Verb.NOTHING:
            return None
        if after.phase is me.phase and decision.verb is not Verb.NOTHING:
            decision = decision.rewritten(Verb.NOTHING, "not-its-nodes", after.note)
        self._registry.put(after)
        return replace(decision, details={"size": wish.size})

    def _verdict(self, me: MalleableJob, job: Job, shown: Snapshot) -> ResizeVerdict | Decision | None:
        policy, failure = self._settings.policy, self._failure
        joint = is_joint(policy)
        try:
            found = self._joint.get(job.id) if joint else cast(ResizePolicy, policy).decide(me.told, job, shown)
            if not isinstance(found, ResizeVerdict) and not (joint and found is None):
                raise TypeError(f"it gave {found!r} in place of a ResizeVerdict")
        except Exception as error:
            failure = self._failed(error)
        return found if failure is None else Decision(Verb.HOLD, f"job {job.id}", (failure,))

    def _failed(self, error: Exception) -> Reason:
        """What there is to say of the failure, which is logged."""
        name = self._settings.policy.name
        _log.error("the policy failed", policy=name, exc_info=error)
        return Reason("policy-failed", f"the policy {name} has failed: {type(error).__name__}: {str(error)[:_SAID]}")

    def forget(self, job: int) -> None:
        """The job is over, or has announced something else."""
        self._held.discard(job)
        for known in (self._leads, self._gres, self._ways):
            known.pop(job, None)

    def due_at(self, me: MalleableJob) -> float | None:
        """When something is to be done about the job's announcement, or its loans; None without one."""
        if me.phase is not ResizePhase.IDLE or me.job in self._held:
            return None
        ends = [c.until - _lead_of(me) for c in me.companions if c.until is not None]
        if me.announced is not None:
            ends.append(me.announced.at - self._leads.get(me.job, (0.0, 0.0))[1])
        return min(ends, default=None)

    def _capped(self, me: MalleableJob, decision: Decision, size: int, *, whole: bool) -> tuple[Decision, int]:
        """The decision and the size after the cap on nodes moved within an hour. `whole`: all of it or nothing."""
        offer, now = me.offer, self._clock.now()
        if size < offer.size > offer.maximum:  # the application asks for it, and waits for nobody's nodes
            return decision, size
        left = room(self._settings.caps, self._registry.moves(), me.uid, now)
        if left.reason is None or abs(size - offer.size) <= left.nodes * offer.per_node:
            return decision, size
        return _cut(me, decision, 0 if whole or size < offer.size else left.nodes, left.reason)

    def _left_over(
        self, me: MalleableJob, job: Job, decision: Decision, size: int
    ) -> tuple[Decision, int, float | None]:
        """The decision and the size after what those who wait are about to get, and for how long (s) nodes are lent."""
        unseen = Room(0, Reason("slurm-first", "the agent has not seen the queue yet"))
        room = self._leftover.room(job, me.offer.shortest_loan or math.inf) if self._leftover else unseen
        wanted = (size - me.offer.size) // me.offer.per_node
        others = (o for o in self._registry.jobs.values() if o.job != me.job and o.phase is ResizePhase.ALLOCATING)
        left = room.nodes - sum(o.missing for o in others)
        if room.seconds is not None:
            decision = decision.because(room.reason.code, room.reason.text)
        if wanted <= left:
            return decision, size, room.seconds
        taken = Reason("one-at-a-time", "another resize already uses those nodes")
        return *_cut(me, decision, left, room.reason if wanted > room.nodes else taken), room.seconds

    def _allowed(self) -> tuple[bool, bool]:
        site = self._settings.site
        return (False, True) if site is None else (site.operator and self._settings.extend, merging.shrinks(site))

    async def _may_have(
        self, me: MalleableJob, job: Job, size: int, extend: float, *, whole: bool
    ) -> tuple[int, Reason | None]:
        """The size that the owner may have, and what is against the one that is wanted. A shrink that pays only with a
        longer limit needs to be allowed that. `whole`: all of it or nothing."""
        present, per_node = me.offer.size, me.offer.per_node
        if size < present:
            if not extend:
                return size, None
            seen = await self._rights.current(me)
            why = seen if isinstance(seen, Reason) else await self._rights.to_raise(me, seen, extend)
            return (size, None) if why is None else (present, why)
        first: Reason | None = None
        smaller = [s for s in me.offer.reachable() if present < s < size]
        for wanted in (size, *(() if whole else reversed(smaller))):
            why = await self._rights.to_grow(me, job, (wanted - present) // per_node)
            if why is None:
                return wanted, first
            first = first or why
            if why.code in PASSING:
                break
        return present, first

    def _busy(
        self,
        me: MalleableJob,
        job: Job,
        size: int,
        beneficiary: int | None,
        snapshot: Snapshot,
    ) -> Reason | None:
        """Why this is not the moment: something failed, moves, or is promised to another."""
        limits, now = self._settings.limits, self._clock.now()
        others = [o for o in self._registry.jobs.values() if o.job != me.job]
        joint = is_joint(self._settings.policy)  # it counts for itself what is promised to whom
        if beneficiary is not None and not joint:
            # One that has accepted and never answers must not hold up the others for ever.
            alive = (o for o in others if o.phase is not ResizePhase.LEAVING or now - o.since <= limits.resize)
            taken = any(o.beneficiary == beneficiary for o in alive)
            return Reason("one-at-a-time", "another resize already frees nodes for that job") if taken else None
        if size < me.offer.size:
            return None
        if not all(map(self._executor.ready, growth(job.id))):
            return Reason("backing-off", "growing failed a moment ago")
        idle = snapshot.idle_nodes(job.partition)
        if fresh := self._registry.fresh(idle, limits.regrow):
            return Reason("just-given-back", f"given back a moment ago: {', '.join(fresh)}")
        return None

    async def _choose(self, me: MalleableJob, job: Job) -> ways.GrowthChoice:
        site = self._settings.site
        if site is None:
            return ways.GrowthChoice(None, Reason("no-expansion", "the agent does not know the site's settings yet"))
        added, user = self._settings.merge_releases, self._backend.whoami()
        choice = ways.choose(self._settings.preference, site, me.offer, job, user, gres=False, added=added)
        if choice.way is Way.MERGE and ways.needs_gres(site, added):
            if job.id not in self._gres:
                self._gres[job.id] = await self._backend.holds_gres(job.id)
            gres = self._gres[job.id]
            choice = ways.choose(self._settings.preference, site, me.offer, job, user, gres=gres, added=added)
        if self._ways.get(job.id, "") != choice.way:
            self._ways[job.id] = choice.way
            _log.info(
                "a job's way to grow was chosen",
                job=job.id,
                way=choice.way and choice.way.value,
                why=choice.reason.text,
            )
        return choice

    async def _lead(self, me: MalleableJob, job: Job) -> float:
        """How long before the announced instant the nodes are to be asked for."""
        nodes, now = announce.missing(me) if me.announced else 0, self._clock.now()
        if not nodes:
            return 0.0
        until, lead = self._leads.get(me.job, (-1.0, 0.0))
        if now >= until:
            limit = 60.0 if job.end is None else max(60.0, job.end - now)
            geometry = Geometry(job.partition, job.qos, nodes, limit, account=job.account, user=job.user)
            try:
                lead = await self._expected_wait(geometry) + self._registry.cost(self._settings.limits.cost)
            except PenstockError as e:
                _log.warning("the wait for announced nodes could not be predicted", job=job.id, why=str(e))
            self._leads[me.job] = (now + _GOOD_FOR, lead)
        return lead


def _lead_of(me: MalleableJob) -> float:
    """How long before a loan ends its nodes are asked back."""
    return (me.offer.leaves_within or 0.0) + _SPARE


def due_back(me: MalleableJob, now: float) -> ResizeVerdict | None:
    """The shrink by which nodes go back whose loan is about to end."""
    due = [c for c in me.companions if c.until is not None and c.until - now < _lead_of(me)]
    nodes = {node for companion in due for node in companion.nodes}
    sizes = [size for size in smaller(me) if not nodes & set(me.nodes[: size // me.offer.per_node])] if due else []
    if not sizes:
        return None
    return ResizeVerdict(max(sizes), (Reason("loan-over", f"{plural(len(nodes), 'node')} were lent until now"),))


def _nothing(job: Job, reason: Reason) -> Decision:
    return Decision(Verb.NOTHING, f"job {job.id}", (reason,))


def _cut(me: MalleableJob, decision: Decision, nodes: float, why: Reason) -> tuple[Decision, int]:
    """Growth by no more than so many nodes, or none where no reachable size is within that."""
    offer = me.offer
    most = offer.size + nodes * offer.per_node
    if smaller := [s for s in offer.reachable() if offer.size < s <= most]:
        return decision.because(why.code, f"{why.text}: it only grows to {smaller[-1]}"), smaller[-1]
    return decision.rewritten(Verb.NOTHING, why.code, why.text), offer.size


def _odd(me: MalleableJob) -> bool:
    """Whether its ranks leave a part of a node free, which nobody can be given."""
    return me.offer.size % me.offer.per_node != 0


def _verb(new: int, old: int) -> Verb:
    return Verb.NOTHING if new == old else Verb.EXPAND if new > old else Verb.SHRINK
