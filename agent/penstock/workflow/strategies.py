"""When a stage is submitted: one small class per strategy, one job each. Pure.

A strategy says into which jobs a workflow is cut (`units`) and, for a job that waits for its turn, when it is due. All
else (looking at the parent, dependencies, holds, cancelling, learning) is the runner's. Sources: paper 002, sections
2.2 (big job, per stage), 3.2 (ASA).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Protocol

from penstock.api import Reason
from penstock.errors import UserError
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.scripts import combined_command
from penstock.workflow.state import Phase, StageRun, WorkflowRun

__all__ = ["STRATEGIES", "Asa", "BigJob", "Due", "PerStage", "Strategy", "expected_end", "strategy_named"]


@dataclass(frozen=True, slots=True)
class Due:
    """When a job is to be submitted: `at` (epoch s; None: cannot be said yet).

    `fixed` is false while `at` moves along with the present (its parent is late, so every later look gives a later
    instant): then waking up at `at` teaches nothing that the next snapshot would not. `parent_end` is the instant
    assumed for the parent's end.
    """

    at: float | None
    reason: Reason
    fixed: bool = True
    parent_end: float | None = None


class Strategy(Protocol):
    """Decides when each job of a workflow is submitted. `ahead`: before its parent has ended, by predicted waits."""

    name: str
    ahead: bool

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """The jobs in the order they run. Raises UserError for a workflow this strategy cannot run."""
        ...

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """When job `i`, which is WAITING in `run`, is to be submitted, as far as can be said at `now`."""
        ...


def _chain(workflow: Workflow, strategy: str) -> tuple[Stage, ...]:
    if workflow.is_chain:
        return workflow.order
    first = workflow.order[0].name
    for i, stage in enumerate(workflow.stages):
        siblings = [s.name for s in workflow.stages if set(s.after) & set(stage.after)]
        if len(stage.after) > 1 or len(siblings) > 1 or (not stage.after and stage.name != first):
            raise UserError(
                f"{workflow.source}: stages[{i}].after: the strategy {strategy} runs chains only, where each stage "
                f"comes after one other and no two after the same; {stage.name!r} breaks the chain"
            )
    raise AssertionError("not a chain, yet every stage has its one parent")


class PerStage:
    """Submits a stage once the one before it has completed (section 2.2, figure 2b): no dependency, full waits."""

    name = "perstage"
    ahead = False

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """The stages themselves."""
        return _chain(workflow, self.name)

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """At the parent's end; the first at once."""
        return _after_parent(run, i, now)


class BigJob:
    """One job for everything (section 2.2, figure 2a): the most nodes of any stage, the sum of the limits.

    One wait, but the nodes are paid for all the time (equation 1).
    """

    name = "bigjob"
    ahead = False

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """One stage, `bigjob`, whose command runs all others in order and stops at the first that fails."""
        stages = _chain(workflow, self.name)
        nodes = max(s.nodes for s in stages)
        limit = sum(s.time_limit for s in stages)
        # the sum of expectations cannot pass that of the limits, but rounding in another order could
        run_time = min(sum(s.run_time for s in stages), limit)
        return (Stage("bigjob", nodes, limit, run_time, combined_command(stages)),)

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """At once."""
        return _after_parent(run, i, now)


class Asa:
    """Submits a stage a predicted wait before its parent is expected to end (section 3.2: t_{y-1} - a).

    A parent that is pending itself counts too, so a stage may be submitted before its parent starts (section 4.6).
    """

    name = "asa"
    ahead = True

    def units(self, workflow: Workflow) -> tuple[Stage, ...]:
        """The stages themselves."""
        return _chain(workflow, self.name)

    def due(self, run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> Due:
        """The parent's expected end minus the estimate; once the parent has ended, at once."""
        stage, parent = run.stages[i], run.parent(i)
        if parent is None or parent.phase is Phase.DONE:
            return _after_parent(run, i, now)
        if parent.phase in (Phase.WAITING, Phase.INTENDED):
            return Due(None, Reason("asa-parent-first", f"{parent.name} must be submitted before {stage.name}"))
        if stage.estimate is None:
            return Due(None, Reason("asa-no-estimate", f"there is no estimate for {stage.name} yet"))
        end, fixed = expected_end(run, units, i - 1, now)
        at = end - stage.estimate
        text = (
            f"submit {stage.name} at {clock(at)}: {parent.name} expected to end {clock(end)}, "
            f"estimated wait {stage.estimate:g} s"
        )
        return Due(at, Reason("asa-due", text), fixed, end)


def expected_end(run: WorkflowRun, units: tuple[Stage, ...], i: int, now: float) -> tuple[float, bool]:
    """When job `i`, which has been submitted, is expected to end (epoch s), and whether that stays so as time passes.

    Running: start + expected run time, or the present once that is past, but never after its limit (then it *is*
    about to end, too). Pending: expected start + run time, where the start is its submission + its own estimate, not
    before its parent's expected end (it depends on it) and not before the present.
    """
    stage, unit = run.stages[i], units[i]
    if stage.end is not None:
        return stage.end, True
    if stage.start is not None:
        end = stage.start + unit.run_time
        return (end, True) if end >= now else (now, False)
    start, fixed = now, False
    if stage.submitted is not None and stage.submitted + (stage.estimate or 0.0) >= now:
        start, fixed = stage.submitted + (stage.estimate or 0.0), True
    if i > 0 and not run.stages[i - 1].phase.final:
        before, before_fixed = expected_end(run, units, i - 1, now)
        if before > start or (before == start and not fixed):
            start, fixed = before, before_fixed
    return start + unit.run_time, fixed


def _after_parent(run: WorkflowRun, i: int, now: float) -> Due:
    stage, parent = run.stages[i], run.parent(i)
    if parent is None:
        text = f"submit {stage.name} at once: it comes first"
        return Due(run.submitted_at, Reason(f"{run.strategy}-first", text))
    if parent.phase is Phase.DONE:
        at = now if parent.end is None else min(parent.end, now)  # Slurm's clock may be ahead of ours
        text = f"submit {stage.name} now: {parent.name} (job {parent.job}) completed {clock(at)}"
        return Due(at, Reason(f"{run.strategy}-parent-done", text), parent_end=parent.end)
    return Due(None, Reason(f"{run.strategy}-waits", f"{stage.name} waits for {_progress(parent)}"))


def _progress(stage: StageRun) -> str:
    job = "" if stage.job is None else f", job {stage.job}"
    return f"{stage.name} ({stage.phase.value}{job})"


def clock(t: float) -> str:
    """An instant for people, in UTC."""
    try:
        return datetime.fromtimestamp(t, tz=UTC).strftime("%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{t:g}"


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType({"asa": Asa(), "perstage": PerStage(), "bigjob": BigJob()})


def strategy_named(name: str) -> Strategy:
    """The strategy of that name. Raises UserError."""
    if name not in STRATEGIES:
        raise UserError(f"strategy: must be one of {', '.join(STRATEGIES)}, not {name!r}")
    return STRATEGIES[name]
