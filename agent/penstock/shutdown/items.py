"""What there is of Penstock's, for the list that `penstock off` prints: whose it is, and what to do about it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.api import Job, Snapshot
from penstock.core.offitems import ItemState, OffItem, jobs_text, minute_text
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.words import ResizePhase as Resize
from penstock.shutdown.handing import kept_back
from penstock.workflow.phases import Kept, StagePhase
from penstock.workflow.run.owned import let_go
from penstock.workflow.state import WorkflowRun

__all__ = ["of_left", "of_malleable", "of_own", "of_owned", "stray"]

_RESIZER: Final = re.compile(r"penstock-[0-9]+-[0-9a-f]{12}")


# -- malleable jobs ----------------------------------------------------------------------------------------------------


def of_malleable(me: MalleableJob, snapshot: Snapshot, staying: str | None) -> list[OffItem]:
    """A resize under way, and the jobs that hold nodes for it. `staying`: why it keeps these."""
    items = []
    if me.phase is not Resize.IDLE:
        what = "growth" if me.resizer_name else "shrink"
        text = f"job {me.job}: its {what} from {me.origin} to {me.target} processes is {me.phase.value}"
        items.append(OffItem("resize", me.uid, ItemState.LEFT, text, (me.job,), pending=True))
    for companion in me.companions:
        seen = snapshot.jobs.get(companion.job)
        if seen is not None and seen.state.ended:
            continue
        nodes = ",".join(companion.nodes)
        text = f"job {companion.job} holds {nodes} for job {me.job}, whose ranks run there"
        if staying is not None:
            text += f"; the ranks stay there: {staying}"
        if seen is not None:
            ends = "has no time limit" if seen.end is None else f"ends at {minute_text(seen.end)} at the latest"
            text += f"; it {ends}"
        todo = ((f"scancel {companion.job}", f"if it is still there when job {me.job} has ended"),)
        mine = (companion.job,)
        items.append(OffItem("companion", me.uid, ItemState.LEFT, text, mine, pending=staying is None, todo=todo))
    return items


def stray(job: Job, name: str, known: Iterable[int], *, ours: bool) -> OffItem | None:
    """A resizer or companion that no state knows, if the job of this name is one. `ours`: it may be cancelled."""
    if job.id in set(known) or job.state.ended or not _RESIZER.fullmatch(name):
        return None
    text = f"job {job.id} ({name}) holds nodes for another job, of which the agent knows nothing"
    return OffItem(
        "companion", job.uid, ItemState.LEFT, text, (job.id,), pending=ours, todo=((f"scancel {job.id}", ""),)
    )


# -- workflows ---------------------------------------------------------------------------------------------------------


def of_own(run: WorkflowRun, uid: int, snapshot: Snapshot, open_: Iterable[int]) -> list[OffItem]:
    """A workflow whose jobs the agent submits. `open_` are those jobs to which something is still to be done."""
    subject = f"workflow {run.id} ({run.name})"
    at = snapshot.taken_at
    alive = [job for job in run.jobs() if (seen := snapshot.jobs.get(job)) is None or not seen.state.ended]
    unseen = [s.job for s in run.stages if s.job and s.job not in snapshot.jobs and (s.submitted or 0.0) >= at]
    still = tuple(sorted({*open_, *unseen}))
    items = []
    asked = [stage.name for stage in run.stages if stage.phase is StagePhase.INTENDED]
    if still or asked or (run.phase.value in ("cancelling", "failing") and alive):
        names = f" {jobs_text(still)}" if still else ""
        text = f"{subject}:{names} not settled yet"
        if asked:
            text = f"{subject}: {', '.join(asked)} may have been submitted"
        items.append(OffItem("stage", uid, ItemState.LEFT, text, still, pending=True))
    free = tuple(job for job in alive if job not in still)
    if free:
        items.append(OffItem("workflow", uid, ItemState.ALONE, f"{subject}: {jobs_text(free)}", free))
    waiting = [stage.name for stage in run.stages if stage.phase is StagePhase.WAITING]
    if waiting:
        text = f"{subject}: not submitted yet: {', '.join(waiting)}"
        todo = ((f"penstock cancel {run.id}", "after `penstock on`, to end it"),)
        items.append(OffItem("workflow", uid, ItemState.WAITS, text, todo=todo))
    return items


def of_owned(run: WorkflowRun, snapshot: Snapshot, open_: Iterable[int]) -> list[OffItem]:
    """A workflow whose owner has submitted its jobs. `open_` are those that are about to be released."""
    subject = f"workflow {run.id} ({run.name})"
    kept = kept_back(run, snapshot)
    still = set(open_)
    items = []
    # Those of one command together: a hold is lifted, a begin time brought forward to now or to its owner's own.
    for how, begin in dict.fromkeys((k.kept, k.begin) for k in kept):
        mine = [k for k in kept if (k.kept, k.begin) == (how, begin)]
        numbers = tuple(k.job for k in mine)
        stages = ", ".join(f"{k.stage} (job {k.job})" for k in mine)
        text = f"{subject}: {'held' if how is Kept.HOLD else 'kept back by a begin time'}: {stages}"
        holds = f"scontrol release {','.join(map(str, numbers))}"
        free_ = holds if how is Kept.HOLD else let_go(*numbers, begin=begin)
        order = "as its owner or an operator; each stage then starts after those before it"
        todo = ((free_, order), (f"scancel {' '.join(map(str, numbers))}", "to end them instead"))
        pending = not still.isdisjoint(numbers)
        items.append(OffItem("stage", run.uid, ItemState.LEFT, text, numbers, pending=pending, todo=todo))
    waiting = {k.job for k in kept}
    jobs = [stage.job for stage in run.stages if stage.job is not None and stage.job not in waiting]
    free = tuple(job for job in jobs if (seen := snapshot.jobs.get(job)) is not None and not seen.state.ended)
    if free:
        items.append(OffItem("workflow", run.uid, ItemState.ALONE, f"{subject}: {jobs_text(free)}", free))
    return items


def of_left(number: int, uid: int, op: str, payload: Mapping[str, Any], snapshot: Snapshot) -> OffItem:
    """A request that was left for the next pass; jobs that came with it may be held."""
    stages = payload.get("stages") if op == "guide" else None
    named = [s for s in stages if isinstance(s, Mapping)] if isinstance(stages, list) else []
    mine = [s for s in named if type(s.get("job")) is int and _waits(snapshot.jobs.get(s["job"]), uid)]
    text = f"request {number} ({op}) waits for the next pass of an agent"
    jobs = tuple(int(s["job"]) for s in mine)
    if not jobs:
        return OffItem("request", uid, ItemState.WAITS, text)
    begins = tuple(job for job in jobs if snapshot.jobs[job].put_off)
    holds = tuple(job for job in jobs if job not in begins)
    free = [let_go(*begins)] if begins else []
    free += [f"scontrol release {','.join(map(str, holds))}"] if holds else []
    todo = tuple((command, "") for command in (*free, f"scancel {' '.join(map(str, jobs))}"))
    return OffItem("stage", uid, ItemState.LEFT, f"{text}; kept back for it: {jobs_text(jobs)}", jobs, todo=todo)


def _waits(job: Job | None, uid: int) -> bool:
    return job is not None and job.pending and job.uid == uid and (job.put_off or job.reason == "JobHeldUser")
