"""Runs one workflow, without I/O: state and a view of Slurm in, new state and instructions out.

The loop calls, once per pass and run, `step`; carries the instructions out; reports `submitted`, `submit_failed`,
`released`, `cancel` as they happen; and sleeps until `next_wake`. Every call returns a new state to be stored. The
runner looks at the whole view each time and remembers no events, so a missed one does no harm, and a step repeated
with the same view adds nothing but what is still needed.

What it holds to (from what was seen on real Slurm):
- Before a stage is submitted its parents are looked at: completed -> no dependency on it (Slurm may have forgotten the
  job and would drop the dependency without a word), alive -> `afterok:`, one of them not seen -> nothing.
- Where Slurm forgets jobs so soon that it might have forgotten a parent by then, the job is held, and released only
  after its dependency has been read back.
- A job that Slurm could start before its parents have ended has a guard in its script (`guard.py`).
- A job that is not in the snapshot has not ended: only the snapshot or accounting can say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace

from penstock.api import Geometry
from penstock.core.pace import at_once
from penstock.values.waits import Estimate
from penstock.workflow.model import Workflow
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.run import passes
from penstock.workflow.run.absorb import back_off
from penstock.workflow.run.instructions import Change, RunStep, SlurmView, Submit
from penstock.workflow.run.reading import SiteRules
from penstock.workflow.run.seen import ask_again
from penstock.workflow.run.turn import spec_of
from penstock.workflow.state import StageRun, WorkflowRun
from penstock.workflow.strategies.cuts import place_units
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import Outlook, Plan, Rules

__all__ = ["Runner"]

_SETTLE = 30.0  # how long (s) a submission whose answer was lost may take to show up in the queue


def _anything(max_time: float | None) -> Outlook:
    return Outlook(lambda _geometry: 0.0, rules=Rules(no_early_age=None), max_time=max_time)


class Runner:
    """The rules of one site. Holds no state of any run; one instance serves all.

    `accrues`: a job with an unfulfilled dependency gains priority while it waits here (ACCRUE_ALWAYS, or
    priority/basic). `cycle`: one scheduler cycle in seconds; a dependent job that starts this soon after its parent's
    end was ready before it. `grace`: how long (s) a job that was started too early may idle. `whole_nodes`: jobs share
    no nodes, so that one can wait for a node of another. `ages_from_release`: jobs that are let go by their begin time
    age from then on, too, while they depend on others (no limits are enforced). `remembers`: how long (s) Slurm keeps a
    job in memory that has ended (MinJobAge). `may_age`: a job is made to age while it depends on others, where that
    gains something.
    """

    def __init__(
        self,
        *,
        accrues: bool,
        cycle: float = 5.0,
        grace: float = 300.0,
        whole_nodes: bool = False,
        ages_from_release: bool = False,
        remembers: float = 0.0,
        may_age: bool = False,
    ) -> None:
        self._site = SiteRules(accrues, cycle, grace, whole_nodes, ages_from_release, remembers, may_age)

    def start(
        self,
        run_id: int,
        workflow: Workflow,
        strategy: str,
        now: float,
        *,
        partition: str,
        qos: str = "",
        token: str = "",
        plan: Plan | None = None,
        max_time: float | None = None,
    ) -> WorkflowRun:
        """A new run, nothing submitted yet. `partition` and `qos` are what Slurm uses where the workflow names none.

        `token` tells runs of the same number apart when the agent's state was started afresh: job names hold it.
        `plan` is the strategy's; None: what it makes of waits that are 0 where it may do all. `max_time` (s) is
        the partition's limit.

        Raises UserError for an unknown strategy or a workflow that the strategy cannot run.
        """
        planned = plan or strategy_named(strategy).plan(workflow, _anything(max_time))
        units = place_units(workflow, planned.cut)
        place = {unit.name: i for i, unit in enumerate(units)}
        covers = dict(planned.cut)
        stages = [StageRun(unit.name, tuple(place[p] for p in unit.after), covers=covers[unit.name]) for unit in units]
        return WorkflowRun(
            id=run_id,
            name=workflow.name,
            flow=workflow,
            strategy=strategy,
            by=planned.by,
            submitted_at=now,
            partition=workflow.partition or partition,
            qos=workflow.qos or qos,
            stages=tuple(stages),
            units=units,
            max_time=max_time,
            levels_ahead=planned.levels_ahead,
            gain=planned.gain,
            token=token,
        )

    def step(self, run: WorkflowRun, view: SlurmView, now: float, predict: Callable[[Geometry], Estimate]) -> RunStep:
        """One pass. `predict` is called once per stage: under a strategy that goes by the estimate when its parents
        have been submitted (without any: right away), else when the stage itself is submitted or let go."""
        return at_once(self.steps(run, view, now, predict))

    def steps(
        self, run: WorkflowRun, view: SlurmView, now: float, predict: Callable[[Geometry], Estimate]
    ) -> Generator[int, None, RunStep]:
        """The same in small parts (see `Pace.walk`): each does as much work as it says, in stages and edges looked
        through."""
        return passes.steps(self._site, run, view, now, predict)

    def submitted(self, run: WorkflowRun, stage: str, job: int, now: float, called: str = "") -> WorkflowRun:
        """The stage's Submit succeeded as `job`, which is `called` that (also: found again by its name). Idempotent.

        A job the run has no use for (reported twice under different ids) is not lost: it will be cancelled.
        """
        entry = run.stage(stage)
        if entry.job == job or job in run.discarded:
            return run
        if entry.phase is not StagePhase.INTENDED:
            return run.without(job, None, called)
        held = entry.hold and entry.tie.dependent and entry.depends_on and not run.in_slots
        phase = StagePhase.SUBMITTED if held else StagePhase.QUEUED
        entry = replace(entry, phase=phase, job=job, called=called, born=None, submitted=now)
        return run.with_stage(replace(entry, failures=0, retry_at=None, failure=None))

    def submit_failed(self, run: WorkflowRun, stage: str, final: bool, text: str, now: float) -> WorkflowRun:
        """The stage's Submit certainly left no job behind. `final`: it never will (the workflow fails); else it is
        tried again after 5, 10, 20 ... 300 s. Ignored unless a Submit is open.

        The first final refusal of a job with a dependency, or with nodes that it must or must not have, is tried again
        all the same: from 23.02 on Slurm refuses it when the parent has just left its memory, and the next look at the
        parent then decides without a dependency; the nodes may be gone, and are not asked for again.
        """
        entry = run.stage(stage)
        if entry.phase is not StagePhase.INTENDED:
            return run
        if final and (not (entry.depends_on or entry.exclude) or entry.failures > 0):
            return run.with_stage(replace(entry, phase=StagePhase.FAILED, failure=f"could not be submitted: {text}"))
        return run.with_stage(
            replace(
                entry,
                phase=StagePhase.WAITING,
                failures=entry.failures + 1,
                retry_at=now + back_off(entry.failures),
                depends_on=(),
                exclude=() if final else entry.exclude,
                failure=text,
            )
        )

    def unseen(self, run: WorkflowRun, stage: str, now: float, text: str = "") -> WorkflowRun:
        """Nobody knows a job of the stage's Submit; `text`: what was answered. When that has lasted 30 s it never
        reached Slurm, and is tried again. The state holds since when, because with `penstock tick` every look is
        another process's."""
        entry = run.stage(stage)
        if entry.phase is not StagePhase.INTENDED:
            return run
        entry = replace(entry, failure=text or entry.failure)
        if entry.sought is None or now < entry.sought:
            return run.with_stage(replace(entry, sought=now))
        if now - entry.sought < _SETTLE:
            return run
        return self.submit_failed(run, stage, False, entry.failure or "the submission did not reach Slurm", now)

    def released(self, run: WorkflowRun, stage: str, now: float) -> WorkflowRun:
        """The stage's job, which was kept back, was let go. Idempotent."""
        entry = run.stage(stage)
        if entry.phase is not (StagePhase.WAITING if run.owned else StagePhase.SUBMITTED):
            return run
        return run.with_stage(replace(entry, phase=StagePhase.QUEUED, released=now))

    def requeued(self, run: WorkflowRun, stage: str, job: int, now: float) -> WorkflowRun:
        """The stage's running job, which its owner has submitted, was put back into the queue."""
        entry = run.stage(stage)
        if entry.job != job or entry.own is None:
            return run
        return run.with_stage(replace(entry, own=replace(entry.own, requeued_at=now)))

    def changed(self, run: WorkflowRun, order: Change, now: float) -> WorkflowRun:
        """What ties the job to its parents was changed as ordered. Idempotent."""
        entry = run.stage(order.stage)
        if entry.job != order.job or run.owned:  # what an owner's job depends on is what Slurm shows
            return run
        return run.with_stage(
            replace(
                entry,
                tie=order.tie,
                depends_on=order.depends_on,
                minutes=order.minutes,
                pins=order.pins,
                changes=entry.changes + 1,
                looked_at=now,
            )
        )

    def cancel(self, run: WorkflowRun, why: str) -> WorkflowRun:
        """The user wants the workflow gone; coming steps cancel its jobs. Without effect on one that has ended."""
        if run.phase.final or run.phase is RunPhase.CANCELLING:
            return run
        return replace(run, phase=RunPhase.CANCELLING, why=why)

    def next_wake(self, run: WorkflowRun, now: float) -> float | None:
        """The next instant after `now` at which a step has something to do even without news from Slurm, or None: a
        stage is due, is to be asked for again, or should have ended (its end is to be seen soon; not of one that is
        being cancelled), or no more stages are waited for.

        What is due already but could not be done waits for a new snapshot (`wants_look`), not for an instant.
        """
        if run.phase.final:
            return None
        strategy = strategy_named(run.acting)
        instants = [] if run.open_until is None else [run.open_until]
        for i, stage in enumerate(run.stages):
            if stage.start is not None and stage.phase.live and run.phase is not RunPhase.CANCELLING:
                instants.append(stage.start + run.units[i].run_time + 1.0)
            if stage.asked_at is not None and not stage.phase.final and (again := ask_again(stage)) is not None:
                instants.append(again)
            if stage.phase is not StagePhase.WAITING or not run.goes_on:
                continue
            if stage.own is not None:  # as the last pass has found it: there may be thousands of them
                instants += [t for t in (stage.due, stage.own.begin) if t is not None]
                continue
            due = strategy.due(run, i, now)
            if due.at is not None and due.fixed:
                instants.append(max(due.at, stage.retry_at or due.at))
        return min((t for t in instants if now < t < math.inf), default=None)

    def asks(self, run: WorkflowRun) -> bool:
        """Whether a Submit was given out that was not reported on."""
        return any(stage.phase is StagePhase.INTENDED for stage in run.stages)

    def wants_look(self, run: WorkflowRun, taken_at: float) -> bool:
        """Whether a snapshot newer than the one of `taken_at` is wanted before the usual interval is over: a job was
        submitted since, and what follows (a release, the next stage) waits until it is seen."""
        return not run.phase.final and any(
            s.phase in (StagePhase.SUBMITTED, StagePhase.QUEUED) and s.submitted is not None and s.submitted >= taken_at
            for s in run.stages
        )

    def intended(self, run: WorkflowRun) -> tuple[Submit, ...]:
        """The Submits that were given out and not reported on, as they were: for reconciling after a restart."""
        strategy = strategy_named(run.acting)
        return tuple(
            Submit(stage.name, spec_of(self._site, strategy, run, i))
            for i, stage in enumerate(run.stages)
            if stage.phase is StagePhase.INTENDED
        )
