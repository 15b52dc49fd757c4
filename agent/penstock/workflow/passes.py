"""The parts of one pass of the runner, in their order: absorb the view, draw consequences, plan, observe, finish.

Functions of (run, view, now); `Runner` is the way in and says what holds. `_Pass` only gathers instructions and notes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from penstock.api import Geometry, JobState, Reason
from penstock.waits.base import Estimate
from penstock.waits.causes import Cause, learnable
from penstock.workflow.calm import kept_back
from penstock.workflow.instructions import (
    Cancel,
    Finished,
    Instruction,
    Lookup,
    Observe,
    Step,
    Submit,
    VerifyAndRelease,
    View,
)
from penstock.workflow.model import Stage
from penstock.workflow.reading import Site, is_held, names_parent, observed_wait
from penstock.workflow.scripts import job_spec
from penstock.workflow.state import Phase, RunPhase, StageRun, WorkflowRun
from penstock.workflow.strategies import strategy_named
from penstock.workflow.strategy import Strategy, names

__all__ = ["step"]

# states of a parent in which a job that is `afterok` it cannot have been started by Slurm
_NOT_OVER = frozenset(
    {JobState.PENDING, JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESIZING, JobState.REQUEUED}
)
# ends that a job can meet without having run; Slurm then gives the moment of the end as its start
_WITHOUT_RUNNING = frozenset({JobState.CANCELLED, JobState.DEADLINE, JobState.BOOT_FAIL})


@dataclass(slots=True)
class _Pass:
    site: Site
    view: View
    now: float
    strategy: Strategy
    units: tuple[Stage, ...]
    out: list[Instruction] = field(default_factory=list)
    notes: list[tuple[str, Reason]] = field(default_factory=list)
    lookups: set[int] = field(default_factory=set)

    def note(self, stage: str, code: str, text: str) -> None:
        self.notes.append((stage, Reason(code, text)))


def step(site: Site, run: WorkflowRun, view: View, now: float, predict: Callable[[Geometry], Estimate]) -> Step:
    """See `Runner.step`."""
    if run.phase.final:
        return Step(run)
    if not view.usable:
        return Step(run, (), (("", Reason("hold", "the picture of Slurm is incomplete or stale: nothing is done")),))
    strategy = strategy_named(run.strategy)
    p = _Pass(site, view, now, strategy, strategy.units(run.workflow))
    for i in range(len(run.stages)):
        run = _absorb(p, run, i)
    run = _clear_discarded(p, run)
    run = _consequences(p, run)
    if run.phase is RunPhase.ACTIVE:
        for i in range(len(run.stages)):
            run = _verify(p, run, i)
        for i in range(len(run.stages)):
            run = _plan(p, run, i, predict)
    else:
        run = _stop(p, run)
    for i in range(len(run.stages)):
        run = _observe(p, run, i)
    run = _finish(p, run)
    if p.lookups:
        p.out.append(Lookup(tuple(sorted(p.lookups))))
    return Step(run, tuple(p.out), tuple(p.notes))


def _absorb(p: _Pass, run: WorkflowRun, i: int) -> WorkflowRun:
    """Bring the entry up to date with what Slurm says of its job; conclude nothing from silence."""
    stage = run.stages[i]
    if not stage.phase.live or stage.job is None:
        return run
    number = stage.job
    job, record = p.view.jobs.get(number), p.view.records.get(number)
    if job is not None and job.state is JobState.UNKNOWN:
        p.note(stage.name, "state-unknown", f"job {job.id} is in a state that is not understood: nothing is concluded")
        return run
    if job is not None and not job.state.ended:
        if job.state.holds_nodes:
            stage = replace(stage, phase=Phase.RUNNING, start=job.start)
        else:
            held = stage.phase is Phase.SUBMITTED and is_held(job)
            stage = replace(stage, phase=Phase.SUBMITTED if held else Phase.QUEUED, start=None)
        stage = replace(stage, submitted=job.submit, eligible=job.eligible)
        if stage.phase is not Phase.SUBMITTED and number in p.view.hindered:
            stage = replace(stage, hindered=stage.hindered or p.view.hindered[number].value)
        return run.with_stage(stage)
    if job is not None:
        exit_code = 0 if job.state is JobState.COMPLETED else None
        return _conclude(p, run, i, job.state, job.eligible, job.start, job.end, exit_code)
    if record is not None and record.state.ended:
        return _conclude(p, run, i, record.state, record.eligible, record.start, record.end, record.exit_code)
    if stage.submitted is None or p.view.taken_at > stage.submitted:
        p.lookups.add(number)
        p.note(stage.name, "not-seen", f"job {number} is not in the queue: accounting must say what became of it")
    return run


def _conclude(
    p: _Pass,
    run: WorkflowRun,
    i: int,
    state: JobState,
    eligible: float | None,
    start: float | None,
    end: float | None,
    exit_code: int | None,
) -> WorkflowRun:
    stage, parents = run.stages[i], run.parents(i)
    lost = next((q for q in parents if q.phase in (Phase.FAILED, Phase.CANCELLED)), None)
    ran = not (
        state in _WITHOUT_RUNNING
        and stage.phase is not Phase.RUNNING
        and (start is None or end is None or start >= end)
    )
    if state is JobState.COMPLETED:
        phase, failure = Phase.DONE, None
    elif lost is not None:
        phase, failure = Phase.CANCELLED, f"{lost.name} did not complete"
    elif run.phase is not RunPhase.ACTIVE and state is JobState.CANCELLED:
        phase, failure = Phase.CANCELLED, "cancelled with the workflow"
    elif not ran and run.phase is RunPhase.ACTIVE and stage.depends_on and any(_fate_open(p, q) for q in parents):
        # Slurm itself cancels a job whose parent failed (kill_invalid_depend): first learn what became of the parent
        p.note(stage.name, "parent-first", f"job {stage.job} ended {state} unstarted; a parent's end is not known yet")
        return run
    else:
        code = "" if exit_code is None else f" with exit code {exit_code}"
        phase, failure = Phase.FAILED, f"job {stage.job} ended {state}{code}"
    times = {"eligible": eligible, "start": start} if ran else {"eligible": None, "start": None}
    return run.with_stage(
        replace(stage, phase=phase, failure=failure, slurm_state=state.value, exit_code=exit_code, end=end, **times)
    )


def _fate_open(p: _Pass, parent: StageRun) -> bool:
    return parent.phase.live and not (parent.job is not None and p.view.alive(parent.job))


def _discard(p: _Pass, run: WorkflowRun, i: int, reason: Reason) -> WorkflowRun:
    """Give up the job of entry `i` and decide again; the sampled estimate stays."""
    stage = run.stages[i]
    assert stage.job is not None
    p.notes.append((stage.name, reason))
    p.out.append(Cancel(stage.name, stage.job, (reason,)))
    fresh = StageRun(
        stage.name,
        stage.after,
        attempt=stage.attempt,
        estimate=stage.estimate,
        estimate_index=stage.estimate_index,
        estimate_said=stage.estimate_said,
    )
    return replace(run.with_stage(fresh), discarded=(*run.discarded, stage.job))


def _clear_discarded(p: _Pass, run: WorkflowRun) -> WorkflowRun:
    """Forget the discarded jobs that are seen to have ended; cancel those that live."""
    left = []
    for job in run.discarded:
        seen = p.view.jobs.get(job) or p.view.records.get(job)
        if seen is not None and seen.state.ended:
            continue
        if p.view.alive(job):
            p.out.append(Cancel("", job, (Reason("discarded", f"job {job} was given up"),)))
        else:
            p.lookups.add(job)
        left.append(job)
    return replace(run, discarded=tuple(left))


def _consequences(p: _Pass, run: WorkflowRun) -> WorkflowRun:
    """The first failed stage fails the workflow."""
    failed = next((s for s in run.stages if s.phase is Phase.FAILED), None)
    if failed is None or run.phase is not RunPhase.ACTIVE:
        return run
    why = f"{failed.name}: {failed.failure}"
    p.note("", "stage-failed", why)
    return replace(run, phase=RunPhase.FAILING, why=why)


def _stop(p: _Pass, run: WorkflowRun) -> WorkflowRun:
    """Cancel what is left. When a stage failed, running ones that do not come after it may end; nothing new starts."""
    lost = run.following(i for i, s in enumerate(run.stages) if s.phase is Phase.FAILED)
    reason = Reason("workflow-cancelled" if run.phase is RunPhase.CANCELLING else "workflow-failed", run.why or "")
    for i, stage in enumerate(run.stages):
        if stage.phase is Phase.WAITING:
            run = run.with_stage(replace(stage, phase=Phase.CANCELLED, failure=reason.text))
        elif stage.phase is Phase.INTENDED:
            p.note(stage.name, "submit-open", "its submission is under way; it is cancelled once its job id is known")
        elif stage.phase.live and stage.job is not None:
            if run.phase is RunPhase.FAILING and i not in lost and stage.phase is Phase.RUNNING:
                p.note(stage.name, "runs-on", f"job {stage.job} runs on to its end")
            else:
                p.out.append(Cancel(stage.name, stage.job, (reason,)))
    return run


def _verify(p: _Pass, run: WorkflowRun, i: int) -> WorkflowRun:
    """Look after a job with a dependency: release it once that is read back, give it up if it is lost."""
    stage = run.stages[i]
    if not stage.phase.live or not stage.depends_on or stage.job is None:
        return run
    parents = {parent.job: parent for parent in run.parents(i) if parent.job is not None}
    stale = [job for job in stage.depends_on if job not in parents]
    if stale:
        text = f"job {stage.job} depends on job {stale[0]}, which is no parent's job any more"
        return _discard(p, run, i, Reason("dependency-stale", text))
    job = p.view.jobs.get(stage.job)
    if stage.phase is Phase.RUNNING and job is not None:
        for number in stage.depends_on:
            before = p.view.jobs.get(number)
            if before is not None and before.state in _NOT_OVER:
                text = f"job {stage.job} was started although {parents[number].name} (job {number}) is {before.state}"
                return _discard(p, run, i, Reason("started-early", text))
    if stage.phase is not Phase.SUBMITTED or job is None or not p.view.alive(job.id):
        return run
    needed = tuple(number for number in stage.depends_on if parents[number].phase is not Phase.DONE)
    missing = [number for number in needed if not names_parent(job.dependency, number)]
    if not needed:
        reason = Reason("parent-done", f"{names(parents.values())} completed: no dependency is needed any more")
        p.out.append(VerifyAndRelease(stage.name, stage.job, (), (reason,)))
    elif not missing:
        reason = Reason("dependency-read-back", f"job {stage.job} depends on {job.dependency}: safe to release")
        p.out.append(VerifyAndRelease(stage.name, stage.job, needed, (reason,)))
    for number in missing:
        before = p.view.jobs.get(number)
        # ending or unseen parents are left out: Slurm clears a dependency when it is fulfilled
        if before is not None and before.state in _NOT_OVER:
            text = f"job {stage.job} has lost its dependency on {parents[number].name} (job {number})"
            return _discard(p, run, i, Reason("dependency-lost", text))
    return run


def _plan(p: _Pass, run: WorkflowRun, i: int, predict: Callable[[Geometry], Estimate]) -> WorkflowRun:
    """Sample the estimate of a stage whose parents have been submitted, and submit it when it is due."""
    stage, parents = run.stages[i], run.parents(i)
    if stage.phase is not Phase.WAITING:
        return run
    if p.strategy.ahead and stage.estimate is None and all(parent.submitted is not None for parent in parents):
        estimate = predict(_geometry(run, p.units[i]))
        stage = replace(
            stage, estimate=estimate.seconds, estimate_index=estimate.index, estimate_said=dict(estimate.said)
        )
        run = run.with_stage(stage)
    due = p.strategy.due(run, p.units, i, p.now)
    stage = replace(stage, due=due.at, parent_end=due.parent_end)
    run = run.with_stage(stage)
    if due.at is None or due.at > p.now:
        p.notes.append((stage.name, due.reason))
        return run
    starts = p.now if due.parent_end is None else max(p.now, due.parent_end)  # not before its parents have ended
    if (maintenance := kept_back(p.view, run.partition, p.units[i], starts)) is not None:
        p.notes.append((stage.name, maintenance))
        return run
    if stage.retry_at is not None and p.now < stage.retry_at:
        p.note(stage.name, "back-off", f"submitting failed {stage.failures} times: {stage.failure}")
        return run
    reasons = [due.reason]
    alive = []
    for parent in parents:
        if parent.phase is Phase.DONE:
            continue
        if parent.phase not in (Phase.QUEUED, Phase.RUNNING) or parent.job is None or not p.view.alive(parent.job):
            p.note(stage.name, "look-first", f"{parent.name} must be seen alive before a job depends on it")
            return run
        alive.append(parent.job)
        reasons.append(Reason("parent-alive", f"{parent.name} is job {parent.job}: afterok, held until read back"))
    if alive and not p.site.accrues:
        text = "jobs do not age here while they depend on another: submitting early gains no place in the queue"
        reasons.append(Reason("no-accrual", text))
    attempt, depends_on = stage.attempt + 1, tuple(alive)
    run = run.with_stage(
        replace(stage, phase=Phase.INTENDED, attempt=attempt, depends_on=depends_on, retry_at=None, failure=None)
    )
    spec = job_spec(run.workflow, p.units[i], run.label, attempt, depends_on)
    p.out.append(Submit(stage.name, spec, tuple(reasons)))
    return run


def _geometry(run: WorkflowRun, unit: Stage) -> Geometry:
    return Geometry(run.partition, run.qos, unit.nodes, unit.time_limit, account=run.workflow.account or "")


def _observe(p: _Pass, run: WorkflowRun, i: int) -> WorkflowRun:
    stage = run.stages[i]
    if stage.observed:
        return run
    observation = observed_wait(p.site, stage, run.ready_at(i))
    if observation is None:
        return run
    if stage.hindered is not None:
        observation = learnable(observation, Cause(stage.hindered))
    estimate = None
    if stage.estimate is not None and stage.estimate_index is not None:
        estimate = Estimate(stage.estimate_index, stage.estimate, stage.estimate_said)
    p.out.append(Observe(stage.name, _geometry(run, p.units[i]), observation, estimate))
    return run.with_stage(replace(stage, observed=True))


def _finish(p: _Pass, run: WorkflowRun) -> WorkflowRun:
    if run.discarded or not all(s.phase.final for s in run.stages):
        return run
    if all(s.phase is Phase.DONE for s in run.stages):
        phase, why = RunPhase.COMPLETED, f"all {len(run.stages)} jobs completed"
        ended = max((s.end for s in run.stages if s.end is not None), default=None)
    else:
        phase = RunPhase.CANCELLED if run.phase is RunPhase.CANCELLING else RunPhase.FAILED
        why, ended = run.why or "", None
    p.out.append(Finished(phase is RunPhase.COMPLETED, why))
    return replace(run, phase=phase, why=why, ended_at=p.now if ended is None else ended)
