"""The state of one running workflow: frozen, and to and from JSON-able values, so that it survives the agent.

Times are seconds since the epoch, None means not known (yet).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from penstock.workflow.cuts import place_units, singles, together
from penstock.workflow.model import Stage, Workflow, workflow_from_dict, workflow_to_dict
from penstock.workflow.ties import Tie

__all__ = ["Phase", "RunPhase", "StageRun", "WorkflowRun", "run_from_dict", "run_to_dict"]

_VERSION: Final = 3


class Phase(StrEnum):
    """Where a stage's job is."""

    WAITING = "waiting"  # not asked for yet
    INTENDED = "intended"  # a Submit was given out; the executor has it until it reports
    SUBMITTED = "submitted"  # in the queue, held until its dependency has been read back
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"  # COMPLETED
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing more happens to the stage."""
        return self in (Phase.DONE, Phase.FAILED, Phase.CANCELLED)

    @property
    def live(self) -> bool:
        """Whether the stage has a job in Slurm as far as is known."""
        return self in (Phase.SUBMITTED, Phase.QUEUED, Phase.RUNNING)


class RunPhase(StrEnum):
    """Where a workflow is. FAILING and CANCELLING wait for its live jobs to be gone."""

    ACTIVE = "active"
    FAILING = "failing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing more happens to the workflow."""
        return self in (RunPhase.COMPLETED, RunPhase.FAILED, RunPhase.CANCELLED)


@dataclass(frozen=True, slots=True)
class StageRun:
    """One job of a workflow: usually a stage; under `bigjob` all stages in one.

    `after` are the places in `WorkflowRun.stages` of the jobs it comes after, `covers` the stages it runs. `attempt`
    counts the Submits given out. `depends_on` are the jobs of those parents that had not completed when it was
    submitted, `tie` what keeps it behind them: with AFTER `minutes` after the start of each, with NODES the nodes
    `pins`. `changes` counts how often that was changed since, `looked_at` is when that was last thought over.
    `nodes` are those it holds or held last, `exclude` those on which it failed and shall not run again.
    `misses` counts its starts that came too early and were taken back. `wasted` are the node-seconds of attempts that
    came to nothing, `idle` those of them in which it waited for parents. `retries` counts attempts that failed by
    themselves and were repeated, `mishaps` those that failed with their nodes, `timeouts` those at their limit.
    `restarts` is Slurm's count of requeues.
    `estimate` is the predicted wait (s), `estimate_index` the predictor's alternative, `estimate_said` what its experts
    said (s, by name). `parent_end` is when the last of its parents was expected to end, `due` = `parent_end` -
    `estimate` when it is to be submitted. `submitted` is our time until Slurm's is seen. `slurm_state` and `exit_code`
    are Slurm's last word; `sought` is since when the job of a Submit without an answer is looked for, `observed` says
    that its wait was reported, `hindered` (a `waits.causes.Cause`) what else than its turn it was seen to wait for.
    """

    name: str
    after: tuple[int, ...] = ()
    phase: Phase = Phase.WAITING
    attempt: int = 0
    job: int | None = None
    depends_on: tuple[int, ...] = ()
    covers: tuple[str, ...] = ()
    tie: Tie = Tie.NONE
    minutes: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    changes: int = 0
    looked_at: float | None = None
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    misses: int = 0
    wasted: float = 0.0
    idle: float = 0.0
    retries: int = 0
    mishaps: int = 0
    timeouts: int = 0
    restarts: int = 0
    estimate_index: int | None = None
    estimate: float | None = None
    estimate_said: Mapping[str, float] = field(default_factory=dict)
    parent_end: float | None = None
    due: float | None = None
    submitted: float | None = None
    released: float | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    slurm_state: str | None = None
    exit_code: int | None = None
    failure: str | None = None
    failures: int = 0
    retry_at: float | None = None
    sought: float | None = None
    observed: bool = False
    hindered: str | None = None


_STAGE_FIELDS: Final = tuple(f.name for f in fields(StageRun))


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """One submission of a workflow under a strategy. `partition` and `qos` are what its geometries are learned under.

    `strategy` is the one that was asked for, `by` the one that acts (`auto` picks another); None: the same. `units` are
    its jobs as stages, one for each of `stages`. `max_time` (s) is the partition's limit, None: there is none.
    `levels_ahead` is how many levels of jobs that have not started are in the queue at most (`strategy.soon`).
    `token` keeps job names unique when numbers start again with a new state file.
    `stages` has one entry per job, each after all that it comes after. `discarded` are jobs given up (their dependency
    was lost) that must be seen to end. `why` says what made it fail or who cancelled it.
    """

    id: int
    workflow: Workflow
    strategy: str
    submitted_at: float
    partition: str
    qos: str
    stages: tuple[StageRun, ...]
    units: tuple[Stage, ...]
    by: str | None = None
    max_time: float | None = None
    levels_ahead: int = 2
    phase: RunPhase = RunPhase.ACTIVE
    why: str | None = None
    ended_at: float | None = None
    discarded: tuple[int, ...] = ()
    token: str = ""

    @property
    def acting(self) -> str:
        """The name of the strategy that acts."""
        return self.by or self.strategy

    @property
    def label(self) -> str:
        """What the run is called in job names: its number and token, unique beyond this agent's state."""
        return f"{self.id}-{self.token}" if self.token else str(self.id)

    def stage(self, name: str) -> StageRun:
        """The entry of a stage. Raises KeyError."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def with_stage(self, stage: StageRun) -> WorkflowRun:
        """The same run with the entry of that name replaced; itself when nothing changes."""
        for i, old in enumerate(self.stages):
            if old.name == stage.name:
                return self if old == stage else replace(self, stages=(*self.stages[:i], stage, *self.stages[i + 1 :]))
        raise KeyError(stage.name)

    def unit(self, i: int) -> Stage:
        """Number `i` as it is asked for now: after attempts that ran into their limit with half as much time again for
        each, as far as the partition allows."""
        unit, times = self.units[i], self.stages[i].timeouts
        if not times:
            return unit
        most = unit.time_limit * 1.5**times
        return replace(unit, time_limit=most if self.max_time is None else min(most, self.max_time))

    def parents(self, i: int) -> tuple[StageRun, ...]:
        """The entries that number `i` comes after; none for one that may start at once."""
        return tuple(self.stages[j] for j in self.stages[i].after)

    def following(self, places: Iterable[int]) -> frozenset[int]:
        """The places of all entries that come after one of these, directly or not."""
        found = set(places)
        start = frozenset(found)
        for i, stage in enumerate(self.stages):  # parents stand before their children
            if not found.isdisjoint(stage.after):
                found.add(i)
        return frozenset(found - start)

    def ready_at(self, i: int) -> float | None:
        """When the last parent of number `i` ended (for one without: when the workflow was submitted), epoch s.

        None while that is not known of all of them.
        """
        ends = [parent.end for parent in self.parents(i)]
        known = [end for end in ends if end is not None]
        return None if len(known) < len(ends) else max(known, default=self.submitted_at)

    def jobs(self) -> tuple[int, ...]:
        """Ids of all jobs whose fate matters to the run still, ascending: what the loop's view should cover."""
        live = (s.job for s in self.stages if s.job is not None and not s.phase.final)
        return tuple(sorted({*live, *self.discarded}))


def run_to_dict(run: WorkflowRun) -> dict[str, Any]:
    """The run as JSON-able values, versioned."""
    return {
        "version": _VERSION,
        "id": run.id,
        "workflow": workflow_to_dict(run.workflow),
        "strategy": run.strategy,
        "by": run.by,
        "max_time": run.max_time,
        "levels_ahead": run.levels_ahead,
        "submitted_at": run.submitted_at,
        "partition": run.partition,
        "qos": run.qos,
        "stages": [_stage_to_dict(s) for s in run.stages],
        "phase": run.phase.value,
        "why": run.why,
        "ended_at": run.ended_at,
        "discarded": list(run.discarded),
        "token": run.token,
    }


def run_from_dict(data: Mapping[str, Any]) -> WorkflowRun:
    """What `run_to_dict` gave, by this release or an earlier one. Raises ValueError for another version."""
    if data.get("version") == 1:
        data = _from_version_1(data)
    workflow = workflow_from_dict(data["workflow"]) if data.get("version") in (2, _VERSION) else None
    if workflow is None:
        raise ValueError(f"stored run has version {data.get('version')!r}, this release reads 1 to {_VERSION}")
    if data["version"] == 2:
        data = _from_version_2(data, workflow)
    stages = tuple(_stage_from_dict(s) for s in data["stages"])
    return WorkflowRun(
        id=data["id"],
        workflow=workflow,
        strategy=data["strategy"],
        by=data["by"],
        max_time=data["max_time"],
        levels_ahead=data["levels_ahead"],
        submitted_at=data["submitted_at"],
        partition=data["partition"],
        qos=data["qos"],
        stages=stages,
        units=place_units(workflow, tuple((stage.name, stage.covers) for stage in stages)),
        phase=RunPhase(data["phase"]),
        why=data["why"],
        ended_at=data["ended_at"],
        discarded=tuple(data["discarded"]),
        token=data.get("token", ""),
    )


def _stage_to_dict(stage: StageRun) -> dict[str, Any]:
    """By name, not with `asdict`, which copies every value and takes ten times as long: all runs may change at once."""
    values = {name: getattr(stage, name) for name in _STAGE_FIELDS}
    return {**values, "phase": stage.phase.value, "tie": stage.tie.value, "estimate_said": dict(stage.estimate_said)}


def _stage_from_dict(data: Mapping[str, Any]) -> StageRun:
    tuples = {key: tuple(data[key]) for key in ("after", "depends_on", "covers", "minutes", "pins", "nodes", "exclude")}
    return StageRun(**{**data, **tuples, "phase": Phase(data["phase"]), "tie": Tie(data["tie"])})


def _from_version_2(data: Mapping[str, Any], workflow: Workflow) -> Mapping[str, Any]:
    """Version 2 knew three strategies, which are cut by their names, and no tie but a dependency."""
    bigjob = data["strategy"] == "bigjob"
    cut = together("bigjob", workflow.order) if bigjob else singles(workflow.order)
    covers = dict(cut)
    stages = [
        {
            **stage,
            "covers": covers[stage["name"]],
            "tie": (Tie.AFTEROK if stage["depends_on"] else Tie.NONE).value,
            **{key: [] for key in ("minutes", "pins", "nodes", "exclude")},
        }
        for stage in data["stages"]
    ]
    return {**data, "version": _VERSION, "by": None, "max_time": None, "levels_ahead": 2, "stages": stages}


def _from_version_1(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Version 1 knew chains only: every job came after the one before it and depended on one job or none."""
    stages = [
        {
            **stage,
            "after": [i - 1] if i > 0 else [],
            "depends_on": [] if stage["depends_on"] is None else [stage["depends_on"]],
        }
        for i, stage in enumerate(data["stages"])
    ]
    return {**data, "version": 2, "stages": stages}
