"""Serves all workflows of one agent, whoever submits their jobs: pass after pass each as far as its user's share goes.

What is asked for them comes in by `submissions` and `registrations`, by `cancel` and `more`; `reconcile` has the runner
step over each run of which there is news, keeps what comes of that (`book.py`), and has it carried out (`carrying.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.api import Decision, Geometry, Partition, Reason, Snapshot, Verb
from penstock.core.pace import Pace
from penstock.core.parts import Site
from penstock.errors import NotFound, PenstockError, StoreError
from penstock.host.logs import get_logger
from penstock.state.environments import Environments
from penstock.values.fair import LookupClaim, Rounds, UserShare
from penstock.values.waits import Estimate
from penstock.workflow.intervals import begun, ended, lasts
from penstock.workflow.phases import RunPhase
from penstock.workflow.run.accounting import Accounting
from penstock.workflow.run.beliefs import Beliefs
from penstock.workflow.run.book import Book
from penstock.workflow.run.carrying import Carrier, subject_of
from penstock.workflow.run.environments import RunEnvironments
from penstock.workflow.run.holds import RunHolds
from penstock.workflow.run.instructions import Cancel, Finished, Lookup, Observe, RunStep, SlurmView
from penstock.workflow.run.lookups import AGENTS_OWN, Lookups
from penstock.workflow.run.registrations import Registrations
from penstock.workflow.run.room import UserRoom
from penstock.workflow.run.runner import Runner
from penstock.workflow.run.submissions import Submissions
from penstock.workflow.run.unchanged import Resting, jobs_named, resting
from penstock.workflow.run.views import Views
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Rules

__all__ = ["WorkflowController"]

_log = get_logger(__name__)

# What it costs to write down a run, and each stage of it, and to see whether there is news of one, as work of a pass
# (`Pace`).
_SAVED, _SAVED_STAGE, _COMPARED = 30, 5, 5
_FULL: Final = 600.0
"""Seconds after which every run is stepped over all the same: what a step reads without our knowing it comes late by
that at most, and at an interval of 30 s one pass in twenty is a full one."""


@dataclass(slots=True)
class _Stepped:
    """What the last step over a run has left, over which look and when. `wake`: when it has something to do without
    news, infinite if never. `complete`: all that there was to do is done. `rest`: it had nothing to do; `look` is then
    the last one that showed the same."""

    run: WorkflowRun
    look: Snapshot
    pause_state: tuple[object, ...]
    at: float
    wake: float
    complete: bool
    rest: Resting | None = None


class WorkflowController:
    """All workflow runs of one agent. `environments` are those of who submitted them; None: none are kept.

    A pass serves each user as far as `share` allows, and takes the rest up at the next (`values.fair`). `steps`
    counts the runs that were looked through.
    """

    def __init__(self, site: Site, runner: Runner, rules: Rules, environments: Environments | None = None) -> None:
        self._observer, self._store, self._clock, self._wake = site.observer, site.store, site.clock, site.wake
        self._runner = runner
        share = site.config().limits.share
        self.book = book = Book(site.store)
        self._room = UserRoom(share, lambda: self.runs)
        self.carrier = Carrier(
            site.reader, site.observer.want, site.executor, site.clock, runner, book, site.wake, share.changes
        )
        self._environments = RunEnvironments(environments, site.store, book)
        self.carrier.environment_of = self._environments.read
        self._environments.sweep()
        self._accounting = Accounting(site.reader, site.clock, share.lookups)
        self._views = Views(site.reader, site.observer, site.clock, self._accounting)
        self._lookups = Lookups(self._accounting, self._views, book, site.clock, site.wake)
        self._holds = RunHolds(site.executor.pause_control, site.observer)
        self._beliefs = Beliefs(site.waits, rules)
        self.submissions = Submissions(site, runner, rules, book, self._beliefs, self._environments)
        self.registrations = Registrations(site, rules, book, self._room, self._absorbed)
        self._rounds: Rounds[int] = Rounds()
        self._left = False  # the last pass has left something to the next, for want of room
        self._stepped: dict[int, _Stepped] = {}
        self._full_since = -math.inf
        self._partitions: Mapping[str, Partition] = {}
        self._failures = site.store.errors
        self._said: dict[int, dict[str, str]] = {}  # by run and stage: the code of what was decided last
        self.steps = 0
        self._taken_over = {number for number, run in self.runs.items() if not run.owned}

    @property
    def runs(self) -> dict[int, WorkflowRun]:
        """All that have not ended, by number."""
        return self.book.runs

    @property
    def share(self) -> UserShare:
        """What one user may have."""
        return self._room.share

    @share.setter
    def share(self, share: UserShare) -> None:
        self._room.share = share
        self.carrier.most, self._accounting.most = share.changes, share.lookups

    # -- what users ask of runs (any time, from the door) --------------------------------------------------------------

    def cancel(self, number: int, why: str) -> list[int]:
        """End a run: the jobs that the agent has submitted are cancelled in the coming passes, and no more are let go;
        the jobs that their owner has to cancel. Raises `NotFound`."""
        if number not in self.runs:
            raise NotFound(f"there is no running workflow {number}")
        run = self._runner.cancel(self.runs[number], why)
        self.book.end(run)
        self._wake(f"workflow {number} is to be cancelled")
        return list(run.jobs()) if run.owned else []

    def more(self, number: int, seconds: float) -> None:
        """More stages of a run may come for so long from now on (0: these were all). Raises `NotFound`."""
        if number not in self.runs:
            raise NotFound(f"there is no running workflow {number}")
        until = self._clock.now() + seconds if seconds else None
        self.book.save(replace(self.runs[number], open_until=until))
        self._wake(f"workflow {number} was told whether more stages come")

    def held(self, run: WorkflowRun) -> Reason | None:
        """Why the run is left alone for now."""
        return self._holds.of(run)

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """One step of as many runs as each user may have in a pass; the decisions taken."""
        decisions: list[Decision] = []
        self._left = False
        if not self.runs:
            return decisions
        pace = Pace()
        self.carrier.begin_pass()
        now = self._clock.now()
        self._begin(snapshot, now)
        claims = []
        for number in tuple(self.runs):
            await pace.after(_COMPARED)
            if (run := self.runs.get(number)) is not None and self._has_news(run, snapshot, now):
                who = run.uid if run.owned else AGENTS_OWN
                claims.append(LookupClaim(number, who, self._room.measure(run).work))
        chosen, self._left = self._rounds.choose(claims, self.share.work)
        down = frozenset(name for name, node in snapshot.nodes.items() if not node.usable)
        unwritten: StoreError | None = None
        for number in sorted(chosen, key=lambda n: self.runs[n].phase is not RunPhase.CANCELLING):
            await pace.after(1)
            run = self.runs.get(number)
            if run is None:
                continue
            if (held := self.held(run)) is not None:
                self.book.save(replace(run, pauses=begun(run.pauses, now)))
                decisions.append(Decision(Verb.HOLD, subject_of(run), (held,)))
                continue
            if (known := self._stepped.get(number)) is not None:
                known.rest = None  # whatever becomes of this step
            try:
                decisions += self._news(number, await self._step(number, snapshot, down, pace))
            except StoreError as e:
                if run.phase is not RunPhase.CANCELLING:
                    raise  # nothing can be written down, of no workflow: the loop says so
                await self._end_jobs(run, snapshot, down, pace)
                unwritten = e
            except PenstockError as e:
                _log.info("not now", workflow=number, why=str(e))
            except Exception:
                # One bad subject must not keep the others from being served.
                _log.exception("a workflow could not be served", workflow=number)
        if unwritten is not None:
            raise unwritten
        await self._lookups.ask(pace)
        return decisions

    def _begin(self, snapshot: Snapshot, now: float) -> None:
        """Whether all runs are to be stepped over; where that is too much for a pass, in those that follow, too."""
        if lost := self._store.errors != self._failures:  # what was said last may have been lost
            self._failures = self._store.errors
            self._said.clear()
        if lost or snapshot.partitions != self._partitions or not 0 <= now - self._full_since < _FULL:
            self._full_since, self._partitions = now, snapshot.partitions
            self.full_pass()

    def full_pass(self) -> None:
        """At the next look every run is stepped over."""
        for known in self._stepped.values():
            known.rest = None

    async def _end_jobs(self, run: WorkflowRun, snapshot: Snapshot, down: frozenset[str], pace: Pace) -> None:
        """Cancel the jobs of a run of which nothing can be written down."""
        view = await self._views.of(run, snapshot, down)
        for order in (await self._decide(run, view, pace)).instructions:
            if isinstance(order, Cancel):
                await self.carrier.carried_out(run.id, order, snapshot)

    def _has_news(self, run: WorkflowRun, snapshot: Snapshot, now: float) -> bool:
        """Whether a step over this run can come to anything else than the last one did: its jobs stand otherwise, the
        run is not what that step has left, something of it has become due, or what may be done has changed."""
        known = self._stepped.get(run.id)
        if known is None or not known.complete or known.run is not run:
            return True
        if known.pause_state != self._holds.state or known.wake <= now or self._runner.asks(run):
            return True
        if known.look is not snapshot:
            rest = known.rest
            if rest is None or not rest.lasts(snapshot.taken_at, now):
                return True
            if self._views.seen(rest.jobs, snapshot) != rest.seen:
                return True
            known.look = snapshot
        return not self._lookups.rests(run.id, now)

    def _news(self, number: int, decisions: list[Decision]) -> list[Decision]:
        """Those that say something else than the last one of their stage; the store would find that out one by one."""
        said = self._said.setdefault(number, {})
        fresh = []
        for decision in decisions:
            codes = f"{decision.verb} {' '.join(reason.code for reason in decision.reasons)}"
            if said.get(decision.subject) != codes:
                said[decision.subject] = codes
                fresh.append(decision)
        if fresh and (known := self._stepped.get(number)) is not None:
            known.rest = None
        if number not in self.runs:
            del self._said[number]
        return fresh

    def next_wake(self, now: float) -> float | None:
        """When something of a run is due or should end; infinity while runs merely go on."""
        if not self.runs:
            return None
        if self._left or self.carrier.left:
            return now
        last = self._observer.last
        due = math.inf
        for run in self.runs.values():
            if self.held(run) is not None:
                continue
            known = self._stepped.get(run.id)
            if known is not None and known.run is run:
                due = min(due, known.wake)
            elif (instant := self._runner.next_wake(run, now)) is not None:
                due = min(due, instant)
            if last is not None and self._runner.wants_look(run, last.taken_at):
                due = min(due, last.taken_at + self._observer.min_interval)
            if self._runner.asks(run):
                due = min(due, self.carrier.settles_at(run.id, now))
        return max(min(due, self._lookups.due(now)), now)

    async def _step(self, number: int, snapshot: Snapshot, down: frozenset[str], pace: Pace) -> list[Decision]:
        self.steps += 1
        await self.carrier.settle(number)
        run = self.runs[number]
        if run.id in self._taken_over:
            # An agent that was killed right after a submission could not write down why it was made.
            self._explain(run, "taken-over", "was submitted right before the agent restarted")
            self._taken_over.discard(run.id)
        if run.phase.final:  # the agent died between the last step and this
            return [self._finish(number, run.phase.value, run.why or "")]
        decisions: list[Decision] = []
        while number in self.runs:
            made = await self._step_once(number, snapshot, down, pace)
            decisions += made
            # What comes after a job that was just submitted need not wait for a look at it.
            if not any(d.verb is Verb.SUBMIT and d.details.get("job") is not None for d in made):
                break
        return decisions

    async def _step_once(self, number: int, snapshot: Snapshot, down: frozenset[str], pace: Pace) -> list[Decision]:
        run, now = self.runs[number], self._clock.now()
        if lasts(run.pauses):
            run = replace(run, pauses=ended(run.pauses, now))
            self.book.save(run)
        view = await self._views.of(run, snapshot, down)
        step = await self._decide(run, view, pace)
        if self.runs.get(number) is not run:
            return []  # its user has changed it meanwhile, and asked for a pass by that
        self.book.lost += sum(s.job in view.lost and s.phase.live for s in run.stages)
        observed = [order for order in step.instructions if isinstance(order, Observe)]
        if step.run is not run or observed or number in self.book.unwritten:
            # A wait is never learned twice, nor forgotten.
            with self.book.together():
                self.book.save(step.run)
                self._beliefs.learn(observed)
            await pace.after(_SAVED + _SAVED_STAGE * len(step.run.stages))
        self._left |= step.more
        decisions = [Decision(Verb.NOTHING, subject_of(step.run, stage), (reason,)) for stage, reason in step.notes]
        complete = not step.more
        for order in step.instructions:
            if isinstance(order, Finished):
                decisions.append(self._finish(number, "completed" if order.ok else step.run.phase.value, order.why))
            elif isinstance(order, Lookup):
                self._lookups.want(step.run, order.jobs, now)
            elif not isinstance(order, Observe) and number in self.runs:  # it may have become part of another
                decision = await self.carrier.carried_out(number, order, snapshot)
                complete &= decision is not None
                decisions += [] if decision is None else [decision]
        self._lookups.keep_only(number, step.run.discarded)
        if (left := self.runs.get(number)) is not None:
            wake = self._runner.next_wake(left, now)
            wake = math.inf if wake is None else wake
            before = self._stepped.get(number)
            stepped = self._stepped[number] = _Stepped(left, snapshot, self._holds.state, now, wake, complete)
            # What moves along with the clock is not the same at two instants.
            same = left is run and before is not None and before.run is run and before.at < now
            if same and complete and not step.instructions and number not in self.book.unwritten:
                stepped.rest = self._rest(run, view, snapshot, now)
        return decisions

    def _rest(self, run: WorkflowRun, view: SlurmView, snapshot: Snapshot, now: float) -> Resting | None:
        """Of a run that a step has left as it was; none where the look shows others under the numbers of its jobs."""
        jobs = jobs_named(run)
        if any(self._views.rows(job, snapshot) and not view.rows(job) for job in jobs) or view.lost:
            return None
        return resting(run, snapshot.taken_at, now, self._views.seen(jobs, snapshot))

    async def _decide(self, run: WorkflowRun, view: SlurmView, pace: Pace) -> RunStep:
        """The runner's step. Where it asked for an estimate for a job of the agent's own, others are asked what they
        expect, and it steps anew."""
        asked: list[Geometry] = []

        def predict(geometry: Geometry) -> Estimate:
            asked.append(geometry)
            return self._beliefs.predict(geometry)

        step = await pace.walk(self._runner.steps(run, view, self._clock.now(), predict))
        if asked and not run.owned and await self._beliefs.prepare(asked) and self.runs.get(run.id) is run:
            step = await pace.walk(self._runner.steps(run, view, self._clock.now(), self._beliefs.predict))
        return step

    def _explain(self, run: WorkflowRun, code: str, text: str) -> None:
        """Something about each stage that has a job, and of which nothing is known."""
        for stage in run.stages:
            if stage.job is not None and not self._store.decisions.of(subject_of(run, stage.name), limit=1):
                reason = Reason(code, f"job {stage.job} {text}")
                self._store.decisions.record(
                    Decision(Verb.ADOPT, subject_of(run, stage.name), (reason,)), self._clock.now()
                )

    def _finish(self, number: int, code: str, why: str) -> Decision:
        run = self.runs[number]
        if not run.owned:
            self._explain(run, "not-written", "was submitted while reasons could not be written to disk")  # a full disk
        self._gone(number)
        return Decision(Verb.NOTHING, subject_of(run), (Reason(code, why),))

    def _absorbed(self, number: int) -> None:
        self._gone(number, counted=False)

    def _gone(self, number: int, *, counted: bool = True) -> None:
        """The run has ended, as it is now, or (not `counted`) is part of another."""
        run = self.book.finish(number, self._clock.now(), counted=counted)
        self._environments.erase(run)
        self.carrier.forget(run)
        self._lookups.forget(run)
        self._room.forget(number)
        self._stepped.pop(number, None)
