"""One look at one run: what is known, and what has been said about it so far. Used by the parts of a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.api import Geometry, Job, JobSpec, JobState, Reason
from penstock.values.waits import Estimate
from penstock.waits.learners.causes import Cause, learnable
from penstock.workflow.guard import Guard
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.instructions import Cancel, Instruction, Observe, SlurmView
from penstock.workflow.run.reading import SiteRules, failed_on, observed_wait, parents_named
from penstock.workflow.scripts import job_spec
from penstock.workflow.state import StageRun, WorkflowRun
from penstock.workflow.strategy import Strategy
from penstock.workflow.ties import Tie

__all__ = ["NOT_OVER", "Turn", "fresh", "geometry", "spec_of"]

_MOST_LEARNED: Final = 20  # waits of a run in one pass: each costs milliseconds
# states of a parent in which a job that is `afterok` it cannot have been started by Slurm
NOT_OVER = frozenset(
    {JobState.PENDING, JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESIZING, JobState.REQUEUED}
    | {JobState.REQUEUE_HOLD}
)


@dataclass(slots=True)
class Turn:
    """What a pass knows, and the instructions and notes it has come to. `free` are the waiting jobs, by the entry, that
    may be let go when they are due; `learned` and `more`: see `observe`."""

    site: SiteRules
    view: SlurmView
    now: float
    strategy: Strategy
    predict: Callable[[Geometry], Estimate]
    out: list[Instruction] = field(default_factory=list)
    notes: list[tuple[str, Reason]] = field(default_factory=list)
    lookups: set[int] = field(default_factory=set)
    free: dict[int, Job] = field(default_factory=dict)
    learned: int = 0
    more: bool = False

    def note(self, stage: str, code: str, text: str) -> None:
        """Say why nothing more is done for a stage ("": for the run)."""
        self.notes.append((stage, Reason(code, text)))

    def note_held(self, stage: StageRun) -> None:
        """Say of a job that has been let go that it is held, by a person or by Slurm itself after a failed launch: only
        a person lets it go."""
        job = None if stage.job is None else self.view.jobs.get(stage.job)
        if stage.phase is StagePhase.QUEUED and job is not None and job.pending and job.held:
            self.note(stage.name, "held", f"job {job.id} is left alone: it is held ({job.reason})")

    def revived(self, stage: StageRun) -> bool:
        """Whether a job that has completed is there as if it had not, without a requeue: slurmctld lost its end in a
        crash, and may run it again."""
        job = None if stage.job is None else self.view.jobs.get(stage.job)
        done = stage.phase is StagePhase.DONE
        return done and job is not None and job.state in NOT_OVER and job.restarts <= stage.restarts

    def forgotten_ends(self, dependency: str, parents: Sequence[StageRun]) -> set[int]:
        """Jobs of these parents that have completed, and on which a job with this dependency waits all the same:
        slurmctld takes them for failed, or for still to come."""
        failed = failed_on(dependency)
        ended = [p for p in parents if p.phase is StagePhase.DONE and p.job is not None]
        return {
            p.job
            for p in ended
            if p.job is not None and (p.job in failed or (self.revived(p) and str(p.job) in parents_named(dependency)))
        }

    def at_work(self, job: int | None) -> bool:
        """Whether the view shows the job in a state before its end."""
        seen = None if job is None else self.view.jobs.get(job)
        return seen is not None and seen.state in NOT_OVER

    def there(self, run: WorkflowRun, parent: StageRun) -> bool:
        """Whether a parent's job is seen alive, so that another may be made to depend on it. One that is younger than
        the look will do where Slurm cannot have forgotten it yet, and in slots: all are to be there before the first
        of them begins."""
        if parent.job is None:
            return False
        young = parent.submitted is not None and parent.submitted >= self.view.taken_at
        sure = run.in_slots or self.site.remembers_since(self.view.taken_at, self.now)
        return (young and sure) or self.view.alive(parent.job)

    def whole_nodes(self, run: WorkflowRun, i: int) -> bool:
        """Whether the job of entry `i` shares no nodes: nowhere here, or not in any of its partitions."""
        found = [self.view.partitions.get(name) for name in run.partitions_of(i)]
        return self.site.whole_nodes or all(partition is not None and partition.exclusive for partition in found)

    def observe(self, run: WorkflowRun, i: int, *, last: bool = False) -> WorkflowRun:
        """Learn from the wait of entry `i` once it is known, unless enough is learned in this pass. `last`: there is no
        other pass in which it could be."""
        stage = run.stages[i]
        if stage.observed or stage.start is None or run.in_slots:  # a slot's begin is no wait in the queue
            return run
        if self.learned >= _MOST_LEARNED and not last:
            self.more = True
            return run
        observation = observed_wait(self.site, stage, run.ready_at(i))
        if observation is None:
            return run
        if stage.hindered is not None:
            observation = learnable(observation, Cause(stage.hindered))
        estimate = None
        if stage.estimate is not None and stage.estimate_index is not None:
            estimate = Estimate(stage.estimate_index, stage.estimate, stage.estimate_said)
        self.out.append(Observe(stage.name, geometry(run, i), observation, estimate))
        self.learned += 1
        return run.put(i, replace(stage, observed=True))

    def discard(self, run: WorkflowRun, i: int, reason: Reason, *, miss: bool = False) -> WorkflowRun:
        """Cancel the job of entry `i` and decide again; the estimate stays. `miss`: it had started too early."""
        run = self.observe(run, i, last=True)
        stage = run.stages[i]
        assert stage.job is not None
        self.notes.append((stage.name, reason))
        seen = self.view.jobs.get(stage.job) or self.view.records.get(stage.job)
        over = seen is not None and seen.state.ended  # as the next pass would find
        if not over:
            self.out.append(Cancel(stage.name, stage.job, (reason,)))
        spent = 0.0 if stage.start is None else run.units[i].nodes * max(self.now - stage.start, 0.0)
        again = replace(
            fresh(stage),
            misses=stage.misses + miss,
            wasted=stage.wasted + spent,
            idle=stage.idle + (spent if miss else 0.0),
            again_from=self.now,
        )
        run = run.put(i, again)
        return run if over else run.without(stage.job, stage.born, stage.called)


def fresh(stage: StageRun) -> StageRun:
    """The entry before its next attempt: what it is, its estimate, and the counts of what went wrong."""
    return StageRun(
        stage.name,
        stage.after,
        attempt=stage.attempt,
        covers=stage.covers,
        exclude=stage.exclude,
        misses=stage.misses,
        wasted=stage.wasted,
        idle=stage.idle,
        retries=stage.retries,
        mishaps=stage.mishaps,
        timeouts=stage.timeouts,
        estimate=stage.estimate,
        estimate_index=stage.estimate_index,
        estimate_said=stage.estimate_said,
        slot=stage.slot,
    )


def geometry(run: WorkflowRun, i: int) -> Geometry:
    """What the wait of entry `i` is learned under."""
    unit, own = run.unit(i), run.stages[i].own
    if own is not None:
        return Geometry(own.partition, own.qos, unit.nodes, own.limit or 0.0, account=own.account, user=run.user)
    where = unit.asks.partition or run.partition
    return Geometry(where, run.qos, unit.nodes, unit.time_limit, account=run.workflow.account or "")


def spec_of(site: SiteRules, strategy: Strategy, run: WorkflowRun, i: int) -> JobSpec:
    """The job that the entry stands for, the same each time as long as it is INTENDED."""
    stage = run.stages[i]
    guard = None
    again = stage.name if stage.attempt > 1 else ""
    if strategy.tie.guarded and (stage.depends_on or again):
        parents = _named(run.parents(i), stage.depends_on)
        guard = Guard(
            run.label, parents, site.grace_of(run.unit(i)), strategy.tie is not Tie.NODES and bool(parents), again
        )
    spec = job_spec(
        run.workflow,
        run.unit(i),
        run.label,
        stage.attempt,
        stage.depends_on,
        tie=stage.tie,
        hold=stage.hold,
        minutes=stage.minutes,
        pins=stage.pins,
        exclude=stage.exclude,
        guard=guard,
        mark=strategy.tie.guarded,
        stage_first=run.stage_first,
    )
    if stage.slot is None:
        return spec
    # It is not held until its dependency has been read back: it could miss its slot.
    name = stage.slot.name if stage.attempt == 1 else f"{stage.slot.name}.{stage.attempt}"
    return replace(spec, name=name, reservation=None if stage.slot.queued else stage.slot.name, hold=False)


def _named(parents: Sequence[StageRun], jobs: Sequence[int]) -> list[tuple[int, str]]:
    names = {parent.job: parent.name for parent in parents}
    return [(job, names[job]) for job in jobs if job in names]
