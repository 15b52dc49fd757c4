"""The state of one running workflow: frozen, and to and from JSON-able values, so that it survives the agent.

Times are seconds since the epoch, None means not known (yet).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from penstock.workflow.model import Workflow, workflow_from_dict, workflow_to_dict

__all__ = ["Phase", "RunPhase", "StageRun", "WorkflowRun", "run_from_dict", "run_to_dict"]

_VERSION: Final = 1


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

    `attempt` counts the Submits given out. `depends_on` is the job id in its dependency, None without one. `estimate`
    is the predicted wait (s), `estimate_index` the predictor's alternative, `estimate_said` what its experts said
    (s, by name). `parent_end` is when its parent was
    expected to end, `due` = `parent_end` - `estimate` when it is to be submitted. `submitted` is our time until
    Slurm's is seen. `slurm_state` and `exit_code` are Slurm's last word; `observed` says that its wait was reported.
    """

    name: str
    phase: Phase = Phase.WAITING
    attempt: int = 0
    job: int | None = None
    depends_on: int | None = None
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
    observed: bool = False


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """One submission of a workflow under a strategy. `partition` and `qos` are what its geometries are learned under.

    `token` keeps job names unique when numbers start again with a new state file.
    `stages` has one entry per job in the order they run. `discarded` are jobs given up (their dependency was lost) that
    must be seen to end. `why` says what made it fail or who cancelled it.
    """

    id: int
    workflow: Workflow
    strategy: str
    submitted_at: float
    partition: str
    qos: str
    stages: tuple[StageRun, ...]
    phase: RunPhase = RunPhase.ACTIVE
    why: str | None = None
    ended_at: float | None = None
    discarded: tuple[int, ...] = ()
    token: str = ""

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
        """The same run with the entry of that name replaced."""
        return replace(self, stages=tuple(stage if s.name == stage.name else s for s in self.stages))

    def parent(self, i: int) -> StageRun | None:
        """The entry that number `i` comes after; None for the first."""
        return self.stages[i - 1] if i > 0 else None

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
        "submitted_at": run.submitted_at,
        "partition": run.partition,
        "qos": run.qos,
        "stages": [{**asdict(s), "phase": s.phase.value} for s in run.stages],
        "phase": run.phase.value,
        "why": run.why,
        "ended_at": run.ended_at,
        "discarded": list(run.discarded),
        "token": run.token,
    }


def run_from_dict(data: Mapping[str, Any]) -> WorkflowRun:
    """What `run_to_dict` gave. Raises ValueError for another version."""
    if data.get("version") != _VERSION:
        raise ValueError(f"stored run has version {data.get('version')!r}, this release reads {_VERSION}")
    return WorkflowRun(
        id=data["id"],
        workflow=workflow_from_dict(data["workflow"]),
        strategy=data["strategy"],
        submitted_at=data["submitted_at"],
        partition=data["partition"],
        qos=data["qos"],
        stages=tuple(StageRun(**{**s, "phase": Phase(s["phase"])}) for s in data["stages"]),
        phase=RunPhase(data["phase"]),
        why=data["why"],
        ended_at=data["ended_at"],
        discarded=tuple(data["discarded"]),
        token=data.get("token", ""),
    )
