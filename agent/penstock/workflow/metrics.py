"""What a run cost and how long it waited (ASA paper, section 4.1). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.workflow.intervals import overlap
from penstock.workflow.state import WorkflowRun

__all__ = ["RunMetrics", "WaitParts", "gap_before", "perceived_wait", "run_metrics", "waited"]


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """Seconds and node hours of the jobs that have started.

    `total_wait` is the sum of all `gap_before` (side by side counts twice), `makespan` the workflow's submission
    to successful end (None unless completed), `node_hours` nodes times run time (core-hours divided by the cores of a
    node) with attempts that came to nothing, `overhead_node_hours` the part of it that a job held nodes before its
    parents had ended (OH; 0 with dependencies), `misses` how often such a job was taken back and submitted again,
    `complete` false while a job that has started has no end.
    """

    total_wait: float
    makespan: float | None
    node_hours: float
    overhead_node_hours: float
    misses: int
    complete: bool


@dataclass(frozen=True, slots=True)
class WaitParts:
    """Where the time went between when a job could have started, had it had nodes, and its start (s).

    `perceived`: it was in the queue and waited for its turn. `paused`: somebody held the job, its owner had given a
    later begin, or the agent was told to leave the workflow alone before it had submitted the job or let it go.
    `reaction`: until the agent had done that, otherwise.
    """

    perceived: float
    paused: float
    reaction: float


def gap_before(run: WorkflowRun, i: int) -> float | None:
    """PWT of job `i` as the ASA paper has it, in seconds: start minus the last of its parents' ends, or minus the
    workflow's submission, whatever the reason.

    None while either is unknown; 0 for a job that had its nodes before that end.
    """
    stage, before = run.stages[i], run.ready_at(i)
    if stage.start is None or before is None:
        return None
    return max(stage.start - before, 0.0)


def waited(run: WorkflowRun, i: int) -> WaitParts | None:
    """The same time of job `i` in its parts, from when its last attempt could begin; None while it is unknown."""
    stage, ready = run.stages[i], run.ready_at(i)
    if stage.start is None or ready is None:
        return None
    ready = max(ready, stage.again_from or ready, stage.own.registered if stage.own else ready)
    start = max(stage.start, ready)
    known = [t for t in (stage.submitted, stage.released) if t is not None]
    acted = min(max([ready, *known]), start)
    begin = stage.own.begin if stage.own is not None and stage.own.begin is not None else ready
    before = overlap([*run.pauses, *stage.holds, (ready, begin)], ready, acted)
    after = overlap(stage.holds, acted, start)
    return WaitParts(perceived=start - acted - after, paused=before + after, reaction=acted - ready - before)


def perceived_wait(run: WorkflowRun, i: int) -> float | None:
    """How long job `i` was felt to wait in the queue for its turn, in seconds: `WaitParts.perceived`."""
    found = waited(run, i)
    return None if found is None else found.perceived


def run_metrics(run: WorkflowRun) -> RunMetrics:
    """The metrics of a run so far."""
    waits = [gap_before(run, i) for i in range(len(run.stages))]
    node_seconds = overhead = 0.0
    complete = True
    for i, (stage, unit) in enumerate(zip(run.stages, run.units, strict=True)):
        ready = run.ready_at(i)
        node_seconds += stage.wasted
        overhead += stage.idle
        if stage.start is None:
            continue
        if stage.end is None:
            complete = False
            continue
        node_seconds += unit.nodes * max(stage.end - stage.start, 0.0)
        if stage.after and ready is not None:
            overhead += unit.nodes * max(min(ready, stage.end) - stage.start, 0.0)
    done = run.phase.value == "completed" and run.ended_at is not None
    return RunMetrics(
        total_wait=sum(w for w in waits if w is not None),
        makespan=run.ended_at - run.submitted_at if done and run.ended_at is not None else None,
        node_hours=node_seconds / 3600.0,
        overhead_node_hours=overhead / 3600.0,
        misses=sum(stage.misses for stage in run.stages),
        complete=complete,
    )
