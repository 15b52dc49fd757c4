"""The part of a pass that looks after jobs which are in the queue before their parents have ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.api import Job, Reason
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.instructions import Change, Release
from penstock.workflow.run.reading import names_parent
from penstock.workflow.run.turn import Turn, geometry
from penstock.workflow.scripts import dependency_text
from penstock.workflow.state import StageRun, WorkflowRun
from penstock.workflow.strategy import expected_ends, names
from penstock.workflow.ties import Tie

__all__ = ["after_minutes", "pins_for", "watch"]

# How often what ties one job to its parents is changed, at most; letting go of nodes is never too much.
_MOST_CHANGES = 6
# An estimate is asked for anew after so many seconds, and is worth a change of so many minutes.
_ESTIMATE_AGAIN = 300.0
_MINUTES = 2


def watch(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Release, re-point, tie anew or give up job `i`, whatever its parents call for."""
    stage = run.stages[i]
    if not stage.phase.live or stage.job is None:
        return run
    turn.note_held(stage)
    if not stage.depends_on:
        _free(turn, run, i)
        return run
    stale = [job for job in stage.depends_on if job not in {parent.job for parent in run.parents(i)}]
    if stale:
        return _stale(turn, run, i, stale[0])
    if stage.phase is StagePhase.RUNNING:
        return _running(turn, run, i)
    job = turn.view.jobs.get(stage.job)
    if job is None or not turn.view.alive(job.id):
        return run
    if stage.phase is StagePhase.SUBMITTED:
        return _held(turn, run, i, job)
    if not job.pending:
        return run
    often = stage.changes >= _MOST_CHANGES
    if stage.tie is Tie.NODES:
        _pinned(turn, run, i, often=often)
    elif stage.tie.dependent and not often:
        _dependent(turn, run, i, job)
    elif stage.tie is Tie.AFTER and not often:
        return _timed(turn, run, i, job)
    return run


def pins_for(turn: Turn, run: WorkflowRun, i: int) -> tuple[str, ...] | None:
    """One node of each parent that has not completed; None unless all of these run and it asks for enough nodes, any of
    which would do for it: those of another partition would not.

    Children of one parent ask for different nodes of it, so that they do not wait for each other.
    """
    if run.units[i].asks.choosy:
        return None
    found: list[str] = []
    for j in run.stages[i].after:
        parent = run.stages[j]
        if parent.phase is StagePhase.DONE:
            continue
        if run.partitions_of(j) != run.partitions_of(i):
            return None
        seen = None if parent.job is None else turn.view.jobs.get(parent.job)
        if parent.phase is not StagePhase.RUNNING or seen is None or not seen.running or not seen.nodes:
            return None
        place = sum(j in run.stages[k].after for k in range(i))
        found.append(seen.nodes[place % len(seen.nodes)])
    pins = tuple(dict.fromkeys(found))
    return pins if pins and len(pins) <= run.units[i].nodes else None


def after_minutes(run: WorkflowRun, i: int, parents: tuple[int, ...]) -> tuple[int, ...]:
    """How many minutes after the start of each of these parents (places) the job shall be eligible: its expected run
    time less the estimated wait, rounded down (a minute too early costs less than it saves)."""
    estimate = run.stages[i].estimate or 0.0
    return tuple(max(int((run.units[j].run_time - estimate) // 60), 0) for j in parents)


def _free(turn: Turn, run: WorkflowRun, i: int) -> None:
    """A job whose parents had all completed when it was submitted: one of them may have been requeued since."""
    stage, live = run.stages[i], _live_jobs(run, i)
    if live and stage.phase is StagePhase.QUEUED and all(map(turn.at_work, live)):
        text = f"job {live[0]} had completed and was requeued, so job {stage.job} has to wait for it again"
        _change(turn, stage, _Behind(Tie.AFTEROK, live), Reason("re-pointed", text), dependency=True)


def _stale(turn: Turn, run: WorkflowRun, i: int, lost: int) -> WorkflowRun:
    """A parent has another job now: point to that, or where a guard waits for the old one, begin anew."""
    stage, parents = run.stages[i], run.parents(i)
    text = f"job {stage.job} depends on job {lost}, which is no longer a parent's job"
    if turn.strategy.tie.guarded or stage.phase in (StagePhase.RUNNING, StagePhase.SUBMITTED):
        return turn.discard(run, i, Reason("dependency-stale", text))
    live = [parent for parent in parents if parent.phase is not StagePhase.DONE]
    if not all(turn.there(run, parent) for parent in live):
        turn.note(stage.name, "dependency-stale", text + "; it gets a new dependency when the new job is in the queue")
        return run
    jobs = tuple(parent.job for parent in live if parent.job is not None)
    reason = Reason("re-pointed", f"{text}; from now on it waits for {names(live) or 'no other stage'}")
    tie = Tie.AGED if stage.tie is Tie.AGED else Tie.AFTEROK
    _change(turn, stage, _Behind(tie if jobs else Tie.NONE, jobs), reason, dependency=True)
    return run


def _running(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """It has nodes: if a parent is not over yet it is too early, and waits only if that is not for long."""
    stage = run.stages[i]
    early = [j for j in stage.after if turn.at_work(run.stages[j].job) and run.stages[j].job in stage.depends_on]
    if not early:
        return run
    first = run.stages[early[0]]
    text = f"job {stage.job} was started although {first.name} (job {first.job}) has not ended"
    if turn.strategy.tie.guarded:
        left = max(expected_ends(run, early, turn.now)[j][0] for j in early) - turn.now
        waited = turn.now - (stage.start if stage.start is not None else turn.now)
        grace = turn.site.grace_of(run.unit(i))
        if left + waited <= grace:
            turn.note(stage.name, "idles", f"{text}; it waits for that, which is expected in {left:.0f} s")
            return run
        text += f"; that is expected in {left:.0f} s, and it may idle for {grace:.0f} s at most"
    return turn.discard(run, i, Reason("started-early", text), miss=True)


def _held(turn: Turn, run: WorkflowRun, i: int, job: Job) -> WorkflowRun:
    """Release a held job once its dependency is read back; give it up if it is lost. A hold of others stays."""
    stage = run.stages[i]
    parents = {parent.job: parent for parent in run.parents(i) if parent.job is not None}
    needed = tuple(number for number in stage.depends_on if parents[number].phase is not StagePhase.DONE)
    missing = [number for number in needed if not names_parent(job.dependency, number)]
    if job.reason == "JobHeldAdmin":  # an agent that is an Operator would lift that as well
        turn.note(stage.name, "held", f"job {job.id} is left alone: an administrator has held it")
    elif not needed:
        reason = Reason("parent-done", f"{names(parents.values())} completed: the job no longer needs a dependency")
        turn.out.append(Release(stage.name, job.id, (reason,)))
    elif not missing:
        reason = Reason("dependency-read-back", f"job {job.id} depends on {job.dependency}: safe to release")
        turn.out.append(Release(stage.name, job.id, (reason,)))
    for number in missing:
        # ending or unseen parents are left out: Slurm clears a dependency when it is fulfilled
        if turn.at_work(number):
            text = f"job {job.id} has lost its dependency on {parents[number].name} (job {number})"
            return turn.discard(run, i, Reason("dependency-lost", text))
    return run


def _dependent(turn: Turn, run: WorkflowRun, i: int, job: Job) -> None:
    """A released job: let it wait for nodes of its parents instead if that is the strategy; keep its dependency."""
    stage = run.stages[i]
    if turn.strategy.tie is Tie.NODES and turn.whole_nodes(run, i) and (pins := pins_for(turn, run, i)):
        live = _live_jobs(run, i)
        text = f"its parents run: job {job.id} now waits for {', '.join(pins)} instead of for them, so that it ages"
        behind = _Behind(Tie.NODES, live, pins=pins)
        _change(turn, stage, behind, Reason("pinned", text), dependency=True, nodelist=True)
        return
    if stage.looked_at is not None and turn.view.taken_at <= stage.looked_at:
        return
    if done := turn.forgotten_ends(job.dependency, run.parents(i)):
        live = _live_jobs(run, i)
        text = f"job {min(done)} had completed, which slurmctld has lost: job {job.id} no longer waits for it"
        tie = stage.tie if live else Tie.NONE
        _change(turn, stage, _Behind(tie, live), Reason("re-pointed", text), dependency=True)
        return
    lost = [n for n in stage.depends_on if turn.at_work(n) and not names_parent(job.dependency, n)]
    if lost:
        text = f"job {lost[0]} was requeued: job {job.id} gets its dependency on it again"
        _change(turn, stage, _Behind(stage.tie, stage.depends_on), Reason("re-pointed", text), dependency=True)


def _pinned(turn: Turn, run: WorkflowRun, i: int, *, often: bool) -> None:
    """A job that waits for nodes of its parents: follow them, and let go when they have ended."""
    stage = run.stages[i]
    live = _live_jobs(run, i)
    if not live:
        if stage.pins:
            text = f"its parents have ended: job {stage.job} may run on any nodes"
            _change(turn, stage, _Behind(Tie.NODES, stage.depends_on), Reason("unpinned", text), nodelist=True)
        return
    pins = pins_for(turn, run, i)
    if pins is not None and set(pins) != set(stage.pins) and not often:
        text = f"job {stage.job} now waits for {', '.join(pins)}"
        _change(turn, stage, _Behind(Tie.NODES, live, pins=pins), Reason("pinned", text), nodelist=True)
    elif pins is None and all(turn.at_work(number) for number in live):
        text = f"a parent no longer runs: job {stage.job} depends on it again"
        _change(turn, stage, _Behind(Tie.AFTEROK, live), Reason("unpinned", text), dependency=True, nodelist=True)


def _timed(turn: Turn, run: WorkflowRun, i: int, job: Job) -> WorkflowRun:
    """A job that Slurm makes eligible at a time: estimate its wait again now and then, as long as that has not come."""
    stage = run.stages[i]
    if job.eligible is not None and job.eligible <= turn.now:
        return run
    last = stage.looked_at if stage.looked_at is not None else stage.submitted
    if last is not None and turn.now - last >= _ESTIMATE_AGAIN:
        found = turn.predict(geometry(run, i))
        stage = replace(
            stage,
            looked_at=turn.now,
            estimate=found.seconds,
            estimate_index=found.index,
            estimate_said=dict(found.said),
        )
        run = run.put(i, stage)
    places = tuple(j for j in stage.after if run.stages[j].job in stage.depends_on)
    minutes = after_minutes(run, i, places)
    if any(abs(a - b) >= _MINUTES for a, b in zip(minutes, stage.minutes, strict=True)):
        jobs = tuple(number for j in places if (number := run.stages[j].job) is not None)
        text = (
            f"estimated wait now {stage.estimate or 0:g} s: eligible {', '.join(map(str, minutes))} min after the start"
        )
        behind = _Behind(Tie.AFTER, jobs, minutes)
        _change(turn, stage, behind, Reason("estimated-again", text), dependency=True)
    return run


def _live_jobs(run: WorkflowRun, i: int) -> tuple[int, ...]:
    return tuple(p.job for p in run.parents(i) if p.job is not None and p.phase is not StagePhase.DONE)


@dataclass(frozen=True, slots=True)
class _Behind:
    """What a job is to wait for: `jobs`, by `tie`, `minutes` after their starts; and for the nodes `pins`."""

    tie: Tie
    jobs: tuple[int, ...]
    minutes: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()


def _change(
    turn: Turn, stage: StageRun, behind: _Behind, reason: Reason, *, dependency: bool = False, nodelist: bool = False
) -> None:
    """Have the job's `dependency`, or the `nodelist` that it asks for, be what it is to wait for."""
    assert stage.job is not None
    tie, jobs, minutes, pins = behind.tie, behind.jobs, behind.minutes, behind.pins
    turn.out.append(
        Change(
            stage.name,
            stage.job,
            tie,
            jobs,
            minutes,
            pins,
            dependency=(dependency_text(tie, jobs, minutes) or "") if dependency else None,
            nodelist=pins if nodelist else None,
            reasons=(reason,),
        )
    )
