"""Passes over a pool on a simulated Slurm: what becomes of its allocations, whatever goes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.api import Geometry, JobSpec, JobState, Snapshot
from penstock.core.executor import Executor
from penstock.core.off import Off
from penstock.core.pauses import Pause
from penstock.errors import Infeasible, OutcomeUnknown, SlurmUnavailable, StoreError
from penstock.state.store import Store
from penstock.values.waits import Distribution, Estimate, Known, Observation
from penstock_lab.agent_world import virtual
from penstock_lab.mock.backend import MockBackend, virtual_cluster
from penstock_lab.mock.faults import Fault, FaultKind, FaultyBackend
from penstock_lab.mock.model import ClusterConfig
from penstock_pool.auto.acts import AutoActs
from penstock_pool.auto.order import AutoOrder, AutoState, read_state, write_state
from penstock_pool.auto.passes import AutoPass
from penstock_pool.demand import Demand, MemberLoad, TaskBatch
from penstock_pool.folder import PoolFolder


class KnownWaits:
    """Every wait is expected to be ten seconds."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    async def prepare(self, geometries: object) -> bool:
        return False

    def predict(self, geometry: Geometry) -> Estimate:
        return Estimate(-1, 10.0)

    def around(self, geometry: Geometry, estimate: Estimate) -> Distribution:
        return Distribution.at(10.0)

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        self.seen.append(observation)


class Scene:
    """A pool of alice's on four nodes; what its tasks need is said by `need`."""

    def __init__(self, folder: Path, **order: object) -> None:
        self.backend = virtual_cluster(ClusterConfig(nodes=4, cpus=4), "alice", start=1e9)
        self.engine = self.backend.engine
        self.fault: Callable[[str], Fault | None] = lambda _method: None
        self.store = Store(":memory:")
        self.waits = KnownWaits()
        self.folder = PoolFolder("main", folder)
        folder.mkdir(exist_ok=True)
        self.state = AutoState(AutoOrder(2, 3600.0, **{"python": "python3", "workdir": "/tmp", **order}))
        write_state(self.folder, self.state)
        self.born()

    def born(self) -> None:
        """An agent that knows what is in the file, and nothing else."""
        slurm = FaultyBackend(self.backend, lambda method: self.fault(method))
        self.executor = Executor(self.store, self.backend.clock, slurm)
        found = read_state(self.folder)
        assert found is not None
        self.state = found

    async def look(self, need: Demand | None) -> None:
        jobs = {job.id: job for job in await self.backend.jobs()}
        nodes = {node.name: node for node in await self.backend.nodes()}
        partitions = {p.name: p for p in await self.backend.partitions()}
        acts = AutoActs(self.executor, self.folder, self.state.order)
        work = AutoPass(self.backend, acts, self.waits, lambda: write_state(self.folder, self.state))
        await work.run(self.state, need, Snapshot(self.now, jobs, nodes, partitions))

    @property
    def now(self) -> float:
        return self.backend.now()

    def need(self, tasks: int = 0, jobs: tuple[int, ...] = (), running: float = 0.0, at: float | None = None) -> Demand:
        batch = TaskBatch(1.0, 0, 0, 300.0, tasks, 300.0)
        members = tuple(MemberLoad(str(job), "n", 4.0, None, 0, 3000.0, running, running) for job in jobs)
        return Demand(self.now if at is None else at, (batch,) if tasks else (), (), members)

    def living(self) -> list[int]:
        return [j.id for j in self.engine.jobs.values() if j.user == "alice" and not j.state.ended]

    async def block(self) -> None:
        """Somebody else has all nodes for two hours."""
        await self.backend.as_user("bob").submit(JobSpec("all", "#!/bin/sh\nsleep 7200\n", 4, 7300.0))
        self.backend.clock.advance(1)

    def forever(self) -> None:
        """What was submitted works until it is ended."""
        for job in self.engine.jobs.values():
            if job.user == "alice" and job.state is JobState.RUNNING:
                job.finish_at = math.inf


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path / "main")
    made.engine._duration = None  # jobs run to their limit, or until they are ended
    return made


@virtual
async def test_it_submits_joins_and_learns(scene: Scene) -> None:
    await scene.look(scene.need(400))
    assert len(scene.living()) == 2
    first = scene.engine.job(scene.living()[0])
    assert isinstance(first.spec, JobSpec)
    assert "pool join --pool main --idle 300s --give-back" in first.spec.script
    scene.backend.clock.advance(5)
    await scene.look(scene.need(400, jobs=tuple(scene.living())))
    assert [each.joined for each in scene.state.allocations] == [True, True]
    assert [seen.known for seen in scene.waits.seen] == [Known.EXACT] * 2
    (_, _), *_ = [(d["verb"], d["subject"]) for d in scene.store.decisions.of("pool main")]
    assert {d["verb"] for d in scene.store.decisions.of("pool main")} == {"submit"}


@virtual
async def test_a_submission_whose_answer_was_lost_is_one_job(scene: Scene) -> None:
    scene.fault = lambda method: Fault(FaultKind.LOST_ANSWER) if method == "submit" else None
    await scene.look(scene.need(400))
    scene.fault = lambda _method: None
    assert len(scene.living()) == 1
    scene.backend.clock.advance(20)
    await scene.look(scene.need(400))
    assert [each.job for each in scene.state.allocations if each.job] == scene.living()
    assert len(scene.living()) == 2


@virtual
async def test_a_process_killed_before_its_request_leaves_a_name_that_is_forgotten(scene: Scene) -> None:
    def killed(method: str) -> Fault | None:
        if method == "submit":
            raise SystemExit
        return None

    scene.fault = killed
    with pytest.raises(SystemExit):
        await scene.look(scene.need(400))
    scene.fault = lambda _method: None
    scene.born()
    assert [each.job for each in scene.state.allocations] == [None]
    assert scene.living() == []
    scene.backend.clock.advance(130)
    await scene.look(scene.need(400))
    assert len(scene.living()) == 2
    assert all(each.job for each in scene.state.allocations)


@virtual
async def test_a_process_killed_after_its_request_finds_the_job(scene: Scene) -> None:
    inner = scene.backend

    async def submit(spec: JobSpec) -> int:
        await MockBackend.submit(inner, spec)
        raise SystemExit

    inner.submit = submit  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        await scene.look(scene.need(400))
    del inner.submit
    scene.born()
    (job,) = scene.living()
    scene.backend.clock.advance(1)
    await scene.look(scene.need(400))
    assert scene.state.allocations[0].job == job
    assert len(scene.living()) == 2


@virtual
async def test_ten_refusals_in_a_row_and_it_gives_up_until_it_is_told(scene: Scene) -> None:
    scene.fault = lambda method: Fault(FaultKind.ERROR, error=Infeasible("no account")) if method == "submit" else None
    for _ in range(60):
        await scene.look(scene.need(400))
        scene.backend.clock.advance(120)
    assert "no account" in scene.state.paused
    assert scene.executor.outcomes["submit", "failed"] == 10
    scene.fault = lambda _method: None
    await scene.look(scene.need(400))
    assert scene.living() == []
    scene.state.paused, scene.state.failed = "", 0
    scene.backend.clock.advance(600)
    await scene.look(scene.need(400))
    assert len(scene.living()) == 2


@virtual
async def test_allocations_that_never_join_make_it_give_up(scene: Scene) -> None:
    for _ in range(4):
        await scene.look(scene.need(400))
        scene.backend.clock.advance(5)
        for job in scene.living():
            scene.engine.end(scene.engine.job(job), JobState.FAILED, 1)
        scene.backend.clock.advance(10)
    assert "before they had joined" in scene.state.paused
    assert "allocation-" in scene.state.paused
    before = len(scene.engine.records)
    await scene.look(scene.need(400))
    assert len(scene.engine.records) == before


@virtual
async def test_allocations_that_come_too_late_and_leave_at_once_are_no_failures(scene: Scene) -> None:
    for _ in range(5):
        await scene.look(scene.need(400))
        scene.backend.clock.advance(5)
        for job in scene.living():
            scene.engine.end(scene.engine.job(job), JobState.COMPLETED)
        scene.backend.clock.advance(10)
    assert scene.state.paused == ""
    assert len(scene.engine.records) > 6


@virtual
async def test_what_is_queued_is_taken_back_when_nothing_has_waited_for_a_while(scene: Scene) -> None:
    await scene.block()
    await scene.look(scene.need(400))
    assert len(scene.living()) >= 2
    await scene.look(scene.need())
    scene.backend.clock.advance(20)
    await scene.look(scene.need())
    assert len(scene.living()) >= 2  # the next tasks may come
    scene.backend.clock.advance(20)
    await scene.look(scene.need())
    assert scene.living() == []
    assert {seen.known for seen in scene.waits.seen} == {Known.MORE_THAN}


@virtual
async def test_a_demand_that_flickers_takes_nothing_back(scene: Scene) -> None:
    await scene.block()
    for tasks in (400, 0, 400, 0, 400, 0):
        await scene.look(scene.need(tasks))
        scene.backend.clock.advance(20)
    assert len(scene.engine.records) <= 1 + 4
    assert not any(j.state is JobState.CANCELLED for j in scene.engine.records.values())


@virtual
async def test_while_tasks_run_what_is_queued_stays_longer(scene: Scene) -> None:
    await scene.look(scene.need(400))
    scene.backend.clock.advance(5)
    mine = tuple(scene.living())
    await scene.block()
    scene.state.order = AutoOrder(4, 3600.0, python="python3", workdir="/tmp")
    await scene.look(scene.need(400, mine, 1000.0))
    assert len(scene.living()) > 2
    for _ in range(4):
        scene.backend.clock.advance(100)
        await scene.look(scene.need(0, mine, 1000.0))
    assert len(scene.living()) > 2
    for _ in range(4):
        scene.backend.clock.advance(100)
        await scene.look(scene.need(0, mine, 1000.0))
    assert tuple(scene.living()) == mine


@virtual
async def test_off_takes_back_what_waits_and_lets_the_rest_go(scene: Scene) -> None:
    await scene.look(scene.need(400))
    scene.backend.clock.advance(5)
    mine = tuple(scene.living())
    await scene.look(scene.need(400, mine))
    scene.state.off = True
    await scene.look(scene.need(400, mine))
    assert [each.leaving for each in scene.state.allocations] == [True, True]
    assert tuple(scene.living()) == mine  # they leave when their tasks have ended


@virtual
async def test_a_pool_that_is_stopped_takes_back_what_waits(scene: Scene) -> None:
    await scene.block()
    await scene.look(scene.need(400))
    await scene.look(None)
    assert scene.living() == []


@virtual
async def test_what_a_scheduler_said_long_ago_counts_for_nothing(scene: Scene) -> None:
    await scene.look(scene.need(400, at=scene.now - 60))
    assert scene.living() == []


@virtual
async def test_nothing_is_asked_for_while_pools_are_paused(scene: Scene) -> None:
    scene.executor.pause_control.pauses = (Pause("pool"),)
    await scene.look(scene.need(400))
    assert scene.living() == []
    assert scene.state.allocations == []
    assert any(d["verb"] == "hold" for d in scene.store.decisions.of("pool main"))


@virtual
async def test_slurm_that_does_not_answer_is_no_refusal_that_loses_a_job(scene: Scene) -> None:
    error = SlurmUnavailable("timed out")
    scene.fault = lambda method: Fault(FaultKind.ERROR, error=error) if method == "submit" else None
    await scene.look(scene.need(400))
    assert scene.state.allocations == []
    scene.fault = lambda _method: None
    scene.backend.clock.advance(60)
    await scene.look(scene.need(400))
    assert len(scene.living()) == 2


@virtual
async def test_an_unknown_outcome_keeps_the_name(scene: Scene) -> None:
    error = OutcomeUnknown("lost")
    scene.fault = lambda method: Fault(FaultKind.ERROR, error=error) if method == "submit" else None
    await scene.look(scene.need(400))
    assert [each.job for each in scene.state.allocations] == [None]


def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    folder = PoolFolder("main", tmp_path)
    assert read_state(folder) is None
    for text in ("", "[]", '{"version": 2}', '{"version": 1, "order": {}}'):
        folder.wanted.write_text(text)
        with pytest.raises(StoreError, match=r"auto\.json"):
            read_state(folder)


@virtual
async def test_the_state_survives_the_file(scene: Scene) -> None:
    await scene.look(scene.need(400))
    found = read_state(scene.folder)
    assert found is not None
    assert found.allocations == scene.state.allocations
    assert (found.order, found.told["end"]) == (scene.state.order, scene.state.told["end"])


@virtual
async def test_what_waits_goes_while_all_is_off(scene: Scene) -> None:
    await scene.block()
    await scene.look(scene.need(400))
    assert scene.living()
    scene.executor.pause_control.turn_off(Off(0, scene.now, "holiday"))
    await scene.look(scene.need(400))
    assert scene.living() == []


@virtual
async def test_a_partition_that_is_not_there_is_told(scene: Scene) -> None:
    scene.state.order = AutoOrder(2, 3600.0, partitions=("gpu",), python="python3", workdir="/tmp")
    await scene.look(scene.need(400))
    assert scene.living() == []
    assert scene.state.told["reasons"] == ("nothing: there is no partition gpu that is up (up: main)",)
