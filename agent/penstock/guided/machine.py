"""One pass over one guided workflow, without I/O: state and a view of Slurm in, new state and instructions out.

What it holds to:
- Nothing is ever done to a job whose owner, as Slurm names it, is not the workflow's.
- A job that is kept back is released only when Slurm shows it to depend on every stage before it that has not
  completed, and only if it has not been released before.
- A hold that is not ours is never lifted. A job that is kept back by its begin time is left alone while it is held, by
  whomever; were it held a moment later, its release would leave the hold in place. One that is held for the agent
  (release 0.1.0 submitted those) is released while the hold is the owner's own kind.
- A job that is not in the queue has not ended: only the queue or accounting can say so.
- When a stage did not complete, those after it stay where they are: their owner retries or cancels.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.api import Geometry, Job, JobState, Reason
from penstock.guided.absorbing import absorb
from penstock.guided.instructions import (
    Finished,
    Instruction,
    Lookup,
    Observe,
    Ran,
    Release,
    Repoint,
    Requeue,
    Rules,
    Step,
    View,
)
from penstock.guided.state import GuidedRun, GuidedStage, Kept, updated
from penstock.waits.base import Estimate, Observation
from penstock.waits.causes import Cause, learnable
from penstock.workflow.reading import parents_named
from penstock.workflow.state import Phase, RunPhase
from penstock.workflow.strategy import clock

__all__ = ["step", "steps"]

# States of a parent in which Slurm cannot have fulfilled a dependency on it.
_NOT_OVER: Final = frozenset(
    {JobState.PENDING, JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESIZING, JobState.REQUEUED}
)
_MOST_LEARNED: Final = 20  # waits in one pass: each costs milliseconds


@dataclass(slots=True)
class _Pass:
    """`stages` are the run's by name, as they have become so far; everything else of it is in `run`."""

    rules: Rules
    view: View
    now: float
    run: GuidedRun
    stages: dict[str, GuidedStage]
    places: dict[str, int]
    out: list[Instruction] = field(default_factory=list)
    notes: list[tuple[str, Reason]] = field(default_factory=list)
    lookups: set[int] = field(default_factory=set)
    before: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ends: dict[str, float | None] = field(default_factory=dict)

    def note(self, stage: str, code: str, text: str) -> None:
        self.notes.append((stage, Reason(code, text)))

    def waiting(self, stage: GuidedStage) -> Job | None:
        """The stage's job as it waits in the queue; None when it does not, or is not seen."""
        rows = self.view.rows.get(stage.job, ())
        return next((row for row in rows if row.pending and row.id == stage.job), None)

    def parents(self, stage: GuidedStage) -> list[GuidedStage]:
        """The stages that it comes after, in the order of the run."""
        names = self.before.get(stage.name)
        if names is None:
            known = [name for name in set(stage.after) if name in self.places]
            names = self.before[stage.name] = tuple(sorted(known, key=self.places.__getitem__))
        return [self.stages[name] for name in names]

    def put(self, stage: GuidedStage) -> None:
        self.stages[stage.name] = stage

    def broken(self) -> list[GuidedStage]:
        return [s for s in self.stages.values() if s.phase in (Phase.FAILED, Phase.CANCELLED)]


def step(run: GuidedRun, view: View, now: float, rules: Rules) -> Step:
    """One pass; `view` is of a usable snapshot."""
    walk = steps(run, view, now, rules)
    while True:
        try:
            next(walk)
        except StopIteration as end:
            done: Step = end.value
            return done


def steps(run: GuidedRun, view: View, now: float, rules: Rules) -> Generator[int, None, Step]:
    """The same in small parts: each `next` does as much work as it says, in stages and edges looked through, so that
    whoever drives it can do something else between them."""
    if run.phase.final:
        return Step(run)
    stages = {stage.name: stage for stage in run.stages}
    p = _Pass(rules, view, now, run, stages, {name: place for place, name in enumerate(stages)})
    for stage in run.stages:
        if not stage.phase.final or _again(p, stage):
            fresh, unseen = absorb(run, stage, p.view, p.now, p.note)
            p.put(fresh)
            if unseen:
                p.lookups.add(stage.job)
            if fresh.phase is Phase.DONE and fresh.start is not None and fresh.end is not None:
                p.out.append(Ran(stage.name, fresh.end - fresh.start))
            yield 1
    _verdict(p)
    if p.run.phase in (RunPhase.ACTIVE, RunPhase.FAILING):
        for name in stages:
            if not stages[name].phase.final:
                _guide(p, stages[name])
                yield 1 + len(stages[name].after)
    learned, more = 0, False
    for name in stages:
        if not stages[name].observed and stages[name].start is not None:
            if more := learned >= _MOST_LEARNED:
                break
            learned += _learn(p, stages[name])
            yield 1 + len(stages[name].after)
    if p.lookups:
        p.out.append(Lookup(tuple(sorted(p.lookups))))
    if not more and all(stage.phase.final for stage in stages.values()):
        _end(p)
    if any(stages[stage.name] is not stage for stage in run.stages):
        p.run = replace(p.run, stages=tuple(stages.values()))
    return Step(p.run, tuple(p.out), tuple(p.notes), more)


def _again(p: _Pass, stage: GuidedStage) -> bool:
    """Whether a job that had not completed is back in the queue: its owner has requeued it."""
    rows = p.view.rows.get(stage.job, ())
    return stage.phase is not Phase.DONE and any(r.uid == p.run.uid and not r.state.ended for r in rows)


def _verdict(p: _Pass) -> None:
    """Whether the workflow goes on as a whole."""
    broken = p.broken()
    if p.run.phase is RunPhase.ACTIVE and broken:
        p.run = replace(p.run, phase=RunPhase.FAILING, why=f"{broken[0].name}: {broken[0].failure}")
    elif p.run.phase is RunPhase.FAILING and not broken:
        p.run = replace(p.run, phase=RunPhase.ACTIVE, why=None)


def _guide(p: _Pass, stage: GuidedStage) -> None:
    """Keep a stage that has not ended behind those before it, and release it when it is due."""
    if not stage.after:
        _release(p, stage, ())
        return
    parents = p.parents(stage)
    broken = next((s for s in parents if s.phase in (Phase.FAILED, Phase.CANCELLED)), None)
    if broken is not None:
        text = f"{broken.name} did not complete: penstock retry {p.run.id}, or penstock cancel {p.run.id}"
        p.note(stage.name, "parent-broken", text)
        return
    job = p.waiting(stage)
    if job is None and stage.phase is not Phase.RUNNING:
        return
    open_ = [s for s in parents if s.phase is not Phase.DONE]
    sure = {s.name: s for s in open_ if any(row.state in _NOT_OVER for row in p.view.rows.get(s.job, ()))}
    if stage.phase is Phase.RUNNING:
        if sure and stage.requeued_at is None:
            first = next(iter(sure.values()))
            text = f"job {stage.job} was started although {first.name} (job {first.job}) has not ended"
            p.out.append(Requeue(stage.name, stage.job, (Reason("started-early", text),)))
        return
    if job is None:
        return
    named = parents_named(job.dependency)
    former = [old for s in parents for old in s.former if str(old) in named]
    lost = [s for s in open_ if str(s.job) not in named]
    unsure = next((s for s in lost if s.name not in sure), None)
    if unsure is not None:
        p.note(stage.name, "look-first", f"{unsure.name} must be seen in the queue before anything depends on it")
        return
    if lost or former:
        wanted = [f"afterok:{s.job}" for s in open_]
        kept = _terms_beside(job.dependency, [*former, *(s.job for s in parents)])
        names = ", ".join(f"{s.name} (job {s.job})" for s in lost)
        text = f"job {stage.job} must wait for {names}" if lost else f"job {former[0]} is no part of it any more"
        p.out.append(Repoint(stage.name, stage.job, ",".join([*kept, *wanted]), (Reason("dependency", text),)))
        return
    _release(p, stage, open_)


def _terms_beside(dependency: str, jobs: Iterable[int]) -> list[str]:
    """The terms of a dependency, as Slurm prints it, that are about other jobs: the owner's own."""
    terms = [term.partition("(")[0].strip() for term in dependency.split(",")]
    numbers = {str(job) for job in jobs}
    return [term for term in terms if term and term != "(null)" and numbers.isdisjoint(parents_named(term))]


def _release(p: _Pass, stage: GuidedStage, open_: Sequence[GuidedStage]) -> None:
    job = p.waiting(stage)
    if job is None or stage.phase is not Phase.SUBMITTED or not stage.kept or stage.released is not None:
        return
    begins = stage.kept is Kept.BEGIN
    if job.held if begins else job.reason != "JobHeldUser":
        p.note(stage.name, "held", f"job {stage.job} is held by somebody else ({job.reason}): it is left alone")
        return
    if begins and not job.put_off:
        return  # somebody else has let it go
    if stage.begin is not None and stage.begin > p.now:
        p.note(stage.name, "begin-later", f"its owner wants it to begin at {clock(stage.begin)} at the earliest")
        p.put(updated(stage, due=stage.begin))
        return
    if not open_:
        reason = Reason("parents-done", "all stages before it have completed" if stage.after else "it comes first")
        _let_go(p, stage, reason)
        return
    if p.run.strategy != "asa":
        p.note(stage.name, "waits", f"{stage.name} waits for {open_[0].name} ({open_[0].phase.value})")
        return
    wait = stage.estimate
    if wait is None:
        estimate = p.rules.predict(_geometry(p.run, stage))
        wait = estimate.seconds
        said = dict(estimate.said)
        stage = replace(stage, estimate=wait, estimate_index=estimate.index, estimate_said=said)
        p.put(stage)
    ends = [_expected_end(p, s.name) for s in open_]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        p.note(stage.name, "no-end", "how long the stage before it will run is not known: no expect=, no time limit")
        return
    end = max(known)
    due = end - wait
    p.put(stage := updated(stage, due=due))
    text = f"due at {clock(due)}: the stage before it ends about {clock(end)}, wait {wait:g} s"
    if due > p.now:
        p.note(stage.name, "due-later", text)
        return
    reasons = [Reason("due", text), Reason("dependency-read-back", f"job {stage.job} depends on {job.dependency}")]
    if not p.rules.ages(stage.kept):
        text = "jobs do not age here while they depend on others: an early release gains no place in the queue"
        reasons.append(Reason("no-accrual", text))
    _let_go(p, stage, *reasons)


def _let_go(p: _Pass, stage: GuidedStage, *reasons: Reason) -> None:
    # Else it would age from the begin time that does not come. Where all jobs age from their submission on, it has.
    anew = stage.kept is Kept.BEGIN and not p.rules.accrues
    p.out.append(Release(stage.name, stage.job, reasons, stage.kept, reset_age=anew))


def _expected_end(p: _Pass, name: str) -> float | None:
    """When a stage should end: worked out once in a pass, from the first stage on (parents were registered earlier)."""
    for stage in list(p.stages.values())[len(p.ends) :] if name not in p.ends else ():
        p.ends[stage.name] = _end_after(p, stage, [p.ends.get(parent.name) for parent in p.parents(stage)])
        if stage.name == name:
            break
    return p.ends[name]


def _end_after(p: _Pass, stage: GuidedStage, ready: Sequence[float | None]) -> float | None:
    """When it should end if those before it end so; None when that is not known."""
    if stage.phase.final:
        return stage.end
    length = stage.expect or p.rules.expected(stage.name) or stage.limit
    if length is None:
        return None
    if stage.start is not None:
        return max(stage.start + length, p.now)
    known = [end for end in ready if end is not None]
    if len(known) < len(ready):
        return None
    return max(p.now, (stage.submitted or p.now) + (stage.estimate or 0.0), *known) + length


def _geometry(run: GuidedRun, stage: GuidedStage) -> Geometry:
    place = (stage.partition, stage.qos, max(stage.nodes, 1), stage.limit or 0.0)
    return Geometry(*place, account=stage.account, user=run.user)


def _learn(p: _Pass, stage: GuidedStage) -> bool:
    """Say once what the wait was, as soon as that is sure; whether it is said now."""
    seen = _observed(p, stage)
    if seen is None:
        return False
    if stage.hindered is not None:
        seen = learnable(seen, Cause(stage.hindered))
    estimate = None
    if stage.estimate is not None and stage.estimate_index is not None:
        estimate = Estimate(stage.estimate_index, stage.estimate, stage.estimate_said)
    p.out.append(Observe(stage.name, _geometry(p.run, stage), seen, estimate))
    p.put(replace(stage, observed=True))
    return True


def _observed(p: _Pass, stage: GuidedStage) -> Observation | None:
    """The wait to learn from: start - eligible, or where dependent jobs age the time since it was released."""
    if stage.start is None:
        return None
    if not (stage.after and p.rules.ages(stage.kept)):
        return None if stage.eligible is None else Observation(max(stage.start - stage.eligible, 0.0))
    ends = [parent.end for parent in p.parents(stage)]
    known = [end for end in ends if end is not None]
    if stage.submitted is None or len(known) < len(ends) or stage.base:
        return None
    if stage.kept is Kept.BEGIN and stage.released is None:
        return None  # nobody knows when it was let go
    ready = max(known, default=stage.registered)
    since = max(stage.submitted, stage.released or stage.submitted)
    if since < ready and abs(stage.start - ready) <= p.rules.cycle:
        return Observation.at_most(ready - since)
    return Observation(max(stage.start - since, 0.0))


def _end(p: _Pass) -> None:
    broken = p.broken()
    if not broken:
        phase, why = RunPhase.COMPLETED, f"all {len(p.stages)} stages completed"
    elif p.run.phase is RunPhase.CANCELLING or all(s.phase is Phase.CANCELLED for s in broken):
        phase, why = RunPhase.CANCELLED, p.run.why or f"{broken[0].name} was cancelled"
    else:
        phase, why = RunPhase.FAILED, p.run.why or f"{broken[0].name}: {broken[0].failure}"
    ended = max((s.end for s in p.stages.values() if s.end is not None), default=p.now)
    p.out.append(Finished(not broken, why))
    p.run = replace(p.run, phase=phase, why=why, ended_at=ended)
