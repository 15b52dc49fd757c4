"""The first part of a pass: what Slurm says of a run's jobs, and what follows when one has ended."""

from __future__ import annotations

import math
from dataclasses import replace

from penstock.api import Job, JobState, Reason
from penstock.values.backoff import backoff
from penstock.waits.learners.causes import noted
from penstock.workflow.intervals import begun, ended
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.run.identity import first_submission
from penstock.workflow.run.instructions import Cancel
from penstock.workflow.run.seen import UNSEEN_TRIES, look_up, ran
from penstock.workflow.run.turn import Turn, fresh
from penstock.workflow.state import StageRun, WorkflowRun, updated

__all__ = ["absorb", "back_off", "clear_discarded"]

# ends that are no fault of the stage
_MISHAPS = frozenset({JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.PREEMPTED})
_MOST_MISHAPS = 3
# ends that a stage's own `retries` are for
_FAULTS = frozenset({JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY})
_BACK_OFF = 5.0
_LONGEST_BACK_OFF = 300.0


def back_off(failures: int) -> float:
    """How long (s) to wait after so many failures in a row before this one: 5, 10, 20 … 300."""
    return backoff(_BACK_OFF, failures, _LONGEST_BACK_OFF)


def absorb(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Bring the entry up to date with what Slurm says of its job; conclude nothing from silence."""
    stage = run.stages[i]
    number = stage.job
    if number is None:
        return run
    job, record = turn.view.jobs.get(number), turn.view.records.get(number)
    if job is not None:
        stage = updated(stage, born=first_submission(stage.born, turn.view.rows(number) or (job,)))
        run = run.put(i, stage)
    if stage.phase is StagePhase.DONE and job is not None:
        return _reopened(turn, run, i, job)
    if not stage.phase.live:
        return run
    if job is not None and job.state is JobState.UNKNOWN:
        turn.note(stage.name, "state-unknown", f"job {job.id} is left alone: Penstock does not know its state")
        return run
    if (bad := _trouble(turn, number)) is not None and stage.trouble is None:
        stage = replace(stage, trouble=bad.value)
        run = run.put(i, stage)
    if job is not None and not job.state.ended:
        return run.put(i, _alive(turn, run, i, job))
    if job is not None and job.state is JobState.COMPLETED and stage.trouble is not None:
        return _conclude(turn, run, i, JobState(stage.trouble), job.eligible, job.start, job.end, None)
    if job is not None:
        exit_code = 0 if job.state is JobState.COMPLETED else None
        return _conclude(turn, run, i, job.state, job.eligible, job.start, job.end, exit_code)
    if record is not None and record.state.ended:
        return _conclude(turn, run, i, record.state, record.eligible, record.start, record.end, record.exit_code)
    if number in turn.view.lost:
        return _lost(turn, run, i, number)
    if record is None and run.phase is RunPhase.CANCELLING and stage.asked >= UNSEEN_TRIES:
        # Its Slurm is another one by now. There is nothing left to cancel, and nothing comes after it.
        text = f"job {stage.job} is neither in the queue nor in accounting: it is no longer waited for"
        gone = replace(stage, phase=StagePhase.CANCELLED, failure=text, end=turn.now, observed=True)
        return run.put(i, gone)
    if stage.submitted is None or turn.view.taken_at > stage.submitted:
        look_up(turn, stage)
    return run


def _lost(turn: Turn, run: WorkflowRun, i: int, job: int) -> WorkflowRun:
    """slurmctld has lost the job in a crash: it is submitted again, as after other mishaps that are not its fault."""
    stage, text = run.stages[i], f"slurmctld has lost job {job}, perhaps in a crash"
    if run.phase is RunPhase.CANCELLING:
        return run.put(i, replace(stage, phase=StagePhase.CANCELLED, failure=text, end=turn.now, observed=True))
    if not run.goes_on or stage.mishaps >= _MOST_MISHAPS:
        return run.put(i, replace(stage, phase=StagePhase.FAILED, failure=text, end=turn.now, observed=True))
    run = run.put(i, replace(stage, mishaps=stage.mishaps + 1))
    return _again(turn, run, i, stage.start, None, text)


def _trouble(turn: Turn, job: int) -> JobState | None:
    """How one of the tasks has ended that did not complete, of an array that has some."""
    ended = [row.state for row in turn.view.tasks.get(job, ()) if row.state.ended]
    return next((state for state in ended if state is not JobState.COMPLETED), None)


def clear_discarded(turn: Turn, run: WorkflowRun) -> WorkflowRun:
    """Forget the discarded jobs that are seen to have ended; cancel those that live. Of a run that is cancelled also
    those that nobody knows: its Slurm is another one by now, and it would be cancelling for ever."""
    if not run.discarded:
        return run
    left = []
    for job in run.discarded:
        seen = turn.view.jobs.get(job) or turn.view.records.get(job)
        if job in turn.view.lost or (seen is not None and seen.state.ended):
            continue
        if seen is None and run.phase is RunPhase.CANCELLING and job in turn.view.unknown:
            continue
        if turn.view.alive(job):
            turn.out.append(Cancel("", job, (Reason("discarded", f"job {job} was given up"),)))
        else:
            turn.lookups.add(job)
        left.append(job)
    return replace(run, discarded=tuple(left), given_up={n: known for n, known in run.given_up.items() if n in left})


def _alive(turn: Turn, run: WorkflowRun, i: int, job: Job) -> StageRun:
    stage = run.stages[i]
    if job.state.holds_nodes:
        stage = updated(stage, phase=StagePhase.RUNNING, start=job.start, nodes=job.nodes or stage.nodes)
    else:
        if stage.start is not None and job.restarts > stage.restarts:
            stage = _requeued(turn, run, i, job)
        held = stage.phase is StagePhase.SUBMITTED and job.held
        stage = updated(stage, phase=StagePhase.SUBMITTED if held else StagePhase.QUEUED, start=None)
    if stage.phase is not StagePhase.SUBMITTED and job.id in turn.view.hindered:
        stage = updated(stage, hindered=noted(stage.hindered, turn.view.hindered[job.id]))
    # Until its dependency was read back, its hold is the agent's own.
    others = stage.phase is StagePhase.QUEUED and job.held and turn.view.taken_at > (stage.released or -math.inf)
    stage = updated(stage, holds=(begun if others else ended)(stage.holds, turn.view.taken_at))
    seen = {"submitted": job.submit, "eligible": job.eligible, "restarts": job.restarts}
    return updated(stage, **seen, asked=0, asked_at=None)


def _requeued(turn: Turn, run: WorkflowRun, i: int, job: Job) -> StageRun:
    """It ran and waits again under the same id: what it had used came to nothing. Its next wait is another one."""
    stage = run.stages[i]
    spent = run.units[i].nodes * max(job.submit - (stage.start or job.submit), 0.0)
    early = turn.strategy.tie.guarded and run.ready_at(i) is None
    text = f"job {job.id} was requeued" + (": its parents did not end while it waited for them" if early else "")
    turn.note(stage.name, "requeued", text)
    return replace(
        stage,
        misses=stage.misses + early,
        wasted=stage.wasted + spent,
        idle=stage.idle + (spent if early else 0.0),
        observed=False,
        again_from=job.submit,
    )


def _reopened(turn: Turn, run: WorkflowRun, i: int, job: Job) -> WorkflowRun:
    """A completed job that somebody has put back into the queue has to complete again, if nobody built on it yet."""
    stage = run.stages[i]
    if turn.revived(stage):
        turn.note(stage.name, "revived", f"slurmctld has lost the end of job {job.id} in a crash: it is not run again")
        return run if job.id in run.discarded else run.without(job.id, stage.born, stage.called)
    begun = any(i in other.after and other.start is not None for other in run.stages)
    if job.state.ended or job.state is JobState.UNKNOWN or job.restarts <= stage.restarts or begun:
        return run
    turn.note(stage.name, "requeued", f"job {job.id} had completed and was requeued, so it has to complete again")
    live = replace(stage, phase=StagePhase.QUEUED, end=None, slurm_state=None, exit_code=None)
    return run.put(i, _alive(turn, run.put(i, live), i, job))


def _conclude(
    turn: Turn,
    run: WorkflowRun,
    i: int,
    state: JobState,
    eligible: float | None,
    start: float | None,
    end: float | None,
    exit_code: int | None,
) -> WorkflowRun:
    stage, parents = run.stages[i], run.parents(i)
    active = run.goes_on
    lost = next((q for q in parents if q.phase in (StagePhase.FAILED, StagePhase.CANCELLED)), None)
    began = ran(stage, state, start, end)
    # A guarded job does not begin its work before all parents are done: a failure before that is the guard's.
    guarded = turn.strategy.tie.guarded and state is JobState.FAILED and bool(stage.depends_on)
    for_parents = guarded and any(q.phase is not StagePhase.DONE for q in parents)
    if state is JobState.COMPLETED:
        phase, failure = StagePhase.DONE, None
    elif lost is not None:
        phase, failure = StagePhase.CANCELLED, f"{lost.name} did not complete"
    elif not active and state is JobState.CANCELLED:
        phase, failure = StagePhase.CANCELLED, "cancelled with the workflow"
    elif active and (for_parents or (not began and stage.depends_on)) and any(_fate_open(turn, q) for q in parents):
        # Slurm itself cancels a job whose parent failed (kill_invalid_depend): first learn what became of the parent
        turn.note(stage.name, "parent-first", f"job {stage.job} ended {state}; how a parent ended is not known yet")
        return run
    elif active and for_parents:
        return _again(turn, run, i, start, end, "it had started before its parents had ended", miss=True)
    elif active and not began and any(job not in {q.job for q in parents} for job in stage.depends_on):
        return _again(turn, run, i, start, end, "it depended on an attempt of a parent that failed")
    elif active and state is JobState.TIMEOUT and stage.slot is not None and stage.slot.whole is not None:
        return _overrun(turn, run, i, stage.slot.whole)
    elif active and (why := _repeatable(run, i, state)):
        stage = _counted(turn, stage, state)
        return _again(turn, run.put(i, stage), i, start, end, why, pause=True)
    else:
        code = "" if exit_code is None else f" with exit code {exit_code}"
        phase, failure = StagePhase.FAILED, f"job {stage.job} ended {state}{code}"
    times = {"eligible": eligible, "start": start} if began else {"eligible": None, "start": None}
    return run.put(
        i, replace(stage, phase=phase, failure=failure, slurm_state=state.value, exit_code=exit_code, end=end, **times)
    )


def _overrun(turn: Turn, run: WorkflowRun, i: int, whole: float) -> WorkflowRun:
    """What it did is lost: it waits for another slot, of its whole time limit."""
    stage, old = run.stages[i], run.stages[i].held
    turn.note(stage.name, "overrun", "takes longer than its slot")
    stages = tuple(replace(s, time_limit=whole) if s.name == stage.name else s for s in run.workflow.stages)
    units = tuple(replace(u, time_limit=whole) if u.name == stage.name else u for u in run.units)
    again = replace(fresh(stage), slot=replace(old, whole=None))
    run = replace(run, flow=replace(run.workflow, stages=stages), units=units)
    return replace(run.put(i, again), leaving=(*run.leaving, (old.name, old.hold)))


def _fate_open(turn: Turn, parent: StageRun) -> bool:
    return parent.phase.live and not (parent.job is not None and turn.view.alive(parent.job))


def _repeatable(run: WorkflowRun, i: int, state: JobState) -> str | None:
    """Why the attempt is repeated; None: it is not."""
    stage, unit = run.stages[i], run.units[i]
    if state in _MISHAPS and stage.mishaps < _MOST_MISHAPS:
        return f"{state} is no fault of the stage (time {stage.mishaps + 1} of at most {_MOST_MISHAPS})"
    if state not in _FAULTS or stage.retries >= unit.retries:
        return None
    if state is JobState.TIMEOUT and run.unit(i).time_limit == run.max_time:
        return None  # it had all the time there is
    return f"retry {stage.retries + 1} of {unit.retries}"


def _counted(turn: Turn, stage: StageRun, state: JobState) -> StageRun:
    if state in _MISHAPS:
        bad = sorted({*stage.exclude, *(n for n in stage.nodes if n in turn.view.down)})
        return replace(stage, mishaps=stage.mishaps + 1, exclude=tuple(bad))
    return replace(stage, retries=stage.retries + 1, timeouts=stage.timeouts + (state is JobState.TIMEOUT))


def _again(
    turn: Turn,
    run: WorkflowRun,
    i: int,
    start: float | None,
    end: float | None,
    why: str,
    *,
    miss: bool = False,
    pause: bool = False,
) -> WorkflowRun:
    """The attempt has ended in vain: wait for the next one, with a pause that grows."""
    stage = run.stages[i]
    worked = max(end - start, 0.0) if start is not None and end is not None else 0.0
    spent = run.units[i].nodes * worked
    turn.note(stage.name, "again", f"the stage is submitted again, as job {stage.job} failed: {why}")
    return run.put(
        i,
        replace(
            fresh(stage),
            misses=stage.misses + miss,
            wasted=stage.wasted + spent,
            idle=stage.idle + (spent if miss else 0.0),
            again_from=turn.now if end is None else end,
            retry_at=turn.now + back_off(stage.retries + stage.mishaps - 1) if pause else None,
        ),
    )
