"""Serves all workflows of one agent, whoever submits their jobs: pass after pass each as far as its user's share goes.

What is asked for them comes in at the top (`submit`, `register`, `cancel`, `retry`); `reconcile` has the runner step
over each run of which there is news, keeps what comes of that (`book.py`), and has it carried out (`carrying.py`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.api import Decision, Geometry, Job, Reason, Snapshot, Verb
from penstock.core.executor import Executor
from penstock.core.observe import Observer
from penstock.core.pace import Pace, at_once
from penstock.core.parts import WaitPredictor
from penstock.errors import NotFound, NotNow, NotPermitted, PenstockError, StoreError, UserError
from penstock.future.cluster import Cluster
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.turns import believed
from penstock.host.clock import Clock, Rest
from penstock.host.logins import login
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.state.environments import Environments
from penstock.state.store import Store
from penstock.values.fair import LookupClaim, Rounds, UserShare
from penstock.values.waits import Estimate
from penstock.workflow.documents import run_from_dict
from penstock.workflow.files.checks import check_against, check_units, partitions_of
from penstock.workflow.intervals import begun, ended, lasts
from penstock.workflow.model import Workflow
from penstock.workflow.run.accounting import Accounting
from penstock.workflow.run.book import Book
from penstock.workflow.run.carrying import Carrier, subject_of
from penstock.workflow.run.instructions import Cancel, Finished, Lookup, Observe, RunStep, SlurmView
from penstock.workflow.run.measure import Measure, check_room, measured
from penstock.workflow.run.retrying import retried
from penstock.workflow.run.runner import Runner
from penstock.workflow.run.seen import UNSEEN_TRIES
from penstock.workflow.run.views import Views
from penstock.workflow.state import RunPhase, StageRun, Submitter, WorkflowRun
from penstock.workflow.stored import earlier_runs, read_latest
from penstock.workflow.strategies.cuts import place_units
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import KEEPS_PLACE, BetterCut, Foreseeing, Outlook, Rules
from penstock.workflow.submit.admission import (
    Registration,
    admit,
    plan,
    plan_for_owner,
    planned,
    read_registration,
    settled,
)
from penstock.workflow.submit.chains import begun_because, followed_because, join, read_links
from penstock.workflow.submit.expectations import expected_by
from penstock.workflow.submit.forecast import better_cut

__all__ = ["WorkflowController"]

_log = get_logger(__name__)

# What it costs to write down a run, and each stage of it, as work of a pass (`Pace`).
_SAVED, _SAVED_STAGE = 30, 5
_AGENTS_OWN = -1  # whose share those count for that the agent submits


@dataclass(frozen=True, slots=True)
class _Stepped:
    """What the last step over a run has left, over which look and when. `wake`: when it has something to do without
    news, infinite if never. `complete`: all that there was to do is done."""

    run: WorkflowRun
    look: Snapshot
    pause_state: tuple[object, ...]
    at: float
    wake: float
    complete: bool


class WorkflowController:
    """All workflow runs of one agent. `environments` are those of who submitted them; None: none are kept.

    `prepare` is told of geometries that are about to be predicted; whether somebody has something new to say of them.
    `past` says what is known of the queue's past, by a look at it.
    A pass serves each user as far as `share` allows, and takes the rest up at the next (`values.fair`). `steps`
    counts the runs that were looked through.
    """

    def __init__(
        self,
        backend: Reader,
        observer: Observer,
        executor: Executor,
        store: Store,
        clock: Clock,
        runner: Runner,
        model_store: WaitPredictor,
        wake: Callable[[str], None],
        prepare: Callable[[Collection[Geometry]], Awaitable[bool]],
        rules: Rules,
        core_hour_weight: float = 0.0,
        share: UserShare | None = None,
        environments: Environments | None = None,
        past: Callable[[Snapshot], QueuePast] | None = None,
    ) -> None:
        self._backend = backend
        self._observer = observer
        self._executor = executor
        self._store = store
        self._clock = clock
        self._runner = runner
        self._model_store = model_store
        self._wake = wake
        self._prepare = prepare
        self._rules = rules
        self.core_hour_weight = core_hour_weight
        self._share = share or UserShare()
        self.book = Book(store)
        self.carrier = Carrier(backend, observer.want, executor, clock, runner, self.book, wake, self._share.changes)
        self._environments = environments
        self._past = past
        # Of runs that cannot be read, perhaps of another release: they have not ended.
        live = ((number, state) for number, _uid, state in store.runs(live_only=True))
        self._unreadable = {str(state.get("environment")) for number, state in live if number not in self.runs}
        if environments is not None:
            self.carrier.environment_of = environments.read
        self._sweep()
        self._accounting = Accounting(backend, clock, self._share.lookups)
        self._views = Views(backend, observer, clock, self._accounting)
        # Until when accounting is not asked again for jobs that were given up, by run and job.
        self._sought: dict[int, dict[int, Rest]] = {}
        self._rounds: Rounds[int] = Rounds()
        self._left = False  # the last pass has left something to the next, for want of room
        self._measures: dict[int, tuple[WorkflowRun, Measure]] = {}
        self._stepped: dict[int, _Stepped] = {}
        self._expected: tuple[Snapshot | None, dict[Geometry, float]] = (None, {})
        self._failures = store.errors
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
        return self._share

    @share.setter
    def share(self, share: UserShare) -> None:
        self._share = share
        self.carrier.most, self._accounting.most = share.changes, share.lookups

    # -- what users ask (any time, from the door) ----------------------------------------------------------------------

    async def submit(self, uid: int, workflow: Workflow, strategy: str, environment: str | None = None) -> int:
        """Accept a workflow; the number of its run. `environment` names the one that was left for its jobs. Raises
        `UserError` for what this cluster can never run."""
        snapshot = await self._observer.look()
        if not snapshot.partitions:
            raise NotNow("nothing was submitted, as Slurm does not answer: " + "; ".join(snapshot.problems))
        default = next((p.name for p in snapshot.partitions.values() if p.default), None)
        partition = check_against(workflow, snapshot.partitions, default)
        place = (partitions_of(workflow, partition.name), [workflow.account or ""], [workflow.qos or ""])
        if (refused := self._executor.pause_control.refuses("workflows", os.geteuid(), *place)) is not None:
            raise NotPermitted(f"the agent may not submit this: {refused.text}")
        if any(stage.guessed for stage in workflow.stages):
            workflow = expected_by(workflow, earlier_runs(self._store, uid))
        asked: dict[Geometry, float] = {}
        now, cores = self._clock.now(), [n.cpus for name in partition.nodes if (n := snapshot.nodes.get(name))]
        outlook = Outlook(
            wait=partial(self._expect, asked),
            partition=partition.name,
            qos=workflow.qos or "",
            account=workflow.account or "",
            rules=replace(self._rules, whole_nodes=self._rules.whole_nodes or partition.exclusive),
            max_time=partition.max_time,
            cores=sum(cores) / len(cores) if cores else 1.0,
            core_hour_weight=self.core_hour_weight,
        )
        planner = strategy_named(strategy)
        if isinstance(planner, Foreseeing):
            outlook = replace(outlook, better=await self._better_cut(workflow, snapshot))
        plan = planner.plan(workflow, outlook)
        if asked:  # others may have something to say of these: now with that, for all that is planned at this look
            await self._prepare(tuple(asked))
            plan = planner.plan(workflow, replace(outlook, wait=partial(self._expect, self._expected_at(snapshot))))
        check_units(workflow, place_units(workflow, plan.cut), partition, plan.by or strategy)
        try:
            with self.book.together():
                self._note_rules()
                number = self._store.add_run(uid, {}, now, Submitter.AGENT)
                run = self._runner.start(
                    number,
                    workflow,
                    strategy,
                    now,
                    partition=partition.name,
                    token=_token(),
                    plan=plan,
                    max_time=partition.max_time,
                )
                self.book.save(self._with_environment(run, environment))
                if plan.reasons:
                    self._store.record(Decision(Verb.NOTHING, subject_of(run), plan.reasons), now)
        finally:
            self._sweep()
        self._wake(f"workflow {number} was submitted")
        return number

    def _note_rules(self) -> None:
        """What a plain chain makes of the site, for the report, which is made without an agent."""
        known = json.dumps(self._rules.keeps_place)
        if self._store.fact(KEEPS_PLACE) != known:
            self._store.remember(KEEPS_PLACE, known)

    def _expect(self, known: dict[Geometry, float], geometry: Geometry) -> float:
        """The expected wait (s), each geometry's worked out once."""
        if geometry not in known:
            known[geometry] = self._model_store.expected(geometry)
        return known[geometry]

    def _expected_at(self, snapshot: Snapshot) -> dict[Geometry, float]:
        """The waits that were expected at this look: all that is planned at one look is to go by the same."""
        if self._expected[0] is not snapshot:
            self._expected = snapshot, {}
        return self._expected[1]

    async def _better_cut(self, workflow: Workflow, snapshot: Snapshot) -> BetterCut | None:
        """What forecasts of the queue as it is say against a plain chain. Nothing before the queue has been watched for
        long enough: who comes next must be known before a longer job can be better beyond doubt."""
        past = QueuePast() if self._past is None else self._past(snapshot)
        if not past.hours or len(past.used) < ENOUGH:
            return None
        return await Pace().walk(better_cut(workflow, Cluster.of(believed(snapshot)), past, self._rules))

    def _with_environment(self, run: WorkflowRun, environment: str | None) -> WorkflowRun:
        """The run with the environment that was left for it."""
        if environment is None or self._environments is None:
            return run
        self._environments.take(environment)
        return replace(run, environment=environment)

    def _sweep(self) -> None:
        """Erase the environments of runs that have ended, or of which nothing is known."""
        if self._environments is not None:
            waiting = {str(payload.get("environment")) for _n, _at, _uid, _op, payload in self._store.inbox()}
            live = {run.environment for run in self.runs.values()}
            self._environments.sweep({*live, *waiting, *self._unreadable})

    async def plan(self, uid: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Whether these stages could be registered, and which jobs they come after. Raises what `register` would."""
        self._check_allowed(uid)
        asked = await Pace().walk(read_registration(request, self._clock.now()))
        runs = await Pace().walk(read_latest(self._store, uid, self.runs))
        asked = settled(runs, asked)
        run, before = plan(runs, asked)
        plan_for_owner(asked.strategy, self._rules)
        self._check_room(uid, asked, run)
        return planned(run, before, asked.stages)

    async def register(self, uid: int, request: Mapping[str, Any]) -> int:
        """Take charge of stages whose jobs the user has submitted; the workflow's number.

        Raises UserError, NotFound, NotNow, and NotPermitted for a job that Slurm says is somebody else's. One that the
        last look does not show is believed until the next look, and nothing is done to it before.
        """
        self._check_allowed(uid)
        asked = await Pace().walk(read_registration(request, self._clock.now()))
        self._check_owner(uid, (stage.job for stage in asked.stages))
        if any(stage.job == 0 for stage in asked.stages):
            raise NotFound("stages are registered with their jobs")
        known = await self._latest_of(uid)
        now = self._clock.now()
        run, _before = plan([known[number] for number in sorted(known)], asked)
        made = plan_for_owner(asked.strategy, self._rules)
        self._check_room(uid, asked, run)
        with self.book.together():
            if run is None:
                self._note_rules()
                number = self._store.add_run(uid, {}, now, Submitter.OWNER)
                run = asked.begun(number, uid, login(uid), now, made)
                if made.reasons:
                    self._store.record(Decision(Verb.NOTHING, subject_of(run), made.reasons), now)
            run = admit(run, asked.stages, earlier=[known[n] for n in sorted(known)])
            if asked.more is not None:
                run = replace(run, open_until=now + asked.more if asked.more else None)
            self.book.save(run)
        self._wake(f"workflow {run.id} has new stages")
        self._observer.want()
        return run.id

    async def follow(self, uid: int, request: Mapping[str, Any]) -> int:
        """Follow jobs that the user's own script has submitted behind one another; the number of their workflow.

        Jobs that are known already are left as they are. Raises UserError, NotNow, and NotPermitted for a job that
        Slurm says is somebody else's.
        """
        self._check_allowed(uid)
        links = read_links(request, self._clock.now())
        self._check_owner(uid, (link.job for link in links))
        known = await self._latest_of(uid)
        now, earlier = self._clock.now(), [known[number] for number in sorted(known)]
        found = join(earlier, links)
        if found.run is not None and not found.stages:
            return found.run.id
        more = sum((run.stages for run in found.gone if run.phase.final), ())
        self._check_room(uid, Registration(found.name, "auto", found.stages), found.run, more)
        with self.book.together():
            run, begun = found.run, found.run is None
            if run is None:
                run = found.begun(self._store.add_run(uid, {}, now, Submitter.OWNER), uid, login(uid), now)
            run = admit(run, found.stages, earlier=earlier)
            self.book.save(run)
            for other in found.gone:
                why = f"its jobs are part of workflow {run.id} ({run.name}) now"
                self.book.save(replace(other, stages=(), units=(), phase=RunPhase.COMPLETED, why=why))
                self._gone(other.id, counted=False)
            if begun:
                self._store.record(Decision(Verb.NOTHING, subject_of(run), begun_because()), now)
            for stage in found.stages:
                reasons = followed_because(run, stage, found.gone)
                self._store.record(Decision(Verb.ADOPT, subject_of(run, stage.name), reasons), now)
        self._wake(f"workflow {run.id} has new jobs")
        self._observer.want()
        return run.id

    def _check_owner(self, uid: int, jobs: Iterable[int]) -> None:
        """Raises NotPermitted for a job that the last look shows to be somebody else's."""
        seen = self._observer.last
        for number in jobs:
            job = seen.jobs.get(number) if seen else None
            if job is not None and job.uid != uid:
                raise NotPermitted(f"job {job.id} is not yours")

    async def _latest_of(self, uid: int) -> dict[int, WorkflowRun]:
        """The latest workflows of jobs that this user has submitted, by number. What is planned with these holds until
        something else is done."""
        stored = await Pace().walk(read_latest(self._store, uid, self.runs))
        if any(run.id not in self.runs and not run.phase.final for run in stored):  # it has ended meanwhile
            stored = at_once(read_latest(self._store, uid, self.runs))
        known = {run.id: run for run in stored if run.phase.final}
        return known | {number: run for number, run in self.runs.items() if run.owned and run.uid == uid}

    def _check_room(
        self, uid: int, asked: Registration, run: WorkflowRun | None, reopened: Sequence[StageRun] = ()
    ) -> None:
        """One user's workflows must not fill the agent's memory, nor the state file, nor its time."""
        open_ = [self._measure(other) for other in self.runs.values() if other.owned and other.uid == uid]
        more = [*reopened, *(stage.entry for stage in asked.stages)]
        if run is not None and run.id not in self.runs:  # it goes on with all that it had
            more += [stage for stage in run.stages if stage.name not in {s.name for s in asked.stages}]
        after = sum(len(stage.after) for stage in asked.stages)
        check_room(open_, replace(measured(more), dependencies=after), self._share, fresh=run is None)

    def _measure(self, run: WorkflowRun) -> Measure:
        """Taken anew only of what has changed."""
        known = self._measures.get(run.id)
        if known is None or known[0] is not run:
            known = self._measures[run.id] = run, measured(run.stages)
        return known[1]

    def _check_allowed(self, uid: int) -> None:
        pause_control = self._executor.pause_control
        refused = pause_control.refuses("workflows", uid, strict=False) or pause_control.rehearses(
            uid, "the agent only watches for now, and takes no workflows of other users"
        )
        if refused is not None:
            raise NotPermitted(refused.text, by_setting=True)

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

    def retry(self, number: int, stage: str | None = None, environment: str | None = None) -> None:
        """Run what has not completed of a workflow again; `environment` as for `submit`. Raises `NotFound`, and
        `UserError` while it still runs."""
        run = self.runs.get(number)
        if run is None:
            stored = [state for n, _uid, state in self._store.runs() if n == number]
            if not stored:
                raise NotFound(f"there is no workflow {number}")
            run = run_from_dict(stored[0])
        if run.owned:
            raise UserError(f"only {run.user} can retry workflow {number}: run `penstock retry {number}` as {run.user}")
        made = retried(run, stage, token=_token(), now=self._clock.now())
        self.book.save(self._with_environment(made, environment))
        self._wake(f"workflow {number} is to be retried")

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """One step of as many runs as each user may have in a pass; the decisions taken."""
        decisions: list[Decision] = []
        self._left = False
        if not self.runs:
            return decisions
        pace = Pace()
        self.carrier.begin_pass()
        if self._store.errors != self._failures:  # what was said last may have been lost
            self._failures = self._store.errors
            self._said.clear()
        now = self._clock.now()
        claims = [
            LookupClaim(number, run.uid if run.owned else _AGENTS_OWN, self._measure(run).work)
            for number, run in self.runs.items()
            if self._has_news(run, snapshot, now)
        ]
        await pace.after(len(self.runs))
        chosen, self._left = self._rounds.choose(claims, self._share.work)
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
        await self._look_up(pace)
        return decisions

    async def _end_jobs(self, run: WorkflowRun, snapshot: Snapshot, down: frozenset[str], pace: Pace) -> None:
        """Cancel the jobs of a run of which nothing can be written down."""
        view = await self._views.of(run, snapshot, down)
        for order in (await self._decide(run, view, pace)).instructions:
            if isinstance(order, Cancel):
                await self.carrier.carried_out(run.id, order, snapshot)

    def _has_news(self, run: WorkflowRun, snapshot: Snapshot, now: float) -> bool:
        """Whether a step over this run can come to anything else than the last one did: the look is another one, the
        run is not what that step has left, something of it has become due, or what may be done has changed."""
        known = self._stepped.get(run.id)
        if known is None or not known.complete or known.run is not run or known.look is not snapshot:
            return True
        if known.pause_state != self._pause_state() or known.wake <= now or self._runner.asks(run):
            return True
        return not all(rest.lasts(now) for rest in self._sought.get(run.id, {}).values())

    def _pause_state(self) -> tuple[object, ...]:
        pause_control = self._executor.pause_control
        return pause_control.pauses, pause_control.rules, pause_control.dry_run, pause_control.off

    def _news(self, number: int, decisions: list[Decision]) -> list[Decision]:
        """Those that say something else than the last one of their stage; the store would find that out one by one."""
        said = self._said.setdefault(number, {})
        fresh = []
        for decision in decisions:
            codes = f"{decision.verb} {' '.join(reason.code for reason in decision.reasons)}"
            if said.get(decision.subject) != codes:
                said[decision.subject] = codes
                fresh.append(decision)
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
        if (asks := self._accounting.due(now)) is not None:
            due = min(due, asks)
        for sought in self._sought.values():
            due = min([due, *(rest.end(now) for rest in sought.values())])
        return max(due, now)

    def held(self, run: WorkflowRun) -> Reason | None:
        """Why the run is left alone for now."""
        pause_control, seen = self._executor.pause_control, self._observer.last.jobs if self._observer.last else {}
        if run.phase is RunPhase.CANCELLING:
            return None  # what it has in the queue is taken away
        if run.owned:
            return self._held_of_owner(run, seen)
        if pause_control.off is not None and run.phase is RunPhase.FAILING:
            return None
        # What the workflow does not name was Slurm's choice.
        flow, jobs = run.workflow, [seen[i] for i in run.jobs() if i in seen]
        accounts = [flow.account] if flow.account else [job.account for job in jobs]
        qos = [flow.qos] if flow.qos else [job.qos for job in jobs]
        return pause_control.on("workflows", os.geteuid(), run.partitions, accounts, qos)

    def _held_of_owner(self, run: WorkflowRun, seen: Mapping[int, Job]) -> Reason | None:
        """One of its jobs is to be left alone."""
        pause_control = self._executor.pause_control
        paused = pause_control.paused("workflows", run.uid, [stage.mine.partition for stage in run.stages])
        paused = paused or pause_control.rehearses(run.uid, "nothing is done to its jobs")
        if paused is not None or pause_control.rules is None:
            return paused
        for stage in run.stages:
            job = seen.get(stage.job or 0)
            if job is None and stage.phase.final:
                continue
            place = stage.mine if job is None else job
            where = ([place.partition], [place.account], [place.qos])
            # What is not known of a job that was never seen is not held against it: nothing is done to it.
            if (refused := pause_control.refuses("workflows", run.uid, *where, strict=job is not None)) is not None:
                return refused
        return None

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
                for one in observed:
                    self._model_store.observe(one.geometry, one.observation, one.estimate)
            await pace.after(_SAVED + _SAVED_STAGE * len(step.run.stages))
        self._left |= step.more
        decisions = [Decision(Verb.NOTHING, subject_of(step.run, stage), (reason,)) for stage, reason in step.notes]
        complete = not step.more
        for order in step.instructions:
            if isinstance(order, Finished):
                decisions.append(self._finish(number, "completed" if order.ok else step.run.phase.value, order.why))
            elif isinstance(order, Lookup):
                self._want(step.run, order.jobs, now)
            elif not isinstance(order, Observe) and number in self.runs:  # it may have become part of another
                decision = await self.carrier.carried_out(number, order, snapshot)
                complete &= decision is not None
                decisions += [] if decision is None else [decision]
        if number in self._sought:
            self._sought[number] = {j: r for j, r in self._sought[number].items() if j in step.run.discarded}
        if (left := self.runs.get(number)) is not None:
            wake = self._runner.next_wake(left, now)
            wake = math.inf if wake is None else wake
            self._stepped[number] = _Stepped(left, snapshot, self._pause_state(), now, wake, complete)
        return decisions

    async def _decide(self, run: WorkflowRun, view: SlurmView, pace: Pace) -> RunStep:
        """The runner's step. Where it asked for an estimate for a job of the agent's own, others are asked what they
        expect, and it steps anew."""
        asked: list[Geometry] = []

        def predict(geometry: Geometry) -> Estimate:
            asked.append(geometry)
            return self._model_store.predict(geometry)

        step = await pace.walk(self._runner.steps(run, view, self._clock.now(), predict))
        if asked and not run.owned and await self._prepare(asked) and self.runs.get(run.id) is run:
            step = await pace.walk(self._runner.steps(run, view, self._clock.now(), self._model_store.predict))
        return step

    def _explain(self, run: WorkflowRun, code: str, text: str) -> None:
        """Something about each stage that has a job, and of which nothing is known."""
        for stage in run.stages:
            if stage.job is not None and not self._store.decisions(subject_of(run, stage.name), limit=1):
                reason = Reason(code, f"job {stage.job} {text}")
                self._store.record(Decision(Verb.ADOPT, subject_of(run, stage.name), (reason,)), self._clock.now())

    # -- accounting ----------------------------------------------------------------------------------------------------

    def _want(self, run: WorkflowRun, jobs: Iterable[int], now: float) -> None:
        """These jobs left the queue: accounting is asked at growing intervals, since it may lag."""
        asked = {stage.job: stage.asked_at or 0.0 for stage in run.stages}
        wanted = {}
        for job in jobs:
            if job in asked:
                wanted[job] = asked[job]
            elif not (rest := self._sought.get(run.id, {}).get(job, Rest())).lasts(now):
                self._sought.setdefault(run.id, {})[job] = rest.longer(now, 0.5)
                wanted[job] = 0.0
        if wanted:
            self._accounting.want(run.uid if run.owned else _AGENTS_OWN, wanted)

    async def _look_up(self, pace: Pace) -> None:
        """One question for all users' jobs; how often it was put is kept with each stage."""
        asked = frozenset(await self._accounting.ask())
        if not asked:
            return
        now, known = self._clock.now(), self._accounting.records
        ended = {job for job in asked if job in known and known[job].state.ended}
        enough = False  # now that nobody knows one of them a pass can conclude something
        missing: set[tuple[int, str, float | None]] = set()
        for number, run in list(self.runs.items()):
            await pace.after(len(run.stages))
            if self.runs.get(number) is not run or asked.isdisjoint(run.jobs()):
                continue  # one that its user has changed meanwhile is asked for once more
            stages = tuple(
                replace(s, asked=s.asked + 1, asked_at=now) if s.job in asked and not s.phase.final else s
                for s in run.stages
            )
            unknown = [s for s in stages if s.asked >= UNSEEN_TRIES and s.job in asked and s.job not in known]
            enough |= any(s.asked == UNSEEN_TRIES for s in unknown)
            missing |= {(s.job, s.called, s.born) for s in unknown if s.job is not None}
            self.book.save(replace(run, stages=stages))
        enough |= await self._views.lost_in_a_crash(missing)
        if ended or enough:
            self._wake("accounting answered")

    def _finish(self, number: int, code: str, why: str) -> Decision:
        run = self.runs[number]
        if not run.owned:
            self._explain(run, "not-written", "was submitted while reasons could not be written to disk")  # a full disk
        self._gone(number)
        return Decision(Verb.NOTHING, subject_of(run), (Reason(code, why),))

    def _gone(self, number: int, *, counted: bool = True) -> None:
        """The run has ended, as it is now, or (not `counted`) is part of another."""
        run = self.book.finish(number, self._clock.now(), counted=counted)
        if self._environments is not None:
            with contextlib.suppress(OSError):  # the next sweep tries again
                self._environments.erase(run.environment)
        self.carrier.forget(run)
        jobs = [job for job in (*run.discarded, *(stage.job for stage in run.stages)) if job is not None]
        self._accounting.forget(jobs)
        for known in (self._sought, self._measures, self._stepped):
            known.pop(number, None)


def _token() -> str:
    return secrets.token_hex(3)
