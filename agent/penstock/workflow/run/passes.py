"""The parts of one pass of the runner, in their order: absorb, draw consequences, watch, plan, observe, finish.

Functions of (turn, run); `Runner` is the way in and says what holds. A `Turn` only gathers instructions and notes. The
order is the same whoever submits the jobs; what is particular to those of an owner is in `owned.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Final

from penstock.api import Geometry, Reason, plural
from penstock.values.waits import Estimate
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.run import owned
from penstock.workflow.run.absorb import absorb, clear_discarded
from penstock.workflow.run.calm import kept_back
from penstock.workflow.run.instructions import Cancel, Finished, Lookup, RunStep, SlurmView, Submit
from penstock.workflow.run.reading import SiteRules
from penstock.workflow.run.turn import Turn, geometry, spec_of
from penstock.workflow.run.watch import after_minutes, pins_for, watch
from penstock.workflow.state import StageRun, WorkflowRun
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import live_parents
from penstock.workflow.ties import Tie

__all__ = ["steps"]

_YOUNG: Final = 60.0  # seconds after which a job is no longer one that is submitted now
_PART: Final = 100  # stages and edges that are looked through without a break


def steps(
    site: SiteRules, run: WorkflowRun, view: SlurmView, now: float, predict: Callable[[Geometry], Estimate]
) -> Generator[int, None, RunStep]:
    """See `Runner.steps`."""
    if run.phase.final:
        return RunStep(run)
    if not view.usable:
        reason = Reason("hold", "nothing is done: what is known of Slurm is incomplete or out of date")
        return RunStep(run, (), (("", reason),))
    turn = Turn(site, view, now, strategy_named(run.acting), predict)
    parts, theirs = tuple(_parts(run)), run.owned
    for places, work in parts:
        for i in places:
            run = owned.absorb(turn, run, i) if theirs else absorb(turn, run, i)
        yield work
    run = owned.verdict(run) if theirs else _consequences(turn, clear_discarded(turn, run))
    if run.goes_on:
        for places, work in parts:
            for i in places:
                run = _at_sight(turn, _ahead(turn, owned.watch(turn, run, i), i), i) if theirs else watch(turn, run, i)
            yield work
        planned = run
        for places, work in parts:
            for i in places:
                if theirs:  # no job goes by what is planned for another in the same pass: ends are worked out once
                    run = _plan(turn, run, i, planned)
                else:
                    run = _ahead(turn, run, i)
                    run = _plan(turn, run, i, run)
            yield work
    elif not theirs:
        run = _stop(turn, _settled(turn, run))
    for places, work in parts:
        for i in places:
            run = turn.observe(run, i)
        yield work
    run = _finish(turn, run)
    if turn.lookups:
        turn.out.append(Lookup(tuple(sorted(turn.lookups))))
    return RunStep(run, tuple(turn.out), tuple(turn.notes), turn.more)


def _parts(run: WorkflowRun) -> Iterator[tuple[range, int]]:
    """The entries in parts, and how much there is to look through in each: stages, and how often one comes after
    another."""
    first = work = 0
    for i, stage in enumerate(run.stages):
        work += 1 + len(stage.after)
        if work >= _PART or i == len(run.stages) - 1:
            yield range(first, i + 1), work
            first, work = i + 1, 0


def _consequences(turn: Turn, run: WorkflowRun) -> WorkflowRun:
    """The first failed stage fails the workflow."""
    failed = next((s for s in run.stages if s.phase is StagePhase.FAILED), None)
    if failed is None or run.phase is not RunPhase.ACTIVE:
        return run
    why = f"{failed.name}: {failed.failure}"
    turn.note("", "stage-failed", why)
    return replace(run, phase=RunPhase.FAILING, why=why)


def _settled(turn: Turn, run: WorkflowRun) -> WorkflowRun:
    """Nothing more is waited for: jobs that have ended are over, also where it was open what follows."""
    for i, stage in enumerate(run.stages):
        seen = None if stage.job is None else turn.view.jobs.get(stage.job) or turn.view.records.get(stage.job)
        if stage.phase.live and seen is not None and seen.state.ended:
            run = absorb(turn, run, i)
    return run


def _stop(turn: Turn, run: WorkflowRun) -> WorkflowRun:
    """Cancel what is left. When a stage failed, running ones that do not come after it may end; nothing new starts."""
    lost = run.following(i for i, s in enumerate(run.stages) if s.phase is StagePhase.FAILED)
    reason = Reason("workflow-cancelled" if run.phase is RunPhase.CANCELLING else "workflow-failed", run.why or "")
    for i, stage in enumerate(run.stages):
        if stage.phase is StagePhase.WAITING:
            run = run.put(i, replace(stage, phase=StagePhase.CANCELLED, failure=reason.text))
        elif stage.phase is StagePhase.INTENDED:
            turn.note(stage.name, "submit-open", "its submission is under way: it is cancelled when its id is known")
        elif stage.phase.live and stage.job is not None:
            if run.phase is RunPhase.FAILING and i not in lost and stage.phase is StagePhase.RUNNING:
                turn.note(stage.name, "runs-on", f"job {stage.job} runs on to its end")
            else:
                turn.out.append(Cancel(stage.name, stage.job, (reason,)))
    return run


def _open(turn: Turn, run: WorkflowRun, i: int) -> bool:
    """Whether there is something to plan for entry `i`."""
    return run.stages[i].phase is StagePhase.WAITING and (not run.owned or owned.may_go(turn, i))


def _ahead(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Estimate the wait of a stage whose parents have been submitted, where the strategy goes by it."""
    if not turn.strategy.ahead or not _open(turn, run, i):
        return run
    if any(parent.submitted is None for parent in run.parents(i)):
        return run
    return _estimated(turn, run, i)


def _at_sight(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Estimate the wait of a job that its owner has submitted a moment ago and that is not kept back: what is expected
    now of one that has waited for long is another thing."""
    stage = run.stages[i]
    fresh = stage.submitted is not None and 0 <= turn.now - stage.submitted < _YOUNG
    if stage.phase is not StagePhase.QUEUED or stage.after or stage.mine.kept or not fresh:
        return run
    return _estimated(turn, run, i)


def _estimated(turn: Turn, run: WorkflowRun, i: int) -> WorkflowRun:
    """Estimate the wait of a stage, once. In a slot of its own it waits in no queue."""
    stage = run.stages[i]
    if stage.estimate is not None or run.in_slots:
        return run
    estimate = turn.predict(geometry(run, i))
    said = dict(estimate.said)
    return run.put(i, replace(stage, estimate=estimate.seconds, estimate_index=estimate.index, estimate_said=said))


def _plan(turn: Turn, run: WorkflowRun, i: int, planned: WorkflowRun) -> WorkflowRun:
    """Submit a stage, or let it go, when it is due by what `planned` shows of the workflow."""
    if not _open(turn, run, i):
        return run
    stage, due = run.stages[i], turn.strategy.due(planned, i, turn.now)
    if (stage.due, stage.parent_end) != (due.at, due.parent_end):
        stage = replace(stage, due=due.at, parent_end=due.parent_end)
        run = run.put(i, stage)
    if due.at is None or due.at > turn.now:
        turn.notes.append((stage.name, due.reason))
        return run
    starts = turn.now if due.parent_end is None else max(turn.now, due.parent_end)  # not before its parents have ended
    if run.in_slots and not stage.held.queued:  # what is held for a stage is no maintenance in its way
        if stage.held.hold not in turn.view.held:
            turn.note(stage.name, "no-slot", f"{stage.name} has no slot now, and waits for a new one")
            return run
    elif (maintenance := kept_back(turn.view, run.partitions_of(i), run.unit(i), starts, run.done)) is not None:
        turn.notes.append((stage.name, maintenance))
        return run
    if run.owned:
        run = _estimated(turn, run, i)
        owned.released(turn, run, i, due.reason)
        return run
    return _submit(turn, run, i, due.reason)


def _submit(turn: Turn, run: WorkflowRun, i: int, due: Reason) -> WorkflowRun:
    """Submit the stage, which is due, behind those of its parents that have not ended, once these are seen alive."""
    stage = run.stages[i]
    if stage.retry_at is not None and turn.now < stage.retry_at:
        turn.note(stage.name, "back-off", f"tried again later: {stage.failure or 'the last attempt failed'}")
        return run
    if run.discarded and turn.strategy.tie.guarded:
        # its guard might let a given-up job go yet: two at a time would do the work twice
        turn.note(stage.name, "given-up-first", f"waits until job {run.discarded[0]}, which was given up, has ended")
        return run
    live = live_parents(run, i)
    reasons = [due]
    for j in live:
        parent = run.stages[j]
        if not parent.phase.live or not turn.there(run, parent):
            turn.note(stage.name, "look-first", f"{parent.name} must be seen in the queue before a job depends on it")
            return run
    run = _estimated(turn, run, i)
    jobs = tuple(job for j in live if (job := run.stages[j].job) is not None)
    stage, tied = _tied(turn, run, i, jobs)
    reasons += tied
    stage = replace(stage, phase=StagePhase.INTENDED, attempt=stage.attempt + 1, depends_on=jobs)
    run = run.put(i, replace(stage, retry_at=None, sought=None))
    turn.out.append(Submit(stage.name, spec_of(turn.site, turn.strategy, run, i), tuple(reasons)))
    return run


def _tied(turn: Turn, run: WorkflowRun, i: int, jobs: tuple[int, ...]) -> tuple[StageRun, list[Reason]]:
    """The entry with what keeps its job behind these parents' jobs, and the words for it."""
    stage, tie = run.stages[i], turn.strategy.tie
    if not jobs:
        return replace(stage, tie=Tie.NONE, minutes=(), pins=()), []
    told = ", ".join(f"{p.name} is job {p.job}" for p in run.parents(i) if p.job in jobs)
    if tie is Tie.NODES:
        pins = pins_for(turn, run, i) if turn.whole_nodes(run, i) else None
        if pins:
            text = f"{told}: it requests {', '.join(pins)}, so it ages and is scheduled like any other waiting job"
            return replace(stage, tie=tie, minutes=(), pins=pins), [Reason("pinned", text)]
        tie = Tie.AGED if turn.site.may_age else Tie.AFTEROK
    if tie is Tie.AFTER:
        minutes = after_minutes(run, i, tuple(live_parents(run, i)))
        text = f"{told}: eligible {', '.join(map(str, minutes))} min after the start; if too early, its script waits"
        return replace(stage, tie=tie, minutes=minutes, pins=()), [Reason("after-start", text)]
    stage = replace(stage, tie=tie, minutes=(), pins=())
    if tie is Tie.GUARD:
        return stage, [Reason("guarded", f"{told}: no dependency; if too early, its script waits")]
    held = not turn.site.remembers_since(turn.view.taken_at, turn.now)
    stage = replace(stage, hold=held)
    text = f"{told}: it depends on them (afterok)" + (", and is held until Slurm shows the dependency" * held)
    reasons = [Reason("parent-alive", text)]
    if tie is Tie.AGED:
        text = "it has a begin time that comes at once, from which it ages although it depends on others"
        reasons.append(Reason("ages", text))
    elif not turn.site.accrues and turn.strategy.tie is not Tie.NODES:
        text = "jobs do not age here while they depend on others: submitting early gains no place in the queue"
        reasons.append(Reason("no-accrual", text))
    return stage, reasons


def _finish(turn: Turn, run: WorkflowRun) -> WorkflowRun:
    if turn.more or run.discarded or run.leaving or not all(s.phase.final for s in run.stages):
        return run
    if run.open_until is not None and turn.now < run.open_until and run.phase is not RunPhase.CANCELLING:
        return run
    if run.in_slots and any(stage.held.hold in turn.view.held for stage in run.stages):
        return run  # a slot is still to be given back
    broken = [s for s in run.stages if s.phase is not StagePhase.DONE]
    ended = max((s.end for s in run.stages if s.end is not None), default=None)
    if not broken:
        phase, why = RunPhase.COMPLETED, f"{plural(len(run.stages), 'stage' if run.owned else 'job')} completed"
    elif run.phase is RunPhase.CANCELLING or (run.owned and all(s.phase is StagePhase.CANCELLED for s in broken)):
        phase, why = RunPhase.CANCELLED, run.why or f"{broken[0].name} was cancelled"
    else:
        phase, why = RunPhase.FAILED, run.why or f"{broken[0].name}: {broken[0].failure}"
    if broken and not run.owned:
        ended = None  # its jobs are cancelled since
    turn.out.append(Finished(phase is RunPhase.COMPLETED, why))
    return replace(run, phase=phase, why=why, ended_at=turn.now if ended is None else ended)
