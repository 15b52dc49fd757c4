"""The simulated cluster as a Backend, under the virtual clock."""

from __future__ import annotations

import asyncio
import math

import pytest

from penstock.api import Allocation, JobSpec
from penstock.errors import NotNow, NotPermitted
from penstock.slurm.base import Backend
from penstock_lab.mock.backend import MockBackend, VirtualClock, virtual_cluster
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig, Ended, Started


def spec(seconds=10, nodes=1, limit=100.0, **more):
    return JobSpec("j", f"#!/bin/sh\nsleep {seconds}\n", nodes, limit, **more)


def test_it_is_a_backend_and_users_share_the_cluster():
    async def run():
        alice: Backend = virtual_cluster(ClusterConfig(nodes=2), "alice")
        bob = alice.as_user("bob")
        job = await alice.submit(spec())
        assert [j.user for j in await bob.jobs()] == ["alice"]
        assert (await alice.find("j"), await bob.find("j")) == ([job], [])
        assert (alice.whoami(), bob.whoami()) == ("alice", "bob")
        with pytest.raises(NotPermitted):
            await bob.cancel(job)
        uids = {j.user: j.uid for j in await bob.jobs()}
        await bob.submit(spec())
        assert {j.user: j.uid for j in await alice.jobs()}["bob"] not in (0, uids["alice"])

    asyncio.run(run())


def test_the_clock_jumps_from_event_to_event():
    async def run():
        backend = virtual_cluster(ClusterConfig(nodes=1))
        clock = backend.clock
        first, second = await backend.submit(spec(10)), await backend.submit(spec(5))
        assert clock.next_event() == 10
        assert clock.advance_to(clock.next_event()) == [Ended(first, "COMPLETED", ("n1",)), Started(second, ("n1",))]
        assert backend.now() == 10
        clock.advance(5)
        assert [j.state for j in await backend.jobs()] == ["COMPLETED", "COMPLETED"]
        assert clock.advance_to(math.inf) == []
        assert await backend.jobs() == []
        assert clock.next_event() is None
        clock.advance_to(0)
        assert clock.now() == 315

    asyncio.run(run())


def test_allocate_grants_now_or_withdraws():
    async def run():
        backend = virtual_cluster(ClusterConfig(nodes=4))
        job = await backend.submit(spec(50, nodes=2))
        resizer = await backend.allocate(Allocation("r", 2, 60, expands=job), patience=30)
        assert (await backend.steps(resizer), len(await backend.steps(job))) == ([], 1)
        with pytest.raises(NotNow):
            await backend.allocate(Allocation("late", 1, 60), patience=30)
        (withdrawn,) = await backend.history(name="late")
        assert withdrawn.state == "CANCELLED"
        assert backend.now() == 0

    asyncio.run(run())


def test_a_call_that_takes_time_moves_the_clock():
    async def run():
        backend = virtual_cluster(ClusterConfig(nodes=4, merge_latency=0.5, shrink_latency=0.25))
        job = await backend.submit(spec(50, nodes=2))
        resizer = await backend.allocate(Allocation("r", 2, 60, expands=job), patience=1)
        await backend.merge(resizer, job)
        assert backend.now() == 0.5
        await backend.shrink(job, ["n1"])
        assert backend.now() == 0.75
        await backend.shrink(job, ["n1"])

    asyncio.run(run())


def test_several_clusters_share_a_clock():
    async def run():
        clock = VirtualClock()
        east = MockBackend(Engine(ClusterConfig(cluster="east")), "alice", clock)
        west = MockBackend(Engine(ClusterConfig(cluster="west")), "alice", clock)
        await east.submit(spec(20))
        await west.submit(spec(10))
        assert clock.next_event() == 10
        clock.advance(20)
        assert east.now() == west.now() == 20
        assert [j.end for b in (east, west) for j in await b.jobs()] == [20, 10]

    asyncio.run(run())


def test_history_by_id_by_name_and_by_time():
    async def run():
        backend = virtual_cluster(ClusterConfig(nodes=4))
        bob = backend.as_user("bob")
        early = await backend.submit(spec(10))
        backend.clock.advance(1000)
        late = await backend.submit(spec(10))
        theirs = await bob.submit(spec(10))

        async def ids(**query):
            return [r.id for r in await backend.history(**query)]

        assert await ids() == [early, late]
        assert await ids(name="j", since=500) == [late]
        assert await ids(ids=[early, theirs]) == [early, theirs]
        assert await ids(name="other") == []

    asyncio.run(run())
