"""Carries out what the workflow runner asks for, and keeps every run's state in the store before and after.

A submission is journaled as INTENDED before sbatch is called; whatever is still INTENDED at the next pass (the agent
was killed, or the answer was lost) is looked for by its unique name before it is ever sent again.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import replace
from types import MappingProxyType

import structlog

from penstock.api import AccountingRecord, Decision, Geometry, Reason, Snapshot, Verb
from penstock.clock import Clock, Rest
from penstock.errors import (
    Infeasible,
    NotFound,
    NotNow,
    NotPermitted,
    OutcomeUnknown,
    PenstockError,
    StoreError,
    UserError,
)
from penstock.executor import Concern, Executor
from penstock.fair import Claim, Rounds, Share, work_of
from penstock.observe import Observer
from penstock.pace import Pace
from penstock.second_look import SecondLook
from penstock.slurm.base import Reader
from penstock.store import Store
from penstock.waits.base import Estimate
from penstock.waits.causes import hindrance
from penstock.waits.shelf import Shelf
from penstock.workflow.checks import check_against, check_units
from penstock.workflow.cuts import place_units
from penstock.workflow.expectations import expected_by
from penstock.workflow.instructions import (
    Cancel,
    Change,
    Finished,
    Instruction,
    Lookup,
    Observe,
    Step,
    Submit,
    VerifyAndRelease,
    View,
)
from penstock.workflow.model import Workflow
from penstock.workflow.reading import names_parent
from penstock.workflow.registry import strategy_named
from penstock.workflow.retrying import retried
from penstock.workflow.runner import Runner
from penstock.workflow.state import RunPhase, WorkflowRun, run_from_dict, run_to_dict
from penstock.workflow.strategy import Outlook, Rules

__all__ = ["WorkflowController"]

_log = structlog.get_logger(__name__)

# Of so many earlier runs the run times are learned.
_EARLIER_RUNS = 200
_PARTS = 10  # how much longer it takes to look through a stage here than it does `penstock.guided`


class WorkflowController:
    """All workflow runs of one agent. `environment` is added to every stage's job (it tells MPI jobs the agent).

    `prepare` is told of geometries that are about to be predicted; whether somebody has something new to say of them.
    For the metrics, since the start: `finished` counts runs by how they ended, `misses` starts that were too early and
    that the guard in the job's script took back.
    """

    def __init__(
        self,
        backend: Reader,
        observer: Observer,
        executor: Executor,
        store: Store,
        clock: Clock,
        runner: Runner,
        shelf: Shelf,
        wake: Callable[[str], None],
        prepare: Callable[[Collection[Geometry]], Awaitable[bool]],
        rules: Rules,
        core_hour_weight: float = 0.0,
        share: Share | None = None,
    ) -> None:
        self._backend = backend
        self._observer = observer
        self._second_look = SecondLook(observer)
        self._executor = executor
        self._store = store
        self._clock = clock
        self._runner = runner
        self._shelf = shelf
        self._wake = wake
        self._prepare = prepare
        self._rules = rules
        self.core_hour_weight = core_hour_weight
        self._records: dict[int, AccountingRecord] = {}
        # Until when unanswered submissions are not looked for again, by run; until when accounting is not asked again.
        self._recoveries: dict[int, Rest] = {}
        self._lookups: dict[int, Rest] = {}
        self.share = share or Share()
        self._rounds: Rounds[int] = Rounds()
        self._left = False  # the last pass has left something to the next, for want of room
        # What the last step over a run has left, over which look, and when.
        self._stepped: dict[int, tuple[WorkflowRun, Snapshot, float]] = {}
        self.steps = 0
        self.environment: dict[str, str] = {}
        self._cancelled_at: dict[int, float] = {}
        self.finished: Counter[str] = Counter()
        self.misses = 0
        # Called with a run as it was (None: not known) and as it is, in the transaction that saves it.
        self.on_change: Callable[[WorkflowRun | None, WorkflowRun], None] = lambda _before, _after: None
        self.runs: dict[int, WorkflowRun] = {}
        for number, _uid, state in store.runs(live_only=True):
            try:
                self.runs[number] = run_from_dict(state)
            except (KeyError, TypeError, ValueError):
                _log.exception("a stored workflow cannot be read; its jobs are left alone", workflow=number)
        self._taken_over = set(self.runs)

    # -- what users ask (any time, from the door) ----------------------------------------------------------------------

    async def submit(self, uid: int, workflow: Workflow, strategy: str) -> int:
        """Accept a workflow; the number of its run. Raises `UserError` for what this cluster can never run."""
        snapshot = await self._observer.look()
        if not snapshot.partitions:
            raise NotNow("Slurm does not answer; nothing was submitted: " + "; ".join(snapshot.problems))
        default = next((p.name for p in snapshot.partitions.values() if p.default), None)
        partition = check_against(workflow, snapshot.partitions, default)
        place = ([partition.name], [workflow.account or ""], [workflow.qos or ""])
        if (refused := self._executor.brake.refuses("workflows", os.geteuid(), *place)) is not None:
            raise NotPermitted(f"the agent may not submit this: {refused.text}")
        if any(stage.guessed for stage in workflow.stages):
            workflow = expected_by(workflow, self._earlier(uid))
        now, cores = self._clock.now(), [n.cpus for name in partition.nodes if (n := snapshot.nodes.get(name))]
        outlook = Outlook(
            wait=lambda geometry: self._shelf.predict(geometry).seconds,
            partition=partition.name,
            qos=workflow.qos or "",
            account=workflow.account or "",
            rules=self._rules,
            max_time=partition.max_time,
            cores=sum(cores) / len(cores) if cores else 1.0,
            core_hour_weight=self.core_hour_weight,
        )
        plan = strategy_named(strategy).plan(workflow, outlook)
        check_units(workflow, place_units(workflow, plan.cut), partition, strategy)
        with self._kept():
            number = self._store.add_run(uid, {}, now)
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
            self._save(run)
            if plan.reasons:
                self._store.record(Decision(Verb.NOTHING, _subject(run), plan.reasons), now)
        self._wake(f"workflow {number} was submitted")
        return number

    def _earlier(self, uid: int) -> Iterator[WorkflowRun]:
        """The user's latest runs, oldest first."""
        for _number, owner, state in self._store.runs(limit=_EARLIER_RUNS):
            if owner == uid and state:
                with contextlib.suppress(KeyError, TypeError, ValueError, UserError):  # of another release
                    yield run_from_dict(state)

    def cancel(self, number: int, why: str) -> None:
        """End a run: its jobs are cancelled in the coming passes. Raises `NotFound`."""
        if number not in self.runs:
            raise NotFound(f"no running workflow {number}")
        self._save(self._runner.cancel(self.runs[number], why))
        self._wake(f"workflow {number} is to be cancelled")

    def retry(self, number: int, stage: str | None = None) -> None:
        """Run what has not completed of a workflow again. Raises `NotFound`, and `UserError` while it still runs."""
        run = self.runs.get(number)
        if run is None:
            stored = [state for n, _uid, state in self._store.runs() if n == number]
            if not stored:
                raise NotFound(f"there is no workflow {number}")
            run = run_from_dict(stored[0])
        self._save(retried(run, stage, token=_token()))
        self._wake(f"workflow {number} is to be retried")

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """One step of every run, as far as a pass goes; the decisions taken."""
        decisions: list[Decision] = []
        down = frozenset(name for name, node in snapshot.nodes.items() if not node.usable)
        pace = Pace()
        for number, work in self._chosen(snapshot).items():
            await pace.after(_PARTS * work)
            if (run := self.runs.get(number)) is None:
                continue
            if (held := self.held(run)) is not None:
                decisions.append(Decision(Verb.HOLD, _subject(run), (held,)))
                continue
            try:
                decisions.extend(await self._step(number, snapshot, down))
                if number in self.runs:
                    self._stepped[number] = self.runs[number], snapshot, self._clock.now()
            except StoreError:
                raise  # nothing can be written down, of no workflow: the loop says so
            except PenstockError as e:
                _log.info("not now", workflow=number, why=str(e))
            except Exception:
                # One bad subject must not keep the others from being served.
                _log.exception("a workflow could not be served", workflow=number)
        return decisions

    def _chosen(self, snapshot: Snapshot) -> dict[int, int]:
        """The runs that this pass looks through, with what each costs: all of them, if they are no more than a pass of
        one user goes through; they are all of one."""
        costs = {
            number: work_of(len(run.stages), sum(len(s.after) for s in run.stages)) for number, run in self.runs.items()
        }
        now, many = self._clock.now(), sum(costs.values()) > self.share.work
        claims = [
            Claim(number, 0, costs[number], needed=not many or self._has_news(run, snapshot, now))
            for number, run in self.runs.items()
        ]
        chosen, self._left = self._rounds.choose(claims, self.share.work)
        return {number: costs[number] for number in chosen}

    def _has_news(self, run: WorkflowRun, snapshot: Snapshot, now: float) -> bool:
        """Whether there is anything new for a step over this run since the last one."""
        left, look, at = self._stepped.get(run.id, (None, None, 0.0))
        return left is not run or look is not snapshot or any(t <= now for t in self._instants(run, at))

    def _instants(self, run: WorkflowRun, now: float) -> list[float]:
        """When something of a run is due or should end, after now."""
        due = self._runner.next_wake(run, now)
        return [*_expected(run, now), *([] if due is None else [due])]

    def next_wake(self, now: float) -> float | None:
        """The next instant at which a stage is due or expected to end; infinity while runs merely go on."""
        if not self.runs:
            return None
        if self._left:
            return now
        last = self._observer.last
        due = math.inf
        for run in self.runs.values():
            if self.held(run) is not None:
                continue
            instants = self._instants(run, now)
            if last is not None and self._runner.wants_look(run, last.taken_at):
                instants.append(last.taken_at + self._observer.min_interval)
            if self._runner.intended(run):
                instants.append(max(now + 1.0, self._recoveries.get(run.id, Rest()).end(now)))
            if run.id in self._lookups:
                instants.append(self._lookups[run.id].end(now))
            due = min([due, *instants])
        return max(due, now)

    def held(self, run: WorkflowRun) -> Reason | None:
        """Why the run is left alone for now."""
        off = self._executor.brake.off
        if run.phase is RunPhase.CANCELLING or (off is not None and run.phase is RunPhase.FAILING):
            return None  # what it has in the queue is taken away
        # What the workflow does not name was Slurm's choice.
        seen, flow = self._observer.last, run.workflow
        jobs = [seen.jobs[i] for i in run.jobs() if i in seen.jobs] if seen else []
        accounts = [flow.account] if flow.account else [job.account for job in jobs]
        qos = [flow.qos] if flow.qos else [job.qos for job in jobs]
        return self._executor.brake.on("workflows", os.geteuid(), [run.partition], accounts, qos)

    async def _step(self, number: int, snapshot: Snapshot, down: frozenset[str]) -> list[Decision]:
        self.steps += 1
        await self._recover(number)
        run = self.runs[number]
        self._explain_taken_over(run)
        if run.phase.final:  # the agent died between the last step and this
            return [self._finish(number, run.phase.value, run.why or "")]
        watched = self._watched(run)
        jobs = {i: snapshot.jobs[i] for i in watched if i in snapshot.jobs}
        records = {i: self._records[i] for i in watched if i in self._records and i not in jobs}
        hindered = {i: cause for i, job in jobs.items() if (cause := hindrance(job, snapshot.nodes)) is not None}
        view = View(
            snapshot.taken_at,
            jobs,
            MappingProxyType(records),
            usable=snapshot.usable,
            hindered=MappingProxyType(hindered),
            reservations=snapshot.reservations,
            partitions=snapshot.partitions,
            down=down,
        )
        step = await self._decide(number, view)
        decisions = [Decision(Verb.NOTHING, _subject(run, stage), (reason,)) for stage, reason in step.notes]
        self._learn(step.run, step.instructions)
        if not any(isinstance(i, Lookup) for i in step.instructions):
            self._lookups.pop(number, None)
        return decisions + await self.carry_out(number, step.instructions, snapshot)

    async def _decide(self, number: int, view: View) -> Step:
        """The runner's step. Where it asked for an estimate, others are asked what they expect, and it steps anew."""
        asked: list[Geometry] = []

        def predict(geometry: Geometry) -> Estimate:
            asked.append(geometry)
            return self._shelf.predict(geometry)

        step = self._runner.step(self.runs[number], view, self._clock.now(), predict)
        if asked and await self._prepare(asked):
            # The user may have cancelled the run meanwhile, so the state of before is old.
            step = self._runner.step(self.runs[number], view, self._clock.now(), self._shelf.predict)
        return step

    def _explain_taken_over(self, run: WorkflowRun) -> None:
        """An agent that was killed right after a submission could not write down why it was made."""
        if run.id in self._taken_over:
            self._explain(run, "taken-over", "was submitted right before the agent was started anew")
            self._taken_over.discard(run.id)

    def _explain(self, run: WorkflowRun, code: str, text: str) -> None:
        """Something about each stage that has a job, and of which nothing is known."""
        for stage in run.stages:
            if stage.job is not None and not self._store.decisions(_subject(run, stage.name), limit=1):
                reason = Reason(code, f"job {stage.job} {text}")
                self._store.record(Decision(Verb.ADOPT, _subject(run, stage.name), (reason,)), self._clock.now())

    def _watched(self, run: WorkflowRun) -> Collection[int]:
        return {*run.jobs(), *(s.job for s in run.stages if s.job is not None)}

    def _learn(self, run: WorkflowRun, instructions: Collection[Instruction]) -> None:
        """Store the new state and what was learned together: a wait is never learned twice, nor forgotten."""
        if self.runs.get(run.id) == run and not any(isinstance(i, Observe) for i in instructions):
            return
        with self._kept():
            self._save(run)
            for instruction in instructions:
                if isinstance(instruction, Observe):
                    self._shelf.observe(instruction.geometry, instruction.observation, instruction.estimate)

    async def settle(self, number: int) -> None:
        """Find out what became of submissions without an answer, although the run is left alone."""
        await self._recover(number)

    async def carry_out(self, number: int, instructions: Collection[Instruction], snapshot: Snapshot) -> list[Decision]:
        """What comes of these. Stages are side by side: what one cannot do now keeps no other back."""
        decisions = []
        for instruction in instructions:
            try:
                if (decision := await self._carry_out(number, instruction, snapshot)) is not None:
                    decisions.append(decision)
            except StoreError:
                raise
            except PenstockError as e:
                _log.info("not now", workflow=number, why=str(e))
        return decisions

    async def _carry_out(self, number: int, instruction: Instruction, snapshot: Snapshot) -> Decision | None:
        match instruction:
            case Submit(stage=stage, reasons=reasons):
                await self._submit(number, instruction)
                return Decision(Verb.SUBMIT, _subject(self.runs[number], stage), reasons, self._figures(number, stage))
            case VerifyAndRelease(stage=stage, reasons=reasons):
                if not await self._release(number, instruction, snapshot):
                    return None
                return Decision(Verb.RELEASE, _subject(self.runs[number], stage), reasons)
            case Change(stage=stage, reasons=reasons):
                if not await self._change(number, instruction, snapshot):
                    return None
                return Decision(Verb.CHANGE, _subject(self.runs[number], stage), reasons)
            case Cancel(stage=stage, job=job, reasons=reasons):
                subject = _subject(self.runs[number], stage)
                # Once per picture: until the next one the job is seen alive although it is being cancelled.
                if self._executor.ready(subject) and self._cancelled_at.get(job, -math.inf) < snapshot.taken_at:
                    await self._executor.cancel(job, subject, self._concern(number))
                    self._cancelled_at[job] = self._clock.now()
                    self._observer.want()
                return Decision(Verb.CANCEL, subject, reasons)
            case Lookup(jobs=jobs):
                await self._look_up(number, jobs)
            case Finished(ok=ok, why=why):
                return self._finish(number, "completed" if ok else "failed", why)
            case Observe():
                pass
        return None

    def _finish(self, number: int, code: str, why: str) -> Decision:
        run = self.runs[number]
        self._explain(run, "not-written", "was submitted while the reason could not be written down")  # a full disk
        self._store.save_run(number, run_to_dict(run), finished=self._clock.now())
        del self.runs[number]
        self.finished[run.phase.value] += 1
        for job in self._watched(run):
            self._records.pop(job, None)
            self._cancelled_at.pop(job, None)
        for waiting in (self._lookups, self._recoveries, self._stepped):
            waiting.pop(number, None)
        return Decision(Verb.NOTHING, _subject(run), (Reason(code, why),))

    def _figures(self, number: int, stage: str) -> dict[str, str | int | float | None]:
        entry = self.runs[number].stage(stage)
        return {"job": entry.job, "estimate": entry.estimate, "parent_end": entry.parent_end, "due": entry.due}

    async def _submit(self, number: int, order: Submit) -> None:
        run, now = self.runs[number], self._clock.now()
        subject = _subject(run, order.stage)
        if not self._executor.ready(subject):
            self._save(self._runner.submit_failed(run, order.stage, False, "backing off", now))
            return
        spec = replace(order.spec, environment=MappingProxyType({**self.environment, **order.spec.environment}))
        try:
            job = await self._executor.act(
                "submit",
                subject,
                {"name": spec.name, "nodes": spec.nodes},
                lambda slurm: slurm.submit(spec),
                self._concern(number),
            )
        except OutcomeUnknown:
            self._save(self._runner.unseen(self.runs[number], order.stage, self._clock.now()))
            return
        except PenstockError as e:
            failed: PenstockError | None = e
        else:
            failed = None
        # The user may have cancelled the run while sbatch was answering, so the state of before is old.
        run, now = self.runs[number], self._clock.now()
        if failed is None:
            self._save(self._runner.submitted(run, order.stage, job, now))
        else:
            final = isinstance(failed, Infeasible | NotPermitted)
            self._save(self._runner.submit_failed(run, order.stage, final, str(failed), now))

    async def _recover(self, number: int) -> None:
        """Settle what is INTENDED: find it by name, or conclude after a while that it was never sent."""
        rest = self._recoveries.get(number, Rest())
        orders = self._runner.intended(self.runs[number])
        if not orders:
            self._recoveries.pop(number, None)
            return
        if rest.lasts(now := self._clock.now()):
            return
        self._recoveries[number] = rest.longer(now, 1.0)
        for order in orders:
            found = list(await self._backend.find(order.spec.name))
            if not found:
                since = self.runs[number].submitted_at - 60
                found = [r.id for r in await self._backend.history(name=order.spec.name, since=since)]
            run, now = self.runs[number], self._clock.now()
            if found:
                for job in found:
                    run = self._runner.submitted(run, order.stage, job, now)
                reason = Reason("found", f"job {found[0]} was submitted before the answer was lost")
                self._store.record(Decision(Verb.ADOPT, _subject(run, order.stage), (reason,)), now)
            else:
                run = self._runner.unseen(run, order.stage, now)
            self._save(run)

    async def _release(self, number: int, order: VerifyAndRelease, snapshot: Snapshot) -> bool:
        subject = _subject(self.runs[number], order.stage)
        if not self._executor.ready(subject):
            return False
        job = snapshot.jobs.get(order.job)
        if job is None or not all(names_parent(job.dependency, parent) for parent in order.parents):
            return False
        if not await self._confirmed(order.job, snapshot):
            return False
        await self._executor.act(
            "release",
            subject,
            {"job": order.job},
            lambda slurm: slurm.release(order.job),
            self._concern(number, order.job),
        )
        self._save(self._runner.released(self.runs[number], order.stage, self._clock.now()))
        return True

    async def _confirmed(self, job: int, snapshot: Snapshot) -> bool:
        """Whether the job is right before the act as it was when that was decided on."""
        if await self._second_look.confirms(job, snapshot):
            return True
        self._wake(f"job {job} is decided anew")
        return False

    async def _change(self, number: int, order: Change, snapshot: Snapshot) -> bool:
        subject = _subject(self.runs[number], order.stage)
        if not self._executor.ready(subject) or not await self._confirmed(order.job, snapshot):
            return False
        payload = {"job": order.job, "dependency": order.dependency, "nodes": ",".join(order.pins)}
        await self._executor.act(
            "change",
            subject,
            payload,
            lambda slurm: slurm.update(order.job, dependency=order.dependency, nodelist=order.nodelist),
            self._concern(number, order.job),
        )
        self._save(self._runner.changed(self.runs[number], order, self._clock.now()))
        return True

    def _concern(self, number: int, job: int | None = None) -> Concern:
        run = self.runs[number]
        flow = run.workflow
        place = ((run.partition,), (flow.account or "",), (flow.qos or "",))
        # While all is off nothing is submitted, but what was is tied so that it may stay there without an agent.
        handing_back = job is not None and self._executor.brake.off is not None
        return Concern("workflows", os.geteuid(), job, *place, run.phase is RunPhase.CANCELLING or handing_back)

    async def _look_up(self, number: int, jobs: Collection[int]) -> None:
        """Accounting for jobs that left the queue; asked at growing intervals, since it may lag."""
        now = self._clock.now()
        rest = self._lookups.get(number, Rest())
        if rest.lasts(now):
            return
        self._lookups[number] = rest.longer(now, 0.5)
        for record in await self._backend.history(ids=jobs):
            self._records[record.id] = record
        if all(i in self._records and self._records[i].state.ended for i in jobs):
            self._wake("accounting answered")

    def _save(self, run: WorkflowRun) -> None:
        """On the disk first: what is known here alone would be acted on, and forgotten when the agent dies."""
        before = self.runs.get(run.id)
        if before != run:
            self._store.save_run(run.id, run_to_dict(run))
            if before is not None:
                self.misses += max(0, _misses(run) - _misses(before))
            self.runs[run.id] = run
            self.on_change(before, run)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """What is saved inside holds if all of it became durable; else all is as before."""
        before, misses = dict(self.runs), self.misses
        try:
            with self._store.together():
                yield
        except BaseException:
            self.runs, self.misses = before, misses
            raise


def _expected(run: WorkflowRun, now: float) -> list[float]:
    """When running stages should end, so that their end is seen soon: the next stage may wait for it."""
    pairs = zip(run.stages, run.units, strict=True)
    ends = (s.start + unit.run_time + 1.0 for s, unit in pairs if s.phase.live and s.start is not None)
    return [t for t in ends if t > now]


def _token() -> str:
    return secrets.token_hex(3)


def _misses(run: WorkflowRun) -> int:
    return sum(stage.misses for stage in run.stages)


def _subject(run: WorkflowRun, stage: str = "") -> str:
    return f"workflow {run.id}/{stage}" if stage else f"workflow {run.id}"
