"""What is particular to jobs that their owner has put into the queue: what Slurm says of them, and how they are kept
behind those before them. Pure; parts of a pass (`passes.py`).

What it holds to:
- Nothing is ever done to a job whose owner, as Slurm names it, is not the workflow's.
- A job that is kept back is let go only when Slurm shows it to depend on every stage before it that has not completed,
  and only if it has not been let go before.
- A hold that is not ours is never lifted. A job that is kept back by its begin time is left alone while it is held, by
  whomever; were it held a moment later, its release would leave the hold in place. One that is held for the agent
  (release 0.1.0 submitted those) is released while the hold is the owner's own kind.
- When a stage did not complete, those after it stay where they are: their owner retries or cancels.
- A job whose dependency its owner has written (`Own.chained`) is Slurm's alone: nothing is done to it, except that it
  follows a stage before it which has another job now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.api import Job, JobState, Reason, plural
from penstock.values.waits import Estimate
from penstock.waits.learners.causes import noted
from penstock.workflow.intervals import begun, ended
from penstock.workflow.phases import Kept, RunPhase, StagePhase
from penstock.workflow.run.identity import first_submission
from penstock.workflow.run.instructions import Change, Instruction, Release, Requeue, SlurmView
from penstock.workflow.run.reading import SiteRules, parents_named
from penstock.workflow.run.seen import UNSEEN_TRIES, look_up, ran
from penstock.workflow.run.turn import NOT_OVER, Turn
from penstock.workflow.state import StageRun, WorkflowRun, updated
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import clock
from penstock.workflow.ties import Tie

__all__ = ["absorb", "all_due", "let_go", "may_go", "moved", "released", "verdict", "watch"]


# -- what Slurm says ---------------------------------------------------------------------------------------------------


def absorb(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Bring the entry up to date with what Slurm says of its job; silence is no news."""
    stage = run.stages[i]
    if stage.job is None:
        return run
    rows = turn.view.rows(stage.job)
    if stage.phase.final and not _again(run, stage, rows):
        return run
    return run.put(i, _absorbed(turn, run, stage, stage.job, rows))


def _again(run: WorkflowRun, stage: StageRun, rows: Sequence[Job]) -> bool:
    """Whether a job that had not completed is back in the queue: its owner has requeued it."""
    alive = (r for r in rows if not r.state.ended and r.state is not JobState.REQUEUE_HOLD)
    return stage.phase is not StagePhase.DONE and any(r.uid == run.uid for r in alive)


def _absorbed(turn: Turn, run: WorkflowRun, stage: StageRun, number: int, rows: Sequence[Job]) -> StageRun:
    record = turn.view.records.get(number)
    if rows and stage.asked_at is not None:
        stage = replace(stage, asked=0, asked_at=None)
    if stage.mine.requeued_at is not None and turn.view.taken_at <= stage.mine.requeued_at:
        return stage  # the look is older than what was done to the job
    if any(row.uid != run.uid for row in rows) or (not rows and record is not None and record.user != run.user):
        text = f"job {number} does not belong to {run.user}: it is left alone"
        return replace(stage, phase=StagePhase.FAILED, failure=text, end=turn.now, observed=True)
    if any(row.state is JobState.UNKNOWN for row in rows):
        turn.note(stage.name, "state-unknown", f"job {number} is left alone: Penstock does not know its state")
        return stage
    live = [row for row in rows if not row.state.ended]
    if stage.phase.final:  # its owner has requeued a job that had ended
        stage = replace(stage, end=None, slurm_state=None, exit_code=None, failure=None, observed=False)
        stage = _own(stage, trouble=None)
    ended = [row for row in rows if row.state.ended]
    bad = next((row.state for row in ended if row.state is not JobState.COMPLETED), None)
    if bad is not None and stage.mine.trouble is None:
        stage = _own(stage, trouble=bad.value)
    if live and all(row.state is JobState.REQUEUE_HOLD for row in live):
        text = f"job {number} did not complete, and is held for another run: `scontrol release {number}` lets it begin"
        state = JobState.REQUEUE_HOLD.value
        return replace(stage, phase=StagePhase.FAILED, slurm_state=state, failure=text, end=turn.now, observed=True)
    if live:
        return _held(turn, _hindered(turn, _alive(stage, live, turn.view.taken_at), live[0]), live)
    trouble = None if stage.mine.trouble is None else JobState(stage.mine.trouble)
    if ended:
        state = trouble or JobState.COMPLETED
        starts = [row.start for row in ended if row.start is not None]
        ends = [row.end for row in ended if row.end is not None]
        code = 0 if state is JobState.COMPLETED else None
        return _concluded(_seen(stage, ended[0], rows), state, min(starts, default=None), max(ends, default=None), code)
    if record is not None and record.state.ended:
        stage = replace(stage, eligible=record.eligible, submitted=record.submit)
        place = {"partition": record.partition, "qos": record.qos, "account": record.account}
        stage = _own(stage, **place, nodes=record.num_nodes, limit=record.time_limit)
        return _concluded(stage, trouble or record.state, record.start, record.end, record.exit_code)
    if turn.view.taken_at <= stage.mine.registered:
        return stage
    if number in turn.view.lost:
        text = f"slurmctld has lost job {number}, perhaps in a crash: `penstock retry {run.id}` submits it again"
        return replace(stage, phase=StagePhase.FAILED, failure=text, end=turn.now, observed=True)
    if record is None and stage.submitted is None and stage.asked >= UNSEEN_TRIES:
        times = f"asked {plural(stage.asked, 'time')}"
        text = f"job {number} is neither in the queue nor in accounting ({times}): it is no longer waited for"
        return replace(stage, phase=StagePhase.FAILED, failure=text, end=turn.now, observed=True)
    look_up(turn, stage)
    return stage


def _own(stage: StageRun, **changes: Any) -> StageRun:  # noqa: ANN401
    """The stage with these of `Own`."""
    return updated(stage, own=updated(stage.mine, **changes))


def _seen(stage: StageRun, job: Job, rows: Sequence[Job]) -> StageRun:
    place = {"partition": job.partition, "qos": job.qos, "account": job.account}
    stage = _own(stage, **place, nodes=job.num_nodes, limit=job.time_limit)
    known = {"born": first_submission(stage.born, rows), "restarts": min(row.restarts for row in rows)}
    return updated(stage, submitted=job.submit, eligible=job.eligible, **known)


def _alive(stage: StageRun, live: Sequence[Job], taken_at: float) -> StageRun:
    running = [row for row in live if row.state.holds_nodes]
    if live[0].put_off and stage.mine.kept is Kept.BEGIN and (stage.released or math.inf) < taken_at:
        # Only the agent sets this begin time, and has brought it forward: a slurmctld that crashed has lost that.
        stage = replace(stage, released=None)
    if running:
        phase, start = StagePhase.RUNNING, min((r.start for r in running if r.start is not None), default=None)
        start = start if stage.start is None or start is None or len(live) == 1 else min(start, stage.start)
    else:
        waits = stage.mine.kept and stage.released is None and (live[0].held or live[0].put_off)
        phase, start = (StagePhase.WAITING if waits else StagePhase.QUEUED), None
    return updated(_seen(stage, running[0] if running else live[0], live), phase=phase, start=start)


def _hindered(turn: Turn, stage: StageRun, job: Job) -> StageRun:
    """Note what keeps a job besides its turn; not of one that is kept back, whose time is no part of the wait."""
    if job.put_off:
        return stage
    return updated(stage, hindered=noted(stage.hindered, turn.view.hindered.get(job.id)))


def _held(turn: Turn, stage: StageRun, live: Sequence[Job]) -> StageRun:
    """Note since when all of it is held, by others than the agent: what release 0.1.0 has held is the agent's."""
    ours = stage.mine.kept is Kept.HOLD and stage.released is None
    others = all(row.pending and row.held for row in live) and not ours
    return updated(stage, holds=(begun if others else ended)(stage.holds, turn.view.taken_at))


def _concluded(
    stage: StageRun, state: JobState, start: float | None, end: float | None, exit_code: int | None
) -> StageRun:
    began = ran(stage, state, start, end)
    phase = {JobState.COMPLETED: StagePhase.DONE, JobState.CANCELLED: StagePhase.CANCELLED}.get(
        state, StagePhase.FAILED
    )
    code = "" if not exit_code else f" with exit code {exit_code}"
    return replace(
        stage,
        phase=phase,
        slurm_state=state.value,
        exit_code=exit_code,
        failure=None if phase is StagePhase.DONE else f"job {stage.job} ended {state.value}{code}",
        start=start if began else None,
        eligible=stage.eligible if began else None,
        end=end,
    )


# -- what follows ------------------------------------------------------------------------------------------------------


def verdict(run: WorkflowRun) -> WorkflowRun:
    """Whether the workflow goes on as a whole."""
    broken = _broken(run.stages)
    if run.phase is RunPhase.ACTIVE and broken is not None:
        return replace(run, phase=RunPhase.FAILING, why=f"{broken.name}: {broken.failure}")
    if run.phase is RunPhase.FAILING and broken is None:
        return replace(run, phase=RunPhase.ACTIVE, why=None)
    return run


def _broken(stages: Iterable[StageRun]) -> StageRun | None:
    return next((s for s in stages if s.phase in (StagePhase.FAILED, StagePhase.CANCELLED)), None)


def watch(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Keep a job that has not ended behind those before it, and know whether it may be let go when it is due."""
    stage = run.stages[i]
    if stage.phase.final or stage.job is None:
        return run
    turn.note_held(stage)
    if not stage.after:
        return _may_go(turn, run, i)
    parents = run.parents(i)
    if (broken := _broken(parents)) is not None:
        text = f"{broken.name} did not complete: run `penstock retry {run.id}` or `penstock cancel {run.id}`"
        turn.note(stage.name, "parent-broken", text)
        return run
    open_ = [parent for parent in parents if parent.phase is not StagePhase.DONE]
    if stage.mine.chained:
        _follow(turn, run, i, open_)
        return run
    sure = [p for p in open_ if p.job and any(row.state in NOT_OVER for row in turn.view.rows(p.job))]
    if stage.phase is StagePhase.RUNNING:
        if sure and stage.mine.requeued_at is None:
            text = f"job {stage.job} was started although {sure[0].name} (job {sure[0].job}) has not ended"
            turn.out.append(Requeue(stage.name, stage.job, (Reason("started-early", text),)))
        return run
    job = _waiting(turn, stage)
    if job is None:
        return run
    named = parents_named(job.dependency)
    former = [old for parent in parents for old in parent.mine.former if str(old) in named]
    former += sorted(turn.forgotten_ends(job.dependency, parents))
    lost = [parent for parent in open_ if str(parent.job) not in named]
    unsure = next((parent for parent in lost if parent not in sure), None)
    if unsure is not None:
        turn.note(stage.name, "look-first", f"{unsure.name} must be seen in the queue before anything depends on it")
        return run
    if lost or former:
        jobs = tuple(parent.job for parent in open_ if parent.job is not None)
        kept = _terms_beside(job.dependency, [*former, *(p.job for p in parents if p.job is not None)])
        names = ", ".join(f"{parent.name} (job {parent.job})" for parent in lost)
        text = (
            f"job {stage.job} must wait for {names}" if lost else f"job {former[0]} no longer belongs to the workflow"
        )
        wanted = ",".join([*kept, *(f"afterok:{number}" for number in jobs)])
        reason = Reason("dependency", text)
        turn.out.append(Change(stage.name, job.id, Tie.AFTEROK, jobs, dependency=wanted, reasons=(reason,)))
        return run
    return _may_go(turn, run, i)


def _follow(turn: Turn, run: WorkflowRun, i: int, open_: Sequence[StageRun]) -> None:
    """A stage before it has another job than the one that its owner's dependency names: it waits for that instead."""
    stage, parents, job = run.stages[i], run.parents(i), _waiting(turn, run.stages[i])
    if job is None:
        return
    named = parents_named(job.dependency)
    former = [old for parent in parents for old in parent.mine.former if str(old) in named]
    if not former:
        return
    unseen = next((p for p in open_ if p.job is None or not turn.view.rows(p.job)), None)
    if unseen is not None:
        turn.note(stage.name, "look-first", f"{unseen.name} must be seen in the queue before anything depends on it")
        return
    wanted = moved(job.dependency, parents)
    jobs = tuple(parent.job for parent in open_ if parent.job is not None)
    now = ", ".join(parent.name for parent in open_) or "no other stage"
    text = f"job {former[0]} was submitted again: job {stage.job} waits for {now}"
    reason = Reason("re-pointed", text)
    turn.out.append(Change(stage.name, job.id, Tie.AFTEROK, jobs, dependency=wanted, reasons=(reason,)))


def moved(dependency: str, parents: Sequence[StageRun]) -> str:
    """What a job shall depend on, of which Slurm prints this: on the present jobs of those of its `parents` that have
    not completed, and on all that is about other jobs."""
    theirs = [*(old for p in parents for old in p.mine.former), *(p.job for p in parents if p.job is not None)]
    now = [f"afterok:{p.job}" for p in parents if p.phase is not StagePhase.DONE]
    return ",".join([*_terms_beside(dependency, theirs), *now])


def _waiting(turn: Turn, stage: StageRun) -> Job | None:
    """The stage's job as it waits in the queue; None when it does not, or is not seen."""
    job = None if stage.job is None else turn.view.jobs.get(stage.job)
    return job if job is not None and job.pending else None


def _terms_beside(dependency: str, jobs: Iterable[int]) -> list[str]:
    """The terms of a dependency, as Slurm prints it, that are about other jobs: the owner's own."""
    terms = [term.partition("(")[0].strip() for term in dependency.split(",")]
    numbers = {str(job) for job in jobs}
    return [term for term in terms if term and term != "(null)" and numbers.isdisjoint(parents_named(term))]


def _may_go(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Note whether the job, whose dependency is right, may be let go when it is due."""
    stage, job = run.stages[i], _waiting(turn, run.stages[i])
    own = stage.mine
    if job is None or stage.phase is not StagePhase.WAITING or not own.kept or stage.released is not None:
        return run
    begins = own.kept is Kept.BEGIN
    if job.held if begins else job.reason != "JobHeldUser":
        turn.note(stage.name, "held", f"job {stage.job} is left alone: somebody else has held it ({job.reason})")
    elif begins and not job.put_off:
        pass  # somebody else has let it go
    elif own.begin is not None and own.begin > turn.now:
        turn.note(stage.name, "begin-later", f"its owner has set {clock(own.begin)} as its earliest start")
        return run if stage.due == own.begin else run.put(i, replace(stage, due=own.begin))
    else:
        turn.free[i] = job
    return run


def may_go(turn: Turn, i: int) -> bool:
    """Whether `watch` has found that the job may be let go."""
    return i in turn.free


def all_due(
    site: SiteRules, run: WorkflowRun, view: SlurmView, now: float, why: Reason
) -> tuple[WorkflowRun, Sequence[Instruction]]:
    """A pass in which every job is due: the run as it is seen, and what lets go all that may be let go."""
    turn = Turn(site, view, now, strategy_named(run.acting), lambda _geometry: Estimate(0, 0.0))
    for i in range(len(run.stages)):
        run = absorb(turn, run, i)
    run = verdict(run)
    for i in range(len(run.stages)):
        run = watch(turn, run, i)
        if may_go(turn, i):
            released(turn, run, i, why)
    return run, turn.out


def released(turn: Turn, run: WorkflowRun, i: int, due: Reason) -> None:
    """Let the job go, which is due."""
    stage, job, own = run.stages[i], turn.free[i], run.stages[i].mine
    reasons = [due]
    if any(parent.phase is not StagePhase.DONE for parent in run.parents(i)):
        reasons.append(Reason("dependency-read-back", f"job {job.id} depends on {job.dependency}"))
        if not turn.site.ages(own.kept):
            text = "jobs do not age here while they depend on others: releasing early gains no place in the queue"
            reasons.append(Reason("no-accrual", text))
    # Else it would age from the begin time that does not come. Where all jobs age from their submission on, it has.
    anew = own.kept is Kept.BEGIN and not turn.site.accrues
    turn.out.append(Release(stage.name, job.id, tuple(reasons), own.kept, reset_age=anew))


def let_go(*jobs: int, begin: float | None = None) -> str:
    """The command by which the owner of jobs that are kept back by their begin time, or an operator, lets them go:
    now, or from their owner's own begin time (epoch s) on. Holds of anybody stay."""
    start = "now" if begin is None else datetime.fromtimestamp(int(begin)).isoformat()
    return f"scontrol update jobid={','.join(map(str, jobs))} StartTime={start} ResetAccrueTime"
