"""Faults in virtual time, and several clusters under one clock."""

from __future__ import annotations

import asyncio

import pytest
from mock_world import spec

from penstock.api import JobSpec, ReservationSpec
from penstock.errors import NotFound, NotNow, OutcomeUnknown, SlurmUnavailable
from penstock_lab.mock.backend import virtual_cluster, virtual_site
from penstock_lab.mock.faults import Fault, FaultKind, FaultyBackend
from penstock_lab.mock.model import ClusterConfig


def faulty(**more):
    return FaultyBackend(virtual_cluster(ClusterConfig(nodes=4)), **more)


def test_each_kind_of_fault():
    async def run():
        backend = faulty(time_limit=7.0)
        backend.faults.order("submit", "error")
        with pytest.raises(SlurmUnavailable):
            await backend.submit(spec())
        assert await backend.find("j") == []
        backend.faults.order("submit", "lost-answer")
        with pytest.raises(OutcomeUnknown):
            await backend.submit(spec())
        assert await backend.find("j") == [1]
        backend.faults.order("submit", "repeat")
        assert await backend.submit(spec()) == 3
        assert await backend.find("j") == [1, 2, 3]
        backend.faults.order("jobs", "lost-answer")
        with pytest.raises(SlurmUnavailable):
            await backend.jobs()
        backend.faults.order("jobs", "hang")
        with pytest.raises(SlurmUnavailable):
            await backend.jobs()
        assert backend.now() == 7
        backend.faults.order("cancel", "hang")
        with pytest.raises(OutcomeUnknown):
            await backend.cancel(3)
        assert (await backend.history(ids=[3]))[0].state == "COMPLETED"
        backend.faults.order("*", "late", delay=5)
        assert len(await backend.nodes()) == 4
        assert backend.now() == 19
        with pytest.raises(ValueError, match="no-such"):
            backend.faults.order("jobs", "no-such")

    asyncio.run(run())


def test_orders_count_and_can_be_taken_back():
    async def run():
        backend = faulty()
        backend.faults.order("jobs", "error", 2)
        for _ in range(2):
            with pytest.raises(SlurmUnavailable):
                await backend.jobs()
        assert await backend.jobs() == []
        backend.faults.order("jobs", "error", 9)
        backend.faults.order("jobs", "error", 0)
        assert await backend.jobs() == []

    asyncio.run(run())


def test_jobs_go_on_while_the_controller_is_away():
    async def run():
        backend = faulty()
        job = await backend.submit(spec(10))
        waits = await backend.submit(spec(10, nodes=4))
        backend.away(60)
        for call in (backend.jobs(), backend.cancel(job), backend.site()):
            with pytest.raises(SlurmUnavailable, match="Unable to contact slurm controller"):
                await call
        backend.clock.advance(59)
        with pytest.raises(SlurmUnavailable):
            await backend.jobs()
        backend.clock.advance(1)
        assert {j.id: (j.state, j.end) for j in await backend.jobs()} == {
            job: ("COMPLETED", 10),
            waits: ("COMPLETED", 20),
        }

    asyncio.run(run())


def test_who_chooses_faults_decides_about_every_call():
    async def run():
        seen = []

        def choose(method):
            seen.append(method)
            return Fault(FaultKind.ERROR, error=NotNow("busy")) if method == "merge" else None

        backend = faulty(choose=choose)
        assert backend.whoami() == "alice"
        with pytest.raises(NotNow, match="busy"):
            await backend.merge(1, 2)
        await backend.jobs()
        assert seen == ["merge", "jobs"]

    asyncio.run(run())


def site():
    return virtual_site([ClusterConfig(cluster="b", nodes=2), ClusterConfig(cluster="a", nodes=4)], "alice")


def test_the_clusters_of_a_site_share_a_clock_and_nothing_else():
    async def run():
        b = site()
        a = b.on("a")
        assert (await b.clusters(), await a.clusters()) == (["a", "b"], ["a", "b"])
        assert (a.name, (await a.site()).cluster, len(await a.nodes())) == ("a", "a", 4)
        assert await b.submit(spec(10)) == await a.submit(spec(20)) == 1
        assert (await a.as_user("bob").on("b").jobs())[0].user == "alice"
        b.clock.advance(15)
        assert a.now() == 15
        assert [[j.state for j in await c.jobs()] for c in (a, b)] == [["RUNNING"], ["COMPLETED"]]
        with pytest.raises(NotFound):
            await b.on("c").jobs()
        assert b.on("c").on("a").name == "a"
        with pytest.raises(ValueError, match="different names"):
            virtual_site([ClusterConfig(), ClusterConfig()])

    asyncio.run(run())


def test_a_faulty_site():
    async def run():
        backend = FaultyBackend(site())
        backend.away(5)
        with pytest.raises(SlurmUnavailable):
            await backend.on("a").jobs()
        backend.clock.advance(5)
        assert await backend.on("a").jobs() == []

    asyncio.run(run())


def test_siblings_in_the_configuration_are_a_site():
    backend = virtual_cluster(ClusterConfig(cluster="x", siblings=(ClusterConfig(cluster="y", nodes=1),)))
    assert asyncio.run(backend.clusters()) == ["x", "y"]


def test_texts_are_what_users_wrote():
    async def run():
        backend = virtual_cluster()
        job = await backend.submit(JobSpec("odd\n|name", "#!/bin/sh\n", 1, 60, comment="a|b", workdir="/tmp"))
        texts = await backend.texts([job, 99])
        assert set(texts) == {job}
        assert (texts[job].name, texts[job].comment, texts[job].workdir) == ("odd\n|name", "a|b", "/tmp")

    asyncio.run(run())


def test_reservations_through_the_backend():
    async def run():
        backend = virtual_cluster(ClusterConfig(licenses={"matlab": 2}))
        root = backend.as_user("root")
        made = await root.reserve(ReservationSpec("r", 60, 60, 2, users=("alice",)))
        assert await backend.reservations() == [made]
        await root.unreserve("r")
        assert await backend.reservations() == []
        assert [(lic.name, lic.total) for lic in await backend.licenses()] == [("matlab", 2)]

    asyncio.run(run())


def test_another_user_meets_the_same_faults():
    async def run():
        backend = faulty()
        other = backend.as_user("bob")
        backend.faults.order("jobs", "error", 2)
        for each in (other, backend):
            with pytest.raises(SlurmUnavailable):
                await each.jobs()
        assert (other.whoami(), await other.jobs()) == ("bob", [])

    asyncio.run(run())


@pytest.mark.parametrize("count", [0, 1])
def test_a_fault_of_a_call_that_does_not_exist_is_refused(count):
    with pytest.raises(ValueError, match="sumbit"):
        faulty().faults.order("sumbit", "error", count)
