"""Short ways to make workflows whose owner, Alice, submits the jobs, and what Slurm shows of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

from penstock.api import AccountingRecord, Job, JobState
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.core.observe import Observer
from penstock.future.past import QueuePast
from penstock.state.store import Store
from penstock.values.waits import Estimate
from penstock.waits.learners.causes import hindrance
from penstock.workflow.phases import Kept, StagePhase, Submitter
from penstock.workflow.run.instructions import RunStep, SlurmView, tasks_of
from penstock.workflow.run.runner import Runner
from penstock.workflow.state import Own, StageRun, WorkflowRun, units_of
from penstock_lab.testing import NODES, make_job, make_snapshot

RUNNER = Runner(accrues=True)
NEVER = 4_102_358_400.0  # 2099-12-31
# As Slurm shows a job that is kept back in this way.
LOOKS: dict[Kept, dict[str, Any]] = {
    Kept.BEGIN: {"reason": "BeginTime", "eligible": NEVER},
    Kept.HOLD: {"priority": 0, "reason": "JobHeldUser", "eligible": None},
}
_OWN = {f.name for f in fields(Own)}


def stage_of(name: str, job: int, after: Iterable[int] = (), kept: Kept = Kept.NOT, **more: Any) -> StageRun:
    """A stage as it is registered; `after` are places."""
    own = Own(kept=kept, **{key: value for key, value in more.items() if key in _OWN})
    rest = {key: value for key, value in more.items() if key not in _OWN}
    phase = StagePhase.WAITING if kept else StagePhase.QUEUED
    return StageRun(name, tuple(after), **{"phase": phase, "job": job, "own": own, **rest})


def site_of_workflows(
    reader: Any, observer: Observer, executor: Executor, store: Store, clock: Any, models: Any
) -> Any:
    """What a part has of an agent, as far as workflows need it. No expert has anything to say of a wait."""

    async def nobody(_geometries: object) -> bool:
        return False

    waits = SimpleNamespace(model_store=models, prepare=nobody, past=lambda _look: QueuePast())
    more = {"config": Config, "waits": waits, "wake": lambda _why: None}
    return SimpleNamespace(reader=reader, observer=observer, executor=executor, store=store, clock=clock, **more)


def with_own(stage: StageRun, **changes: Any) -> StageRun:
    """The stage with these of `Own`."""
    return replace(stage, own=replace(stage.mine, **changes))


def run_of(stages: Iterable[StageRun], strategy: str = "asa", **more: Any) -> WorkflowRun:
    """Alice's workflow of these stages, parents first."""
    made = tuple(stages)
    values = {"id": 3, "name": "w", "strategy": strategy, "submitted_at": 0.0, "partition": "", "qos": "", **more}
    whose = {"submitter": Submitter.OWNER, "uid": 1000, "user": "alice"}
    return WorkflowRun(stages=made, units=units_of(made), **whose, **values)


def ended(number: int, state: JobState = JobState.COMPLETED, **more: Any) -> Job:
    """A job that has run from 10 to 60."""
    return make_job(number, state=state, **{"start": 10.0, "end": 60.0, **more})


def record(number: int, state: JobState, user: str = "alice") -> AccountingRecord:
    """What accounting says of it."""
    return AccountingRecord(number, "x", user, "batch", "", "", state, 0, 0.0, 5.0, 10.0, 60.0, 600.0, 1)


def seen(*jobs: Job, at: float, records: Iterable[AccountingRecord] = (), **more: Any) -> SlurmView:
    """A look that shows these."""
    snapshot = make_snapshot(jobs, at)
    nodes = {name: snapshot.nodes[name] for name in NODES}
    hindered = {job.id: cause for job in jobs if (cause := hindrance(job, nodes)) is not None}
    return SlurmView(at, snapshot.jobs, {r.id: r for r in records}, hindered=hindered, tasks=tasks_of(snapshot), **more)


def look(
    run: WorkflowRun,
    *jobs: Job,
    now: float = 50.0,
    records: Iterable[AccountingRecord] = (),
    runner: Runner = RUNNER,
    wait: float = 100.0,
) -> RunStep:
    """One pass over what Slurm shows now; every wait is predicted to be `wait` seconds."""
    return runner.step(run, seen(*jobs, at=now, records=records), now, lambda _geometry: Estimate(0, wait))


def of(kind: Any, step: RunStep) -> list[Any]:
    """The instructions of this kind."""
    return [order for order in step.instructions if isinstance(order, kind)]


def codes(step: RunStep, stage: str) -> list[str]:
    """Why nothing more is done for the stage."""
    return [reason.code for name, reason in step.notes if name == stage]
