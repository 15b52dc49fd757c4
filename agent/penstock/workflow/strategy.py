"""What a strategy is, and what the strategies share: when parents end, and how a verdict is put into words. Pure.

A strategy says into which jobs a workflow is cut (`plan`), when a job that waits for its turn is due (`due`), and what
keeps a job that is in the queue early behind its parents (`tie`). All else (looking at the parents, reading back
dependencies, guards, cancelling, learning) is the runner's. One strategy is one class in one file; those of others are
found by the entry point `penstock.strategies`; docs/extending.md has a complete one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Protocol, runtime_checkable

from penstock.api import Geometry, Reason, SiteConfig
from penstock.values.merging import obstacle_to_merge
from penstock.workflow.model import Workflow
from penstock.workflow.phases import StagePhase
from penstock.workflow.state import StageRun, WorkflowRun
from penstock.workflow.strategies.cuts import Cut, singles
from penstock.workflow.ties import Tie

__all__ = [
    "KEEPS_PLACE",
    "WHOLE",
    "BetterCut",
    "Due",
    "Foreseeing",
    "Outlook",
    "Plan",
    "Rules",
    "Strategy",
    "Tie",
    "after_parents",
    "ahead_of_parents",
    "clock",
    "expected_end",
    "expected_ends",
    "levels_ahead",
    "live_parents",
    "names",
    "singles",
    "soon",
]

KEEPS_PLACE: Final = "workflows.keeps_place"
"""The fact in the state file that has `Rules.keeps_place` of the cluster, as JSON."""
_NAMED: Final = 3
# A workflow of at most so many stages is in the queue as a whole, as if it had been submitted by hand; of a larger one
# only so many levels, or the queue and the hourly budget would be full of jobs that cannot start for long.
WHOLE: Final = 50
_FAR, _NEAR = 8, 2
_NOT_ALLOWED: Final = "an administrator has not allowed it (workflows.age_while_dependent)"
_LIMITS: Final = (
    "limits are enforced (AccountingStorageEnforce), and then Slurm counts no age while a job depends on others"
)
# After so many starts that came too early a job is submitted when its parents have ended, as under `perstage`.
_PATIENCE: Final = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """What a site's scheduler makes of a job that is submitted early.

    `accrues`: a job with an unfulfilled dependency gains priority while it waits (ACCRUE_ALWAYS, or priority/basic,
    where the order of submission counts). `basic`: priority/basic. `weight_age` is PriorityWeightAge, None unknown.
    `whole_nodes`: jobs share no nodes. `max_accrue`: of how many pending jobs of a user age counts, None: of all.
    `no_merge`: why a job cannot take more nodes here, None where it can. `no_early_age`: why a job cannot age while it
    depends on others, though the site does not mean it to (`seed`), None where it can.
    """

    accrues: bool = False
    basic: bool = False
    weight_age: int | None = None
    whole_nodes: bool = False
    max_accrue: int | None = None
    no_merge: str | None = None
    no_early_age: str | None = _NOT_ALLOWED

    @property
    def keeps_place(self) -> bool | None:
        """Whether a job keeps its place in the queue while it depends on others, by its age or by the order of
        submission; None: not known."""
        if self.accrues or self.weight_age == 0:
            return True
        return None if self.weight_age is None else False

    @property
    def by_submission(self) -> bool:
        """Whether a stage stands in the queue where it was submitted, whatever it depends on."""
        return self.basic or self.accrues or self.weight_age == 0 or self.may_age

    @classmethod
    def of(cls, site: SiteConfig, *, age_while_dependent: bool = False) -> Rules:
        """The rules that a cluster's settings make. `age_while_dependent`: an administrator allows it."""
        basic = site.priority_type == "priority/basic"
        return cls(
            accrues=site.accrues_always or basic,
            basic=basic,
            weight_age=site.priority_weight_age,
            whole_nodes=site.select_type == "select/linear",
            max_accrue=site.max_jobs_accrue,
            no_merge=obstacle_to_merge(site, gres=False),
            no_early_age=_NOT_ALLOWED if not age_while_dependent else _LIMITS if "limits" in site.enforced else None,
        )

    @property
    def may_age(self) -> bool:
        """Whether a job that depends on others gains by being made to age: it would not by itself, and age counts."""
        return self.no_early_age is None and not self.accrues and self.weight_age != 0


@dataclass(frozen=True, slots=True)
class BetterCut:
    """A cut that was shorter than the plain chain in forecasts: by how much (s, in the mean), and why."""

    cut: Cut
    gain: float
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a strategy may know when it plans a workflow.

    `wait` gives the predicted wait (s) of a geometry submitted now. `partition`, `qos` and `account` are where the jobs
    will run, `max_time` (s) the partition's limit. `cores` is how many a node has, `core_hour_weight` how many seconds
    of makespan one core-hour is worth. `scripts`: the jobs' scripts are the agent's to write, so that there can be a
    guard in them, and one job for several stages. `better` is a cut that was shorter than the plain chain in forecasts
    of this queue, beyond doubt; None: there is none, or nobody has looked (see `Foreseeing`).
    """

    wait: Callable[[Geometry], float]
    partition: str = ""
    qos: str = ""
    account: str = ""
    rules: Rules = Rules()
    max_time: float | None = None
    cores: float = 1.0
    core_hour_weight: float = 0.0
    scripts: bool = True
    better: BetterCut | None = None

    def geometry(self, nodes: int, time_limit: float, partition: str = "") -> Geometry:
        """What such a job asks for here; `partition` is its own, if it has one."""
        return Geometry(partition or self.partition, self.qos, nodes, time_limit, account=self.account)


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs a workflow becomes, why, and by which strategy (None: the one that planned it). `levels_ahead` is for
    strategies that submit `soon`. `gain` is how much shorter (s) the cut was than a plain chain in forecasts, where
    these chose it."""

    cut: Cut
    reasons: tuple[Reason, ...] = ()
    by: str | None = None
    levels_ahead: int = 2
    gain: float | None = None


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
    """Decides into which jobs a workflow is cut and when each is submitted.

    `ahead`: `due` goes by the predicted wait of a job, so that this is asked for before the job is due. `tie`: what
    keeps a job behind parents that have not ended when it is submitted; only looked at when `due` says so early. The
    class's docstring is its manual; the first line is shown by the command line.
    """

    name: str
    ahead: bool
    tie: Tie

    def plan(self, workflow: Workflow, outlook: Outlook) -> Plan:
        """The jobs, each after all that it comes after. Raises UserError for a workflow it cannot run."""
        ...

    def due(self, run: WorkflowRun, i: int, now: float) -> Due:
        """When job `i`, which is WAITING in `run`, is to be submitted, as far as can be said at `now`."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A strategy that wants to know what forecasts of the queue say against a plain chain (`Outlook.better`). They take
    seconds of a processor at each submission."""

    foresees: Literal[True]


def live_parents(run: WorkflowRun, i: int) -> list[int]:
    """The places of the parents of job `i` that have not completed."""
    return [j for j in run.stages[i].after if run.stages[j].phase is not StagePhase.DONE]


def after_parents(run: WorkflowRun, i: int, now: float) -> Due:
    """At once when all parents have completed; not before."""
    stage, parents = run.stages[i], run.parents(i)
    if not parents:
        text = f"{run.doing} {stage.name} at once: it comes after no other stage"
        return Due(run.submitted_at, Reason(f"{run.acting}-first", text))
    still = [parent for parent in parents if parent.phase is not StagePhase.DONE]
    if still:
        return Due(None, Reason(f"{run.acting}-waits", f"{stage.name} waits for {_progress(still)}"))
    last = max(parents, key=lambda parent: parent.end or 0.0)
    end = run.ready_at(i)
    at = now if end is None else min(end, now)  # Slurm's clock may be ahead of ours
    others = "" if len(parents) == 1 else f", the last of {len(parents)}"
    text = f"{run.doing} {stage.name} now: {last.name} (job {last.job}{others}) completed {clock(at)}"
    return Due(at, Reason(f"{run.acting}-parent-done", text), parent_end=end)


def _in_turn(run: WorkflowRun, i: int, still: list[int], now: float) -> Due | None:
    """What is due where it comes after its parents, or they are not in the queue yet."""
    stage = run.stages[i]
    if not still or stage.misses >= _PATIENCE:
        return after_parents(run, i, now)
    first = [run.stages[j] for j in still if run.stages[j].phase in (StagePhase.WAITING, StagePhase.INTENDED)]
    if not first:
        return None
    text = f"{names(first)} must be {run.done} before {stage.name}"
    return Due(None, Reason(f"{run.acting}-parent-first", text))


def ahead_of_parents(run: WorkflowRun, i: int, now: float) -> Due:
    """The last of the parents' expected ends minus the estimate; once all have ended, at once.

    Section 3.2 of the ASA paper (t_{y-1} - a), where t_{y-1} is the latest of several. A job that was started too early
    twice is not submitted ahead a third time.
    """
    stage, still = run.stages[i], live_parents(run, i)
    if (due := _in_turn(run, i, still, now)) is not None:
        return due
    if stage.estimate is None:
        return Due(None, Reason(f"{run.acting}-no-estimate", f"there is no estimate for {stage.name} yet"))
    ends = expected_ends(run, still, now)
    # of two that end at the same instant the one that stays there is the better news
    (end, fixed), last = max(((ends[j], run.stages[j].name) for j in still), key=lambda found: found[0])
    if math.isinf(end):
        text = f"it is not known how long {last} will run: it has no expect= and no time limit"
        return Due(None, Reason(f"{run.acting}-no-end", text))
    at = end - stage.estimate
    expected = f"{last} expected to end {clock(end)}, estimated wait {stage.estimate:g} s"
    text = f"{run.doing} {stage.name} at {clock(at)}: {expected}"
    return Due(at, Reason(f"{run.acting}-due", text), fixed, end)


def soon(run: WorkflowRun, i: int, now: float) -> Due:
    """At once when all parents are in the queue, `run.levels_ahead` levels of jobs that have not started at a time.

    Further ahead a workflow would fill the queue, and the hourly budget, with jobs that cannot start for long.
    """
    stage, still = run.stages[i], live_parents(run, i)
    if (due := _in_turn(run, i, still, now)) is not None:
        return due
    far = [run.stages[j] for j in still if not _near(run, j, run.levels_ahead - 1)]
    if far:
        text = f"{stage.name} is {run.done} later: too many stages before it have still to start ({names(far)})"
        return Due(None, Reason(f"{run.acting}-too-far-ahead", text))
    before = names(run.stages[j] for j in still)
    text = f"{run.doing} {stage.name} now: all stages before it are in the queue ({before})"
    end = max(expected_ends(run, still, now)[j][0] for j in still)
    return Due(now, Reason(f"{run.acting}-soon", text), fixed=False, parent_end=end)


def levels_ahead(workflow: Workflow, rules: Rules) -> int:
    """How many levels of a workflow that have not started are worth a place in the queue: all of a small one, else more
    where they age from the beginning."""
    if len(workflow.stages) <= WHOLE:
        return len(workflow.stages)
    return _FAR if rules.accrues and rules.max_accrue is None else _NEAR


def _near(run: WorkflowRun, j: int, levels: int) -> bool:
    """Whether at most so many levels of jobs have still to start until job `j` has started, its own included."""
    waiting = {j} if run.stages[j].phase is not StagePhase.RUNNING else set()
    while waiting and levels > 0:
        parents = {k for one in waiting for k in live_parents(run, one)}
        waiting = {k for k in parents if run.stages[k].phase is not StagePhase.RUNNING}
        levels -= 1
    return not waiting


def expected_end(run: WorkflowRun, i: int, now: float) -> tuple[float, bool]:
    """When job `i`, which has been submitted, is expected to end (epoch s), and whether that stays so as time passes.

    Running: start + expected run time, or the present once that is past, but never after its limit (then it *is*
    about to end, too). Pending: expected start + run time, where the start is its submission + its own estimate, not
    before its parents' expected ends (it depends on them) and not before the present.
    """
    return expected_ends(run, (i,), now)[i]


def expected_ends(run: WorkflowRun, wanted: Iterable[int], now: float) -> dict[int, tuple[float, bool]]:
    """`expected_end` of these jobs and of the open ones they come after, each looked at once.

    Others may be in it that were asked for before, of the same run at the same moment.
    """
    if now not in run.outlook:
        run.outlook.clear()
        run.outlook[now] = {}
    found = run.outlook[now]
    needed, todo = set[int](), list(wanted)
    while todo:
        j = todo.pop()
        if j not in needed and j not in found:
            needed.add(j)
            if run.stages[j].start is None:
                todo += (k for k in run.stages[j].after if not run.stages[k].phase.final)
    for j in sorted(needed):  # parents stand before their children
        stage, unit = run.stages[j], run.units[j]
        if stage.end is not None:
            found[j] = (stage.end, True)
        elif stage.start is not None:
            end = stage.start + unit.run_time
            found[j] = (end, True) if end >= now else (now, False)
        else:
            start, fixed = now, False
            since = stage.submitted if stage.own is None else stage.released
            if since is not None and since + (stage.estimate or 0.0) >= now:
                start, fixed = since + (stage.estimate or 0.0), True
            start, fixed = max([(start, fixed), *(found[k] for k in stage.after if not run.stages[k].phase.final)])
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
