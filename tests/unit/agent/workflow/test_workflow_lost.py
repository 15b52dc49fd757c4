"""A simulated slurmctld that loses jobs, forgets them or calls them otherwise: no stage runs twice for that."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from owned_jobs import RUNNER, look, run_of, seen, site_of_workflows, stage_of

from penstock.api import JobState
from penstock.core.executor import Executor
from penstock.core.observe import Observer
from penstock.core.verdicts import FRESH
from penstock.sbatch import submission
from penstock.state.store import Store
from penstock.values.waits import Estimate
from penstock.waits.learners.learners import make
from penstock.waits.learners.model_store import ModelStore
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.run.runner import Runner
from penstock.workflow.run.views import Views
from penstock.workflow.strategy import Rules
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.testing import make_job, make_snapshot

FLOW = Workflow("w", (Stage("a", 1, 600.0, 300.0, "sleep 300"),))


class Lossy:
    """A cluster, and the workflows of one agent of alice's."""

    def __init__(self, folder) -> None:
        self.slurm = virtual_cluster(ClusterConfig(nodes=4), "alice", start=1e9)
        self.engine = self.slurm.engine
        store = Store(folder / "db")
        self.finds = 0
        self.find = self.slurm.find
        self.slurm.find = self._counted
        self.observer = Observer(self.slurm, self.slurm, min_interval=1.0, stale_after=60.0)
        executor = Executor(store, self.slurm, self.slurm, look=partial(self.observer.look, FRESH))
        models = ModelStore(store.learning, self.slurm.now, partial(make, "asa-default", (2.0, 10.0)), seed=1)
        runner = Runner(accrues=False, ages_from_release=True)
        site = site_of_workflows(self.slurm, self.observer, executor, store, self.slurm, models)
        self.flows = WorkflowController(site, runner, Rules())

    async def _counted(self, name, uid=None):
        self.finds += 1
        return await self.find(name, uid)

    async def submit(self, flow: Workflow = FLOW) -> None:
        await self.flows.submissions.submit(self.engine.uid_of("alice"), flow, "perstage")

    async def one(self, seconds: float = 2.0) -> None:
        self.slurm.clock.advance(seconds)
        await self.flows.reconcile(await self.observer.look(0.0))

    def lose(self, *numbers: int) -> None:
        """slurmctld has crashed: these are gone, and their numbers come again."""
        for number in numbers:
            self.engine.end(self.engine.jobs[number], JobState.CANCELLED)
            del self.engine.jobs[number]
            del self.engine.records[number]
        self.engine._ids = itertools.count(min(numbers))
        kept = {user: [j for j in jobs if j.id not in numbers] for user, jobs in self.engine.records_of.items()}
        self.engine.records_of = kept

    @property
    def alive(self) -> list[int]:
        return [number for number, job in self.engine.jobs.items() if not job.state.ended]


@pytest.fixture
def go(tmp_path) -> Callable[[Callable[[Lossy], Awaitable[None]]], None]:
    async def it(body) -> None:
        await body(Lossy(tmp_path))

    return lambda body: asyncio.run(it(body))


def test_a_lost_stage_is_submitted_again_once_though_it_gets_its_own_number_again(go):
    async def body(world: Lossy) -> None:
        site = world.slurm.site

        async def with_next():
            return replace(await site(), next_job=max([0, *world.engine.records]) + 1)

        world.slurm.site = with_next
        await world.submit()
        await world.one()
        await world.one()
        world.lose(world.flows.runs[1].stages[0].job)
        for _ in range(60):
            await world.one()
        assert len(world.alive) == 1 and world.flows.runs[1].stages[0].mishaps == 1

    go(body)


def test_a_stage_that_slurmctld_forgot_between_look_and_question_is_not_lost(go):
    async def body(world: Lossy) -> None:
        await world.submit()
        await world.one(1.0)
        job = world.flows.runs[1].stages[0].job
        world.engine.end(world.engine.jobs[job], JobState.COMPLETED)
        world.slurm.clock.advance(1.0)
        shown = await world.observer.look(0.0)
        del world.engine.jobs[job]  # MinJobAge is over; accounting says COMPLETED
        await world.flows.reconcile(shown)
        for _ in range(3):
            await world.one()
        assert len(world.engine.records) == 1

    go(body)


def test_a_stage_whose_name_a_plug_in_of_the_site_has_changed_is_not_lost(go):
    async def body(world: Lossy) -> None:
        async def none(_name, _uid=None):
            return ()

        world.find = none
        await world.submit()
        for _ in range(10):
            await world.one()
        assert len(world.engine.jobs) == 1 and world.flows.runs[1].stages[0].phase is StagePhase.RUNNING

    go(body)


def test_each_name_is_asked_for_once(go):
    async def body(world: Lossy) -> None:
        stages = [Stage(f"s{i}", 1, 60.0, 1.0, "true") for i in range(20)]
        await world.submit(Workflow("w", (*stages, Stage("z", 1, 600.0, 300.0, "sleep 300"))))
        await world.one(1.0)
        for number in list(world.engine.jobs)[:20]:
            world.engine.end(world.engine.jobs[number], JobState.COMPLETED)
        await world.one(10.0)
        world.finds = 0
        for _ in range(4):
            await world.one(10.0)
        assert world.finds == 0

    go(body)


def test_an_array_whose_task_was_requeued_is_known_by_the_others():
    run = run_of([stage_of("a", 10, called="arr")])
    head = make_job(10, array_job=10, submit=100.0)
    task = make_job(11, "n1", array_job=10, array_task=0, submit=500.0, restarts=1)
    run = look(run, head, task, now=600.0).run
    assert (run.stages[0].born, run.stages[0].restarts) == (100.0, 0)

    async def find(_name, _uid):
        return [10]

    shown = make_snapshot([head], at=1000.0)  # that task has ended, and slurmctld has forgotten it
    nobody = SimpleNamespace(records={}, unknown=Counter())
    view = asyncio.run(Views(SimpleNamespace(find=find), None, None, nobody).of(run, shown, frozenset()))
    assert view.rows(10) == (head,) and not view.lost
    step = RUNNER.step(run, seen(head, at=1000.0), 1000.0, lambda _geometry: Estimate(0, 1.0))
    assert step.run.stages[0].phase is StagePhase.QUEUED


def test_the_submission_time_is_read_without_a_clock_s_zone(monkeypatch):
    """Of local times one hour comes twice a year."""
    told = {}

    def run(argv, **more):
        told.update(more["env"])
        return SimpleNamespace(stdout=b"1792891800 first name\n1792891800 second task\n")

    monkeypatch.setattr(submission.subprocess, "run", run)
    assert submission.as_seen(5) == ("first name", 1792891800.0)
    assert told["SLURM_TIME_FORMAT"] == "%s"
