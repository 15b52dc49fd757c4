"""The agent's share: which pools it looks after, and when."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from test_auto_passes import KnownWaits

from penstock.api import Snapshot
from penstock.config import config_of
from penstock.core.executor import Executor
from penstock.state.pools import SchedulerAddress
from penstock.state.store import Store
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig
from penstock_pool.auto.feeds import PoolFeeds, demand_of
from penstock_pool.auto.order import AutoOrder, AutoState, read_state, write_state
from penstock_pool.demand import Demand, TaskBatch
from penstock_pool.folder import PoolFolder


@pytest.fixture
def folder(tmp_path: Path) -> PoolFolder:
    path = tmp_path / "pools" / "main"
    path.mkdir(parents=True, mode=0o700)
    (path / "key.pem").touch()
    made = PoolFolder("main", path)
    write_state(made, AutoState(AutoOrder(2, 3600.0, python="python3", workdir="/tmp")))
    made.publish(SchedulerAddress("tls://127.0.0.1:1", "here", os.getpid(), 0.0))
    return made


class Feeds:
    def __init__(self, folder: PoolFolder) -> None:
        self.backend = virtual_cluster(ClusterConfig(nodes=4, cpus=4), "alice", start=1e9)
        self.backend.engine._duration = None
        config = config_of({"pool": {"folder": str(folder.path.parent)}})
        executor = Executor(Store(":memory:"), self.backend.clock, self.backend)
        self.woken: list[str] = []
        self.feeds = PoolFeeds(config, self.backend, executor, KnownWaits(), self.backend.clock, self.woken.append)
        self.folder = folder

    def say(self, tasks: int) -> None:
        batch = TaskBatch(1.0, 0, 0, 300.0, tasks, 300.0)
        told = Demand(self.backend.now(), (batch,) if tasks else ())
        self.folder.demand.write_text(json.dumps(told.to_dict()))

    async def look(self) -> None:
        slurm = self.backend
        jobs = {job.id: job for job in await slurm.jobs()}
        nodes = {node.name: node for node in await slurm.nodes()}
        partitions = {p.name: p for p in await slurm.partitions()}
        await self.feeds.reconcile(Snapshot(slurm.now(), jobs, nodes, partitions))


def test_it_looks_after_what_was_ordered_and_rests_where_nothing_is_to_do(folder: PoolFolder):
    async def body() -> None:
        it = Feeds(folder)
        it.say(0)
        await it.look()
        assert it.feeds.next_wake(it.backend.now()) is None
        it.backend.clock.advance(10)
        it.say(400)
        await it.look()
        state = read_state(folder)
        assert state is not None
        assert len(state.allocations) == 2
        due = it.feeds.next_wake(it.backend.now())
        assert due is not None
        assert due > it.backend.now()

    asyncio.run(body())


def test_what_is_off_and_over_is_forgotten_and_what_runs_is_told_to_leave(folder: PoolFolder):
    async def body() -> None:
        it = Feeds(folder)
        it.say(400)
        await it.look()
        it.backend.clock.advance(10)
        it.say(400)
        await it.look()
        state = read_state(folder)
        assert state is not None
        state.off = True
        for each in state.allocations:
            each.joined = True
        write_state(folder, state)
        it.backend.clock.advance(10)
        await it.look()
        assert json.loads(folder.leaving.read_text()) == sorted(str(each.job) for each in state.allocations)
        for each in state.allocations:
            await it.backend.cancel(each.job or 0)
        it.backend.clock.advance(20)
        await it.look()
        assert read_state(folder) is None

    asyncio.run(body())


def test_a_damaged_order_stops_nobody_else(folder: PoolFolder):
    async def body() -> None:
        it = Feeds(folder)
        folder.wanted.write_text("{")
        await it.look()

    asyncio.run(body())


def test_it_wakes_the_loop_when_a_demand_comes_and_goes_on_when_a_folder_cannot_be_read(
    folder: PoolFolder, monkeypatch
):
    monkeypatch.setattr("penstock_pool.auto.feeds._GLANCE", 0.01)

    async def body() -> None:
        it = Feeds(folder)
        it.say(0)
        watching = asyncio.ensure_future(it.feeds.watch())

        async def until(count: int) -> None:
            async with asyncio.timeout(10):
                while len(it.woken) < count:
                    await asyncio.sleep(0.01)

        await until(1)
        it.say(5)
        await until(2)
        monkeypatch.setattr(it.feeds, "_ordered", lambda: (_ for _ in ()).throw(PermissionError("no")))
        await asyncio.sleep(0.1)
        assert not watching.done()
        watching.cancel()

    asyncio.run(body())


def test_a_stopped_pool_says_nothing_and_a_silent_one_said_it_long_ago(folder: PoolFolder):
    found = demand_of(folder)
    assert found is not None
    assert found.at == 0.0
    folder.withdraw()
    assert demand_of(folder) is None
