"""Carries out what the workflow runner asks for, and keeps every run's state in the store before and after.

A submission is journaled as INTENDED before sbatch is called; whatever is still INTENDED at the next pass (the agent
was killed, or the answer was lost) is looked for by its unique name before it is ever sent again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from types import MappingProxyType

import structlog

from penstock.api import AccountingRecord, Decision, Geometry, Reason, Snapshot, Verb
from penstock.clock import Clock
from penstock.errors import Infeasible, NotFound, NotNow, OutcomeUnknown, UserError
from penstock.executor import Executor
from penstock.observe import Observer
from penstock.slurm.base import Backend
from penstock.store import Store
from penstock.waits.base import Estimate
from penstock.waits.shelf import Shelf
from penstock.workflow.checks import check_against
from penstock.workflow.instructions import (
    Cancel,
    Finished,
    Instruction,
    Lookup,
    Observe,
    Submit,
    VerifyAndRelease,
    View,
)
from penstock.workflow.model import Workflow
from penstock.workflow.reading import names_parent
from penstock.workflow.runner import Runner
from penstock.workflow.state import WorkflowRun, run_from_dict, run_to_dict

__all__ = ["WorkflowController"]

_log = structlog.get_logger(__name__)

# How long a submission whose answer was lost may take to show up in the queue before it is sent again.
_SETTLE = 15.0


class WorkflowController:
    """All workflow runs of one agent. `environment` is added to every stage's job (it tells MPI jobs the agent)."""

    def __init__(
        self,
        backend: Backend,
        observer: Observer,
        executor: Executor,
        store: Store,
        clock: Clock,
        runner: Runner,
        shelf: Shelf,
        wake: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._observer = observer
        self._executor = executor
        self._store = store
        self._clock = clock
        self._runner = runner
        self._shelf = shelf
        self._wake = wake
        self._records: dict[int, AccountingRecord] = {}
        self._not_before: dict[int, float] = {}
        self._lookups: dict[int, tuple[int, float]] = {}
        self.environment: dict[str, str] = {}
        self.runs: dict[int, WorkflowRun] = {
            number: run_from_dict(state) for number, _uid, state in store.runs(live_only=True)
        }

    # -- what users ask (any time, from the door) ----------------------------------------------------------------------

    async def submit(self, uid: int, workflow: Workflow, strategy: str) -> int:
        """Accept a workflow; the number of its run. Raises `UserError` for what this cluster can never run."""
        snapshot = await self._observer.look()
        if not snapshot.partitions:
            raise NotNow("Slurm does not answer; nothing was submitted: " + "; ".join(snapshot.problems))
        default = next((p.name for p in snapshot.partitions.values() if p.default), None)
        check_against(workflow, snapshot.partitions, default, strategy)
        now = self._clock.now()
        partition = workflow.partition or default or ""
        number = self._store.add_run(uid, {}, now)
        try:
            run = self._runner.start(number, workflow, strategy, now, partition=partition, token=secrets.token_hex(3))
        except UserError:
            self._store.drop_run(number)
            raise
        self._save(run)
        self._wake(f"workflow {number} was submitted")
        return number

    def cancel(self, number: int, why: str) -> None:
        """End a run: its jobs are cancelled in the coming passes. Raises `NotFound`."""
        if number not in self.runs:
            raise NotFound(f"no running workflow {number}")
        self._save(self._runner.cancel(self.runs[number], why))
        self._wake(f"workflow {number} is to be cancelled")

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """One step of every run; the decisions taken."""
        decisions: list[Decision] = []
        for number in list(self.runs):
            try:
                decisions.extend(await self._step(self.runs[number], snapshot))
            except NotNow as e:
                _log.debug("not now", workflow=number, why=str(e))
        return decisions

    def next_wake(self, now: float) -> float | None:
        """The next instant at which a stage is due; infinity while runs merely go on."""
        if not self.runs:
            return None
        due = math.inf
        last = self._observer.last
        for run in self.runs.values():
            instant = self._runner.next_wake(run, now)
            if instant is not None:
                due = min(due, instant)
            if last is not None and self._runner.wants_look(run, last.taken_at):
                due = min(due, last.taken_at + self._observer.min_interval)
            if self._runner.intended(run):
                due = min(due, now + _SETTLE / 5)
            if run.id in self._lookups:
                due = min(due, self._lookups[run.id][1])
        return max(due, now)

    async def _step(self, run: WorkflowRun, snapshot: Snapshot) -> list[Decision]:
        run = await self._recover(run)
        jobs = {i: snapshot.jobs[i] for i in self._watched(run) if i in snapshot.jobs}
        records = {i: self._records[i] for i in self._watched(run) if i in self._records and i not in jobs}
        view = View(snapshot.taken_at, jobs, MappingProxyType(records), usable=snapshot.usable)
        step = self._runner.step(run, view, self._clock.now(), self._predict)
        decisions = [Decision(Verb.NOTHING, _subject(run, stage), (reason,)) for stage, reason in step.notes]
        self._learn(step.run, step.instructions)
        for instruction in step.instructions:
            decision = await self._carry_out(step.run.id, instruction, snapshot)
            if decision is not None:
                decisions.append(decision)
        return decisions

    def _watched(self, run: WorkflowRun) -> Collection[int]:
        return {*run.jobs(), *(s.job for s in run.stages if s.job is not None)}

    def _predict(self, geometry: Geometry) -> Estimate:
        return self._shelf.predict(geometry)

    def _learn(self, run: WorkflowRun, instructions: Collection[Instruction]) -> None:
        """Store the new state and what was learned together: a wait is never learned twice, nor forgotten."""
        with self._store.together():
            self._save(run)
            for instruction in instructions:
                if isinstance(instruction, Observe):
                    estimate = run.stage(instruction.stage).estimate
                    self._shelf.observe(instruction.geometry, instruction.index, instruction.observation, estimate)

    async def _carry_out(self, number: int, instruction: Instruction, snapshot: Snapshot) -> Decision | None:
        match instruction:
            case Submit(stage=stage, reasons=reasons):
                await self._submit(number, instruction)
                return Decision(Verb.SUBMIT, _subject(self.runs[number], stage), reasons, self._figures(number, stage))
            case VerifyAndRelease(stage=stage, reasons=reasons):
                if not await self._release(number, instruction):
                    return None
                return Decision(Verb.RELEASE, _subject(self.runs[number], stage), reasons)
            case Cancel(stage=stage, job=job, reasons=reasons):
                subject = _subject(self.runs[number], stage)
                if self._executor.ready(subject):
                    await self._executor.act("cancel", subject, {"job": job}, lambda: self._backend.cancel(job))
                return Decision(Verb.CANCEL, subject, reasons)
            case Lookup(jobs=jobs):
                await self._look_up(number, jobs)
            case Finished(ok=ok, why=why):
                subject = _subject(self.runs[number])
                self._store.save_run(number, run_to_dict(self.runs.pop(number)), finished=self._clock.now())
                return Decision(Verb.NOTHING, subject, (Reason("completed" if ok else "failed", why),))
            case Observe():
                pass
        return None

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
                "submit", subject, {"name": spec.name, "nodes": spec.nodes}, lambda: self._backend.submit(spec)
            )
        except OutcomeUnknown:
            self._not_before[number] = self._clock.now() + _SETTLE
        except NotNow as e:
            self._save(self._runner.submit_failed(run, order.stage, False, str(e), self._clock.now()))
        except Infeasible as e:
            self._save(self._runner.submit_failed(run, order.stage, True, str(e), self._clock.now()))
        else:
            self._save(self._runner.submitted(run, order.stage, job, self._clock.now()))

    async def _recover(self, run: WorkflowRun) -> WorkflowRun:
        """Settle what is INTENDED: find it by name, or conclude that it was never sent."""
        for order in self._runner.intended(run):
            subject = _subject(run, order.stage)
            if not self._executor.ready(subject):
                continue
            found = list(await self._backend.find(order.spec.name))
            if not found:
                found = [r.id for r in await self._backend.history(name=order.spec.name, since=run.submitted_at - 60)]
            now = self._clock.now()
            if found:
                run = self._runner.submitted(run, order.stage, found[0], now)
                for extra in found[1:]:
                    run = self._runner.submitted(run, order.stage, extra, now)
                reason = Reason("found", f"job {found[0]} was submitted before the answer was lost")
                self._store.record(Decision(Verb.ADOPT, subject, (reason,)), now)
            elif now >= self._not_before.setdefault(run.id, now + _SETTLE):
                self._not_before.pop(run.id)
                run = self._runner.submit_failed(run, order.stage, False, "it never reached Slurm", now)
            self._save(run)
        return run

    async def _release(self, number: int, order: VerifyAndRelease) -> bool:
        subject = _subject(self.runs[number], order.stage)
        if not self._executor.ready(subject):
            return False
        # One fresh look before the act that lets the job go (the picture is shared by all runs of the pass).
        fresh = await self._observer.look(max_age=self._observer.min_interval)
        job = fresh.jobs.get(order.job)
        if (
            not fresh.usable
            or job is None
            or (order.parent is not None and not names_parent(job.dependency, order.parent))
        ):
            return False
        await self._executor.act("release", subject, {"job": order.job}, lambda: self._backend.release(order.job))
        self._save(self._runner.released(self.runs[number], order.stage, self._clock.now()))
        return True

    async def _look_up(self, number: int, jobs: Collection[int]) -> None:
        """Accounting for jobs that left the queue; asked at growing intervals, since it may lag."""
        now = self._clock.now()
        tries, not_before = self._lookups.get(number, (0, now))
        if now < not_before:
            return
        self._lookups[number] = (tries + 1, now + min(60.0, 0.5 * 2**tries))
        for record in await self._backend.history(ids=jobs):
            self._records[record.id] = record
        if all(i in self._records for i in jobs):
            del self._lookups[number]
            self._wake("accounting answered")

    def _save(self, run: WorkflowRun) -> None:
        if self.runs.get(run.id) != run:
            self.runs[run.id] = run
            self._store.save_run(run.id, run_to_dict(run))


def _subject(run: WorkflowRun, stage: str = "") -> str:
    return f"workflow {run.id}/{stage}" if stage else f"workflow {run.id}"
