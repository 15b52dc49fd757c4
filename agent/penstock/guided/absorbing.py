"""What Slurm says of a stage's job, put into the stage. Pure; silence is no news."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.api import Job, JobState
from penstock.guided.instructions import View
from penstock.guided.state import GuidedRun, GuidedStage, updated
from penstock.waits.causes import hindrance, noted
from penstock.workflow.state import Phase

__all__ = ["UNSEEN_PAUSE", "UNSEEN_TRIES", "absorb", "ask_again"]

# A job that nobody but its owner has ever spoken of: accounting is asked of it so often, the first time at once, and
# then after so long (s), twice that, and so on; it may be behind the queue for a while.
UNSEEN_TRIES: Final = 5
UNSEEN_PAUSE: Final = 15.0
# One that was seen has an end that accounting will know; it is asked ever more rarely.
_SEEN_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 3600.0
# Ends that a job can meet without having run.
_WITHOUT_RUNNING: Final = frozenset({JobState.CANCELLED, JobState.DEADLINE, JobState.BOOT_FAIL})


def absorb(
    run: GuidedRun, stage: GuidedStage, view: View, now: float, note: Callable[[str, str, str], None]
) -> tuple[GuidedStage, bool]:
    """The stage brought up to date, and whether accounting must say what became of its job."""
    rows, record = view.rows.get(stage.job, ()), view.records.get(stage.job)
    if rows and stage.asked_at is not None:
        stage = replace(stage, asked=0, asked_at=None)
    if stage.requeued_at is not None and view.taken_at <= stage.requeued_at:
        return stage, False  # the look is older than what was done to the job
    if any(row.uid != run.uid for row in rows) or (not rows and record is not None and record.user != run.user):
        text = f"job {stage.job} is not {run.user}'s: it is left alone"
        return replace(stage, phase=Phase.FAILED, failure=text, end=now, observed=True), False
    if any(row.state is JobState.UNKNOWN for row in rows):
        note(stage.name, "state-unknown", f"job {stage.job} is in a state that is not understood")
        return stage, False
    live = [row for row in rows if not row.state.ended]
    if stage.phase.final:  # its owner has requeued a job that had ended
        stage = replace(stage, end=None, trouble=None, slurm_state=None, exit_code=None, failure=None, observed=False)
    ended = [row for row in rows if row.state.ended]
    bad = next((row.state for row in ended if row.state is not JobState.COMPLETED), None)
    if bad is not None and stage.trouble is None:
        stage = replace(stage, trouble=bad.value)
    if live:
        return _hindered(_alive(stage, live), live[0], view), False
    if ended:
        state = JobState(stage.trouble) if stage.trouble else JobState.COMPLETED
        starts = [row.start for row in ended if row.start is not None]
        ends = [row.end for row in ended if row.end is not None]
        code = 0 if state is JobState.COMPLETED else None
        first = _placed(stage, ended[0])
        return _concluded(first, state, min(starts, default=None), max(ends, default=None), code), False
    if record is not None and record.state.ended:
        state = JobState(stage.trouble) if stage.trouble else record.state
        first = replace(stage, eligible=record.eligible, submitted=record.submit, limit=record.time_limit)
        first = replace(
            first, partition=record.partition, qos=record.qos, account=record.account, nodes=record.num_nodes
        )
        return _concluded(first, state, record.start, record.end, record.exit_code), False
    if view.taken_at <= stage.registered:
        return stage, False
    if record is None and stage.submitted is None and stage.asked >= UNSEEN_TRIES:
        times = f"asked {stage.asked} times"
        text = f"job {stage.job} was seen neither in the queue nor in accounting ({times}): it is not waited for"
        return replace(stage, phase=Phase.FAILED, failure=text, end=now, observed=True), False
    note(stage.name, "not-seen", f"job {stage.job} is not in the queue: accounting must say what became of it")
    due = ask_again(stage)
    # Where the clock was set back, nobody can tell how long ago it was.
    return stage, due is None or not (stage.asked_at or 0.0) <= now < due


def ask_again(stage: GuidedStage) -> float | None:
    """When accounting is to be asked (again) what became of a job that is not in the queue; None: now."""
    if stage.asked_at is None:
        return None
    first = UNSEEN_PAUSE if stage.submitted is None else _SEEN_PAUSE
    return stage.asked_at + min(_LONGEST_PAUSE, first * 2.0 ** min(stage.asked - 1, 20))


def _placed(stage: GuidedStage, job: Job, **more: Any) -> GuidedStage:  # noqa: ANN401
    return updated(
        stage,
        **more,
        submitted=job.submit,
        eligible=job.eligible,
        partition=job.partition,
        qos=job.qos,
        account=job.account,
        nodes=job.num_nodes,
        limit=job.time_limit,
    )


def _alive(stage: GuidedStage, live: Sequence[Job]) -> GuidedStage:
    running = [row for row in live if row.state.holds_nodes]
    if running:
        phase, start = Phase.RUNNING, min((r.start for r in running if r.start is not None), default=None)
        start = start if stage.start is None or start is None or len(live) == 1 else min(start, stage.start)
    else:
        kept = live[0].held or live[0].put_off
        phase, start = (Phase.SUBMITTED if kept else Phase.QUEUED), None
    first = running[0] if running else live[0]
    return _placed(stage, first, phase=phase, start=start)


def _hindered(stage: GuidedStage, job: Job, view: View) -> GuidedStage:
    """Note what keeps a job besides its turn; not of one that is kept back, whose time is no part of the wait."""
    if job.put_off:
        return stage
    return updated(stage, hindered=noted(stage.hindered, hindrance(job, view.nodes)))


def _concluded(
    stage: GuidedStage, state: JobState, start: float | None, end: float | None, exit_code: int | None
) -> GuidedStage:
    ran = not (
        state in _WITHOUT_RUNNING
        and stage.phase is not Phase.RUNNING
        and (start is None or end is None or start >= end)
    )
    phase = {JobState.COMPLETED: Phase.DONE, JobState.CANCELLED: Phase.CANCELLED}.get(state, Phase.FAILED)
    code = "" if not exit_code else f" with exit code {exit_code}"
    return replace(
        stage,
        phase=phase,
        slurm_state=state.value,
        exit_code=exit_code,
        failure=None if phase is Phase.DONE else f"job {stage.job} ended {state.value}{code}",
        start=start if ran else None,
        eligible=stage.eligible if ran else None,
        end=end,
    )
