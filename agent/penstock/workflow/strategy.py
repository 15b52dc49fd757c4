"""What a strategy is, and what the strategies share: when parents end, and how a verdict is put into words. Pure.

A strategy says into which jobs a workflow is cut (`units`) and, for a job that waits for its turn, when it is due. All
else (looking at the parents, dependencies, holds, cancelling, learning) is the runner's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from penstock.api import Reason
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import Phase, StageRun, WorkflowRun

__all__ = ["Due", "Strategy", "after_parents", "ahead_of_parents", "clock", "expected_end", "names"]

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Due:
    """When a job is to be submitted: `at` (epoch s; None: cannot be said yet).

    `fixed` is false while `at` moves along with the present (its parent is late, so every later look gives a later
    instant): then waking up at `at` teaches nothing that the next snapshot would not. `parent_end` is the instant
    assumed for the last of its parents' ends.
    """

    at: float | None
    reason: Reason
    fixed: bool = True
    parent_end: float | None = None


class Strategy(Protocol):
    """Decides when each job of a workflow is submitted. `ahead`: before its parents have ended, by predicted waits."""

    name: str
    ahead: bool

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """The jobs, each after all that it comes after. Raises UserError for a workflow it cannot run."""
        ...

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """When job `i`, which is WAITING in `run`, is to be submitted, as far as can be said at `now`."""
        ...


def after_parents(run: WorkflowRun, i: int, now: float) -> Due:
    """At once when all parents have completed; not before."""
    stage, parents = run.stages[i], run.parents(i)
    if not parents:
        text = f"submit {stage.name} at once: it waits for no other"
        return Due(run.submitted_at, Reason(f"{run.strategy}-first", text))
    still = [parent for parent in parents if parent.phase is not Phase.DONE]
    if still:
        return Due(None, Reason(f"{run.strategy}-waits", f"{stage.name} waits for {_progress(still)}"))
    last = max(parents, key=lambda parent: parent.end or 0.0)
    end = run.ready_at(i)
    at = now if end is None else min(end, now)  # Slurm's clock may be ahead of ours
    others = "" if len(parents) == 1 else f", the last of {len(parents)}"
    text = f"submit {stage.name} now: {last.name} (job {last.job}{others}) completed {clock(at)}"
    return Due(at, Reason(f"{run.strategy}-parent-done", text), parent_end=end)


def ahead_of_parents(run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
    """The last of the parents' expected ends minus the estimate; once all have ended, at once.

    Section 3.2 of paper 002 (t_{y-1} - a), where t_{y-1} is the latest of several.
    """
    stage = run.stages[i]
    still = [j for j in stage.after if run.stages[j].phase is not Phase.DONE]
    if not still:
        return after_parents(run, i, now)
    first = [run.stages[j] for j in still if run.stages[j].phase in (Phase.WAITING, Phase.INTENDED)]
    if first:
        return Due(
            None, Reason(f"{run.strategy}-parent-first", f"{names(first)} must be submitted before {stage.name}")
        )
    if stage.estimate is None:
        return Due(None, Reason(f"{run.strategy}-no-estimate", f"there is no estimate for {stage.name} yet"))
    ends = expected_ends(run, units, still, now)
    # of two that end at the same instant the one that stays there is the better news
    (end, fixed), last = max(((ends[j], run.stages[j].name) for j in still), key=lambda found: found[0])
    at = end - stage.estimate
    text = (
        f"submit {stage.name} at {clock(at)}: {last} expected to end {clock(end)}, estimated wait {stage.estimate:g} s"
    )
    return Due(at, Reason(f"{run.strategy}-due", text), fixed, end)


def expected_end(run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> tuple[float, bool]:
    """When job `i`, which has been submitted, is expected to end (epoch s), and whether that stays so as time passes.

    Running: start + expected run time, or the present once that is past, but never after its limit (then it *is*
    about to end, too). Pending: expected start + run time, where the start is its submission + its own estimate, not
    before its parents' expected ends (it depends on them) and not before the present.
    """
    return expected_ends(run, units, (i,), now)[i]


def expected_ends(
    run: WorkflowRun, units: tuple[Stage, ...], wanted: Iterable[int], now: float
) -> dict[int, tuple[float, bool]]:
    """`expected_end` of these jobs and of the open ones they come after, each looked at once."""
    needed, todo = set[int](), list(wanted)
    while todo:
        j = todo.pop()
        if j not in needed:
            needed.add(j)
            if run.stages[j].start is None:
                todo += (k for k in run.stages[j].after if not run.stages[k].phase.final)
    found: dict[int, tuple[float, bool]] = {}
    for j in sorted(needed):  # parents stand before their children
        stage, unit = run.stages[j], units[j]
        if stage.end is not None:
            found[j] = (stage.end, True)
        elif stage.start is not None:
            end = stage.start + unit.run_time
            found[j] = (end, True) if end >= now else (now, False)
        else:
            start, fixed = now, False
            if stage.submitted is not None and stage.submitted + (stage.estimate or 0.0) >= now:
                start, fixed = stage.submitted + (stage.estimate or 0.0), True
            start, fixed = max([(start, fixed), *(found[k] for k in stage.after if k in found)])
            found[j] = (start + unit.run_time, fixed)
    return found


def names(stages: Iterable[StageRun]) -> str:
    """The names of some stages for people: at most three of them."""
    found = [stage.name for stage in stages]
    rest = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + rest


def _progress(stages: list[StageRun]) -> str:
    texts = []
    for stage in stages[:_NAMED]:
        job = "" if stage.job is None else f", job {stage.job}"
        texts.append(f"{stage.name} ({stage.phase.value}{job})")
    rest = f" and {len(stages) - _NAMED} more" if len(stages) > _NAMED else ""
    return ", ".join(texts) + rest


def clock(t: float) -> str:
    """An instant for people, in UTC."""
    try:
        return datetime.fromtimestamp(t, tz=UTC).strftime("%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{t:g}"
