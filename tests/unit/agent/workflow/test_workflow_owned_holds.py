"""The agent of a site, an operator, lets stages go: what was held meanwhile stays held. Over the simulated Slurm."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from owned_jobs import site_of_workflows

from penstock.api import FAR, JobSpec, JobState
from penstock.core.acts import ReleaseJob, SlurmAct
from penstock.core.executor import Concern, Executor, Payload
from penstock.core.observe import Observer
from penstock.core.verdicts import FRESH
from penstock.errors import SlurmUnavailable
from penstock.state.store import Store
from penstock.waits.learners.learners import make
from penstock.waits.learners.model_store import ModelStore
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.run.runner import Runner
from penstock.workflow.strategy import Rules
from penstock_lab.agent_world import World as AgentWorld
from penstock_lab.agent_world import virtual
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.codec import CHANGING
from penstock_lab.mock.faults import Fault, FaultKind, FaultyBackend
from penstock_lab.mock.model import ClusterConfig

START = 1_000_000_000.0


class World:
    """Alice's cluster, and an operator's controller of workflows; `before` is run before each of its acts."""

    def __init__(self, folder: Path, runner: Runner, **config: Any) -> None:
        self.slurm = virtual_cluster(ClusterConfig(nodes=4, **config), "alice", start=START)
        self.engine, self.root = self.slurm.engine, self.slurm.as_user("root")
        self.before: Callable[[], object] = lambda: None
        self.away = False
        store = Store(folder / "db")
        backend = FaultyBackend(self.root, self._called)
        self.observer = Observer(backend, self.slurm, min_interval=10.0, stale_after=60.0)
        executor = Executor(store, self.slurm, backend, look=partial(self.observer.look, FRESH))
        model_store = ModelStore(store.learning, self.slurm.now, partial(make, "asa-default", (2.0, 10.0)), seed=1)
        self.wakes: list[str] = []
        site: Any = site_of_workflows(backend, self.observer, executor, store, self.slurm, model_store)
        site.wake = self.wakes.append
        self.flows = WorkflowController(site, runner, Rules())

    def _called(self, method: str) -> Fault | None:
        if method in CHANGING:
            self.before()
        return Fault(FaultKind.ERROR, error=SlurmUnavailable("no answer")) if self.away else None

    def hold(self, job: int) -> None:
        """An administrator holds the job, in the middle of somebody's call."""
        self.root._controller.hold("root", job)

    async def submit(self, count: int, **options: Any) -> list[int]:
        """So many stages that are let go at once, as their owner submitted them."""
        kept = {"hold": True} if options.get("hold") else {"kept": "begin"}
        spec = JobSpec("s", "#!/bin/sh\n#MOCK duration=5 exit=0\n", 1, 60, **(options or {"begin": FAR}))
        jobs = [await self.slurm.submit(spec) for _ in range(count)]
        stages = [{"name": f"s{job}", "job": job, "after": [], **kept} for job in jobs]
        uid = self.engine.uid_of("alice")
        await self.flows.registrations.register(uid, {"workflow": "w", "strategy": "perstage", "stages": stages})
        return jobs

    def to(self, seconds: float) -> None:
        self.slurm.clock.advance(seconds)

    def held(self) -> dict[int, str]:
        return {number: job.held for number, job in self.engine.jobs.items()}


def run(
    body: Callable[[World], Awaitable[None]],
    runner: Runner = Runner(accrues=False, ages_from_release=True),  # noqa: B008
    **config: Any,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(body(World(Path(folder), runner, **config)))  # type: ignore[arg-type]


def test_a_hold_of_the_very_moment_stays():
    async def body(w: World) -> None:
        (job,) = await w.submit(1)
        w.before = lambda: w.hold(job)
        decisions = await w.flows.reconcile(await w.observer.look())
        assert [d.verb for d in decisions] == ["release"]
        w.to(100)
        assert (w.engine.job(job).held, w.engine.job(job).state) == ("admin", JobState.PENDING)
        await w.root.release(job)
        w.to(100)
        assert w.engine.records[job].state is JobState.COMPLETED

    run(body)


@pytest.mark.parametrize("options", [{"begin": FAR}, {"hold": True}], ids=["begin", "hold of 0.1.0"])
def test_what_was_held_since_the_look_is_left_alone_and_decided_anew(options):
    async def body(w: World) -> None:
        (job,) = await w.submit(1, **options)
        old = await w.observer.look()
        w.to(2)
        await w.root.hold(job)
        assert await w.flows.reconcile(old) == []
        assert w.wakes[-1] == f"job {job} has changed since this was decided: it is decided anew"
        assert w.held()[job] == "admin"
        (note,) = await w.flows.reconcile(await w.observer.look(0.0))
        assert note.reasons[0].code == "held"
        await w.root.release(job)
        w.to(100)
        await w.flows.reconcile(await w.observer.look())
        if "hold" not in options:  # else the administrator's release was one of the owner's hold, too
            assert w.engine.job(job).state is JobState.RUNNING

    run(body)


@pytest.mark.parametrize("options", [{"begin": FAR}, {"hold": True}], ids=["begin", "hold of 0.1.0"])
def test_acts_of_one_moment_share_a_look(options):
    async def body(w: World) -> None:
        jobs = await w.submit(20, **options)
        old = await w.observer.look()
        w.to(5)
        looks = w.observer.looks
        decisions = await w.flows.reconcile(old)
        assert ([d.verb for d in decisions], w.observer.looks - looks) == (["release"] * 20, 1)
        w.to(1)
        assert sum(w.engine.records[job].state is JobState.RUNNING for job in jobs) == 4

    run(body)


def test_without_an_answer_nothing_is_done():
    async def body(w: World) -> None:
        (job,) = await w.submit(1)
        old = await w.observer.look()
        w.to(2)
        w.away = True
        assert await w.flows.reconcile(old) == []
        assert w.engine.job(job).begin > w.slurm.now()

    run(body)


@pytest.mark.parametrize("accrue_always", [False, True])
def test_what_is_let_go_ages_from_then_on(accrue_always):
    async def body(w: World) -> None:
        (job,) = await w.submit(1)
        await w.slurm.submit(JobSpec("x", "#!/bin/sh\n#MOCK duration=900 exit=0\n", 4, 1000))
        w.to(50)
        await w.flows.reconcile(await w.observer.look())
        let_go = w.slurm.now()
        w.to(500)
        assert w.engine.job(job).state is JobState.PENDING
        since = START if accrue_always else let_go
        aged = int(1000 * (w.slurm.now() - since) / 1000)
        assert w.engine.priority(w.engine.job(job)) == 1 + aged

    runner = Runner(accrues=accrue_always, ages_from_release=not accrue_always)
    run(body, runner, accrue_always=accrue_always, max_age=1000.0)


EVENTS = ("pass", "late pass", "root holds", "owner holds", "root releases", "owner releases", "owner lets go", "later")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3)), max_size=40), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_no_act_of_the_agent_ever_changes_a_hold(events, which):
    """Whoever holds and releases, before the act and at the moment of it: only that changes what is held."""

    async def body(w: World) -> None:
        jobs = await w.submit(4)
        old = await w.observer.look()
        expected: dict[int, str] = {}
        w.before = lambda: (w.hold(jobs[which]), expected.update({jobs[which]: "admin"}))
        for event, number in events:
            job = w.engine.jobs.get(jobs[number])
            if job is None or job.state is not JobState.PENDING:
                continue
            match event:
                case "pass" | "late pass":
                    expected.update(w.held())
                    await w.flows.reconcile(old if event == "late pass" else await w.observer.look(0.0))
                    assert w.held() == expected
                case "root holds":
                    await w.root.hold(job.id)
                case "owner holds":
                    await w.slurm.hold(job.id)
                case "root releases":
                    await w.root.release(job.id)
                case "owner releases" if job.held != "admin":
                    await w.slurm.release(job.id)
                case "owner lets go":
                    await w.slurm.update(job.id, begin="now")
                case "later":
                    w.to(3)
                    old = await w.observer.look(0.0) if number else old
            if job.held:
                assert job.state is JobState.PENDING

    run(body)


@virtual
async def test_what_the_agent_submits_as_itself_is_looked_at_again_before_it_is_released(tmp_path):
    """Where Slurm soon forgets jobs its own are held until their dependency is read back, and an operator's release
    lifts every hold."""
    world = AgentWorld(tmp_path, {"slurm": {"min_interval": 10}}, operator=True, operators=("carol",), min_job_age=60.0)
    await world.boot()
    flow = Workflow("w", (Stage("a", 1, 600, 60, "sleep 60"), Stage("b", 1, 600, 5, "sleep 5", ("a",))))
    run = await world.submit(flow, "asa")
    observer, executor = world.app.observer, world.app.executor
    before, old = executor.act, []

    async def late(act: SlurmAct[Any], subject: str, payload: Payload, concern: Concern) -> Any:
        """What was decided on is two seconds old by now, and an administrator has held the job meanwhile."""
        if isinstance(act, ReleaseJob) and not old:
            world.clock.advance(2)
            world.backend._controller.hold("carol", act.job.number)
            old.append(act.job.number)
        return await before(act, subject, payload, concern)

    executor.act = late
    await world.until(lambda: old, 300)
    (job,) = old
    looks = observer.looks
    await world.until(lambda: observer.looks > looks + 3, 300)
    held = world.engine.job(job)
    assert (held.held, held.state) == ("admin", JobState.PENDING)
    notes = [d["reasons"][0][0] for d in world.store.decisions.of(f"workflow {run}/b")]
    assert (notes[-1], "release" in notes) == ("held", False)
    await world.backend.as_user("carol").release(job)
    assert (await world.finish(run)).phase is RunPhase.COMPLETED
