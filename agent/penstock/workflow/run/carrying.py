"""Carries out what the runner asks for, by the executor, and tells the book how it went.

A submission is journaled as INTENDED before sbatch is called; whatever is still INTENDED at the next pass (the agent
was killed, or the answer was lost) is looked for by its unique name before it is ever sent again. Every other act is
preceded by a look that is younger than a second, and idempotent or compared with a look that is younger than the act,
so one whose answer was lost needs no reading back.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

from penstock.api import Decision, JobSpec, Origin, Reason, Snapshot, Verb
from penstock.core.acts import KnownJob, ReleaseJob, RequeueJob, Retarget, SlurmAct, SubmitJob
from penstock.core.executor import Concern, Executor, Payload
from penstock.errors import Infeasible, NotPermitted, OutcomeUnknown, Overtaken, PenstockError, StoreError
from penstock.host.clock import Clock, Rest
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.slurm.sbatch_options import restricts_export
from penstock.workflow.phases import Kept, RunPhase
from penstock.workflow.run.identity import known_job
from penstock.workflow.run.instructions import Cancel, Change, Instruction, Release, Requeue, Submit
from penstock.workflow.run.runner import Runner
from penstock.workflow.scripts import with_exports
from penstock.workflow.state import WorkflowRun

__all__ = ["Carrier", "RunStore", "subject_of"]

_log = get_logger(__name__)
_FARTHEST_BACK: Final = 30 * 86400.0  # s; no submission without an answer is that old


class RunStore(Protocol):
    """Where the runs are kept, by number."""

    runs: dict[int, WorkflowRun]

    def save(self, run: WorkflowRun) -> None:
        """Keep the run as it is now."""
        ...


class Carrier:
    """Acts for the workflows of one agent. `environment` is added to the job of each stage that it submits (it tells
    MPI jobs the agent), `environment_of` gives that of who submitted a run, by its name. `most` changes are made for
    a user's own jobs in a pass; `left`: there were more to be made. `want` asks for a newer look."""

    def __init__(
        self,
        backend: Reader,
        want: Callable[[], None],
        executor: Executor,
        clock: Clock,
        runner: Runner,
        book: RunStore,
        wake: Callable[[str], None],
        most: int,
    ) -> None:
        self._backend = backend
        self._want = want
        self._executor = executor
        self._clock = clock
        self._runner = runner
        self._book = book
        self._wake = wake
        self.most = most
        self.left = False
        self._changes: Counter[int] = Counter()  # made in this pass, by user
        # When a job was last changed: an older look does not show it.
        self._changed_at: dict[int, float] = {}
        # Until when unanswered submissions are not looked for again, by run.
        self._recoveries: dict[int, Rest] = {}
        self.environment: dict[str, str] = {}
        self.environment_of: Callable[[str], dict[str, str] | None] = lambda _name: None

    def begin_pass(self) -> None:
        """Each user may have changes made again."""
        self._changes.clear()
        self.left = False

    async def carry_out(self, number: int, instructions: Iterable[Instruction], snapshot: Snapshot) -> list[Decision]:
        """What comes of these. Stages are side by side: what one cannot do now keeps no other back."""
        decisions = []
        for instruction in instructions:
            if (decision := await self.carried_out(number, instruction, snapshot)) is not None:
                decisions.append(decision)
        return decisions

    async def carried_out(self, number: int, instruction: Instruction, snapshot: Snapshot) -> Decision | None:
        """What came of it; None where it could not be done now, and for what is no act."""
        try:
            return await self._carry_out(number, instruction, snapshot)
        except StoreError:
            raise
        except PenstockError as e:
            _log.info("a workflow's act was not done now", workflow=number, why=str(e))
            return None

    async def _carry_out(self, number: int, order: Instruction, snapshot: Snapshot) -> Decision | None:
        match order:
            case Submit(stage=stage, reasons=reasons):
                await self._submit(number, order)
                entry = self._book.runs[number].stage(stage)
                figures = {"estimate": entry.estimate, "parent_end": entry.parent_end, "due": entry.due}
                return Decision(Verb.SUBMIT, self._subject(number, stage), reasons, {"job": entry.job, **figures})
            case Release(stage=stage, job=job, reasons=reasons):
                known = self._known(number, job)
                if not await self._act(Verb.RELEASE, number, order, {"job": job}, snapshot, _releasing(order, known)):
                    return None
                self._tell(number, lambda run: self._runner.released(run, stage, self._clock.now()), stage, job)
                return Decision(Verb.RELEASE, self._subject(number, stage), reasons, {"job": job})
            case Change(stage=stage, job=job, reasons=reasons):
                known = self._known(number, job)
                payload = {"job": job, "dependency": order.dependency, "nodes": ",".join(order.pins)}
                if not await self._act(Verb.CHANGE, number, order, payload, snapshot, _changing(order, known)):
                    return None
                self._tell(number, lambda run: self._runner.changed(run, order, self._clock.now()), stage, job)
                details: dict[str, str | int | float | None] = {"job": job, "dependency": order.dependency}
                return Decision(Verb.CHANGE, self._subject(number, stage), reasons, details)
            case Requeue(stage=stage, job=job, reasons=reasons):
                back = RequeueJob(self._known(number, job))
                if not await self._act(Verb.REQUEUE, number, order, {"job": job}, snapshot, back):
                    return None
                self._tell(number, lambda run: self._runner.requeued(run, stage, job, self._clock.now()), stage, job)
                return Decision(Verb.REQUEUE, self._subject(number, stage), reasons, {"job": job})
            case Cancel(stage=stage, job=job, reasons=reasons):
                subject = self._subject(number, stage)
                # Once per picture: until the next one the job is seen alive although it is being cancelled.
                if self._executor.ready(subject) and not self._older_than_change(job, snapshot):
                    concern = self._concern(self._book.runs[number], None, snapshot)
                    await self._executor.cancel(self._known(number, job), subject, concern)
                    self._changed(job)
                return Decision(Verb.CANCEL, subject, reasons)
        return None

    def forget(self, run: WorkflowRun) -> None:
        """The run has ended."""
        self._recoveries.pop(run.id, None)
        for job in (*run.discarded, *(stage.job for stage in run.stages)):
            self._changed_at.pop(job or 0, None)

    # -- submissions ---------------------------------------------------------------------------------------------------

    async def _submit(self, number: int, order: Submit) -> None:
        run, now = self._book.runs[number], self._clock.now()
        subject = subject_of(run, order.stage)
        if not self._executor.ready(subject):
            last = run.stage(order.stage).failure or "the last attempt failed"
            self._book.save(self._runner.submit_failed(run, order.stage, False, last, now))
            return
        spec = self._handed_over(run, order.spec)
        concern = self._concern(run, None, None)
        failed: PenstockError | None = None
        job = 0
        try:
            journaled: Payload = {"name": spec.name, "nodes": spec.nodes}
            job = await self._executor.act(SubmitJob(spec), subject, journaled, concern)
        except OutcomeUnknown as e:
            self._book.save(self._runner.unseen(self._book.runs[number], order.stage, self._clock.now(), str(e)))
            return
        except PenstockError as e:
            failed = e
        # The user may have cancelled the run while sbatch was answering, so the state of before is old.
        run, now = self._book.runs[number], self._clock.now()
        if failed is None:
            self._book.save(self._runner.submitted(run, order.stage, job, now, spec.name))
        else:
            final = isinstance(failed, Infeasible | NotPermitted)
            self._book.save(self._runner.submit_failed(run, order.stage, final, str(failed), now))

    def _handed_over(self, run: WorkflowRun, spec: JobSpec) -> JobSpec:
        """The job with what the agent and the submitter give it."""
        spec = replace(spec, environment=MappingProxyType({**self.environment, **spec.environment}))
        folder, umask = run.workflow.folder, run.workflow.umask
        variables = self.environment_of(run.environment) if run.environment else None
        if folder is None or variables is None:
            return spec
        if restricts_export(spec.options, variables):
            spec = replace(spec, script=with_exports(spec.script, spec.environment))
        return replace(spec, origin=Origin(folder, MappingProxyType(variables), umask))

    async def settle(self, number: int) -> None:
        """Settle what is INTENDED: find it by name, or conclude after a while that it was never sent."""
        rest = self._recoveries.get(number, Rest())
        orders = self._runner.intended(self._book.runs[number])
        if not orders:
            self._recoveries.pop(number, None)
            return
        if rest.lasts(now := self._clock.now()):
            return
        self._recoveries[number] = rest.longer(now, 1.0)
        for order in orders:
            run = self._book.runs[number]
            slot = run.stage(order.stage).slot
            given_up = {*run.discarded, slot.killed if slot else None}
            found = list(await self._backend.find(order.spec.name))
            if found and order.spec.array is not None:  # the tasks that have begun are the same job
                arrays = {job.id: job.head for job in await self._backend.jobs()}
                found = sorted({arrays.get(job, job) for job in found})
            if not found:
                since = max(self._book.runs[number].submitted_at - 60, now - _FARTHEST_BACK)
                found = sorted(r.id for r in await self._backend.history(name=order.spec.name, since=since))
                found = found[:1] if order.spec.array is not None else found
            found = [job for job in found if job not in given_up]
            run, now = self._book.runs[number], self._clock.now()
            if found:
                for job in found:
                    run = self._runner.submitted(run, order.stage, job, now, order.spec.name)
                reason = Reason("found", f"job {found[0]} was submitted before the answer was lost")
                self._executor.record(Decision(Verb.ADOPT, subject_of(run, order.stage), (reason,)))
            else:
                run = self._runner.unseen(run, order.stage, now)
            self._book.save(run)

    def settles_at(self, number: int, now: float) -> float:
        """When submissions without an answer are looked for again."""
        return max(now + 1.0, self._recoveries.get(number, Rest()).end(now))

    # -- changes of jobs -----------------------------------------------------------------------------------------------

    async def _act(
        self,
        verb: Verb,
        number: int,
        order: Release | Change | Requeue,
        payload: Payload,
        snapshot: Snapshot,
        act: SlurmAct[None],
    ) -> bool:
        """Change a job, unless the look is older than the last change of it, its back-off is not over, its owner has
        had so many changes in this pass, or a look that is younger than a second shows that the job has changed
        since."""
        run, job = self._book.runs[number], order.job
        subject = subject_of(run, order.stage)
        if not self._executor.ready(subject) or self._older_than_change(job, snapshot):
            return False
        if run.owned:
            if self._changes[run.uid] >= self.most:
                self.left = True
                return False
            self._changes[run.uid] += 1
        concern = self._concern(run, job, snapshot, keeps=verb is not Verb.REQUEUE)
        try:
            await self._executor.act(act, subject, payload, replace(concern, decided=snapshot))
        except Overtaken as e:
            self._wake(str(e))
            return False
        self._changed(job)
        return True

    def _older_than_change(self, job: int, snapshot: Snapshot) -> bool:
        return self._changed_at.get(job, -math.inf) >= snapshot.taken_at

    def _changed(self, job: int) -> None:
        self._changed_at[job] = self._clock.now()
        self._want()

    def _concern(self, run: WorkflowRun, job: int | None, snapshot: Snapshot | None, keeps: bool = True) -> Concern:
        """While all is off nothing is submitted, but what was is tied so that it may stay there without an agent
        (`keeps`), and what is kept back is given back to its owner where that is ordered."""
        off = self._executor.pause_control.off
        cancelling = run.phase is RunPhase.CANCELLING
        if run.owned:
            seen = snapshot.jobs.get(job or 0) if snapshot else None
            ends = cancelling or (keeps and off is not None and off.release)
            concern = Concern("workflows", run.uid) if seen is None else Concern.of("workflows", seen)
            return replace(concern, owner=run.uid, ends=ends)
        place = (run.partitions, (run.workflow.account or "",), (run.workflow.qos or "",))
        return Concern("workflows", os.geteuid(), *place, cancelling or (job is not None and off is not None))

    def _tell(self, number: int, news: Callable[[WorkflowRun], WorkflowRun], stage: str, job: int) -> None:
        run = self._book.runs.get(number)
        if run is not None and any(s.name == stage and s.job == job for s in run.stages):  # it may have another by now
            self._book.save(news(run))

    def _known(self, number: int, job: int) -> KnownJob:
        return known_job(self._book.runs[number], job, os.geteuid())

    def _subject(self, number: int, stage: str) -> str:
        run = self._book.runs.get(number)  # it may have become part of another meanwhile
        return f"workflow {number}/{stage}" if run is None else subject_of(run, stage)


def subject_of(run: WorkflowRun, stage: str = "") -> str:
    """What decisions and acts about it are told under."""
    return f"workflow {run.called}/{stage}" if stage else f"workflow {run.called}"


def _releasing(order: Release, job: KnownJob) -> ReleaseJob:
    return ReleaseJob(job, hold=order.kept is Kept.HOLD, reset_age=order.reset_age)


def _changing(order: Change, job: KnownJob) -> Retarget:
    return Retarget(job, order.dependency, order.nodelist)
