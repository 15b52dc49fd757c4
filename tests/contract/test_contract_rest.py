"""What only slurmrestd can be asked: data versions, tokens, other users, hostile names; and that no command is run."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from contract_jobs import COMPLETED, PENDING, RUNNING, finished, running, sleeper

from conftest import RestWorld, SlurmWorld
from penstock.api import Job, ReservationSpec
from penstock.errors import NotPermitted, OutcomeUnknown, SlurmUnavailable
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.values.rest_address import RestAddress
from penstock_lab.cluster import ClusterSpec, processes, restd, up
from penstock_rest.backend import RestBackend
from penstock_rest.link import RestLink
from penstock_rest.tokens import CommandTokens, FileTokens

pytestmark = [pytest.mark.slurm, pytest.mark.release, pytest.mark.timeout(180, func_only=True)]
BOTH = pytest.mark.parametrize("rest_world", ["trixie", "sid"], ids=["24.11", "26.05"], indirect=True)


def shown(items):
    """Every field. Of an allocation that is over squeue may say localhost, where there never was a batch script."""
    ended = [i for i in items if isinstance(i, Job) and i.state.ended]
    return sorted(str(replace(i, batch_host="") if i in ended else i) for i in items)


async def test_slurmrestd_answers_and_shows_what_the_commands_show(rest_world):
    """The one that runs always: a job's life, and every field of every job, node and partition."""
    rest, plain = rest_world.backend, rest_world.plain
    job = await rest.submit(sleeper(1, name="through-rest"))
    waits = await rest.submit(sleeper(hold=True, begin="now+3600", comment="x", array="0-3,7%1"))
    assert await rest.find("through-rest") == [job]
    await rest.update(waits, time_limit=300.0)
    await rest_world.until(job, COMPLETED)
    for look in ("jobs", "nodes", "partitions"):
        end = time.monotonic() + 20
        # What changes meanwhile, as a node that is being cleared, is looked at again.
        while (mine := shown(await getattr(rest, look)())) != (theirs := shown(await getattr(plain, look)())):
            assert time.monotonic() < end, set(mine) ^ set(theirs)
            await asyncio.sleep(0.5)
    await finished(rest_world, job)
    assert list(await rest.history(ids=[job])) == list(await plain.history(ids=[job]))
    await rest.cancel(waits)
    asked = set(rest.requests)
    assert asked >= {
        "rest submit",
        "rest find",
        "rest update",
        "rest jobs",
        "rest history",
        "rest nodes",
        "rest cancel",
    }
    assert all(label.startswith("rest ") for label in asked), "no command was run"


@pytest.mark.long
@BOTH
async def test_both_ways_show_the_same(rest_world):
    """Also of jobs that depend, wait in arrays, were resized."""
    rest, plain = rest_world.backend, rest_world.plain
    since = time.time() - 1
    parent = await running(rest_world, nodes=4)
    await rest.submit(sleeper(dependency=f"afterok:{parent}"))
    await rest.submit(sleeper(nodes=8))
    await rest.submit(sleeper(nodes=6, min_nodes=2))
    await rest.submit(sleeper(array="0-3,7%1", begin="now+3600"))
    await rest.shrink(parent, (await rest_world.look(parent)).nodes[:1])
    await rest_world.advance(3)  # the scheduler has looked at all

    async def alike():
        looks = [[str(item) for item in await backend.jobs()] for backend in (rest, plain)]
        return sorted(looks[0]) == sorted(looks[1])

    await rest_world.settle(alike)  # Slurm's estimates move between two looks
    for look in ("nodes", "partitions", "reservations", "licenses", "operators", "shares"):
        mine, theirs = await getattr(rest, look)(), await getattr(plain, look)()
        assert sorted(str(item) for item in mine) == sorted(str(item) for item in theirs), look
    await rest.cancel(parent)
    await finished(rest_world, parent)
    own = {job.id for job in await plain.jobs() if job.submit >= since}

    async def recorded():
        return {record.id for record in await plain.history(ids=own)} == own

    await rest_world.settle(recorded)

    async def same_records():
        return list(await rest.history(ids=own)) == list(await plain.history(ids=own))

    await rest_world.settle(same_records)  # what waits may begin between two looks
    lately = [record for record in await rest.history(since=since) if record.id in own]
    assert lately == [record for record in await plain.history(since=since) if record.id in own]
    mine, theirs = await rest.site(), await plain.site()
    assert (mine.cluster, mine.version, mine.operator) == (theirs.cluster, theirs.version, theirs.operator)
    if mine.version >= (26, 5):
        flags = mine.priority_flags - {"FAIR_TREE"}  # the default, of which scontrol says nothing
        assert replace(mine, priority_flags=flags) == theirs, "it tells all settings"


@pytest.mark.long
@pytest.mark.parametrize(
    ("rest_world", "version"),
    [("trixie", v) for v in (40, 41, 42)] + [("sid", v) for v in (42, 43, 44, 45)],
    indirect=["rest_world"],
)
async def test_every_data_version(rest_world, servers, version):
    world = RestWorld(rest_world.cluster, servers, f"v0.0.{version}")
    try:
        rest = world.backend
        job = await rest.submit(sleeper(1, nodes=2, name="of-a-version", requeue=True))
        assert rest.data_version == f"v0.0.{version}"
        await world.until(job, COMPLETED)
        array = await rest.submit(sleeper(array="0-5", hold=True))
        await rest.update(array, time_limit=300.0, begin="now+3600")
        await rest.release(array)
        assert (await world.look(array)).state is PENDING and (await world.look(array)).tasks == 6
        if version >= 41:
            await rest.cancel(array, [1, 2])
            assert (await world.look(array)).tasks == 4
        else:
            with pytest.raises(NotPermitted, match="slurmrestd cannot"):
                await rest.cancel(array, [1, 2])
        await rest.cancel(array)
        runs = await running(world, nodes=3)
        await rest.shrink(runs, (await world.look(runs)).nodes[:1])
        assert len((await world.look(runs)).nodes) == 1
        (record,) = await finished(world, job)
        assert (record.state, record.num_nodes) == (COMPLETED, 2)
        site = await rest.site()
        assert site.cluster == rest_world.cluster.name
        assert bool(await rest.lacks()) and not await rest.holds_gres(runs)
        if version >= 43:
            spec = ReservationSpec("pst-r1", rest.now() + 3600, 600.0, 2, users=(world.backend.whoami(),))
            made = await world.admin.reserve(spec)
            assert len(made.nodes) == 2 and made in await rest.reservations()
            await world.admin.unreserve("pst-r1")
    finally:
        await world.close()


@pytest.mark.long
@BOTH
async def test_nobody_blinds_others_by_the_name_of_a_job(rest_world):
    """slurmrestd writes bytes that are no UTF-8 as they are; one such name must not end every look."""
    for name in ("caf\udce9\udcff", 'x"}],"jobs":[{"job_id":7', "\x1b[2J\n|77|root"):
        await rest_world.plant(name)
    jobs = [job for job in await rest_world.backend.jobs() if not job.state.ended]
    assert len(jobs) == 3 and {job.user for job in jobs} == {rest_world.other.whoami()}
    found = await rest_world.backend.texts([job.id for job in jobs])
    assert len(found) == 3 and all(text.name for text in found.values())


@pytest.mark.long
async def test_with_commands_beside_it_all_can_be_done(rest_world):
    rest = rest_world.backend_of("alice", commands=True)
    assert await rest.lacks() == ()
    estimate = await rest.estimate(sleeper(1))
    assert estimate.partition == "batch"
    job = await rest.submit(sleeper(300, requeue=True, options=("--exclusive",)))
    await rest_world.until(job, RUNNING)
    assert [step.id for step in await rest.steps(job)] == ["batch"]
    await rest.requeue(job)
    await rest_world.until(job, PENDING)
    assert job in await rest.find("job")
    site = await rest.site()
    assert site == await rest_world.plain.site()
    assert {"sbatch", "squeue", "scontrol requeue", "rest find"} <= set(rest.requests)


@pytest.mark.long
async def test_a_controller_and_a_server_that_hang(rest_world):
    backend = rest_world.backend_of("alice", timeout=2.0)
    job = await running(rest_world)
    await backend.site()
    at = rest_world.cluster.daemons.layout
    (controller,) = [p for p in processes.find(at.root, at.slurm_conf) if p.name() == "slurmctld"]
    for process in (controller, *processes.find(at.root, at.slurm_conf)):
        if process is not controller and process.name() != "slurmrestd":
            continue
        process.suspend()
        try:
            with pytest.raises(SlurmUnavailable, match=r"no answer within"):
                await backend.nodes()
            backend.budget._services.clear()
            with pytest.raises(OutcomeUnknown, match=r"no answer within"):
                await backend.update(job, time_limit=300.0)
            backend.budget._services.clear()
        finally:
            process.resume()
    await asyncio.sleep(0)

    async def again():
        try:
            return job in [j.id for j in await backend.jobs() if j.state is RUNNING]
        except SlurmUnavailable:
            return False

    await rest_world.settle(again)
    await backend.update(job, time_limit=240.0)


# -- tokens ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["trixie", "sid"])
def token_cluster(request, need_slurm):
    need_slurm(request.param)
    it = up(ClusterSpec(nodes=2, folder=Path(f"/var/tmp/pst-test-j{request.param}"), release=request.param, jwt=True))
    yield it
    it.down()


def by_token(cluster, server, tokens, who="alice"):
    user = cluster.user(who).name
    return RestBackend(
        link=RestLink(RestAddress.parse(server.url), user, tokens),
        commands=False,
        user=user,
        budget=RequestBudget(BudgetLimits(1000, 1000.0, 1000)),
        timeout=20.0,
    )


def token(cluster, tmp_path, who="alice", lifespan=600):
    said = cluster.run_as(who, ["scontrol", "token", f"lifespan={lifespan}"], check=True).stdout
    file = tmp_path / f"token-{who}-{lifespan}"
    file.write_text(said)
    file.chmod(0o600)
    return file


@pytest.mark.long
async def test_tokens(token_cluster, tmp_path):
    cluster = token_cluster
    with restd.serving(cluster, "bob", tokens=True) as server:
        alice = by_token(cluster, server, FileTokens(token(cluster, tmp_path)))
        job = await alice.submit(sleeper(hold=True))
        (seen,) = [j for j in await alice.jobs() if j.id == job]
        assert seen.user == cluster.user("alice").name
        none = by_token(cluster, server, None)
        other = by_token(cluster, server, FileTokens(token(cluster, tmp_path, "bob")), "alice")
        for backend in (none, other):
            with pytest.raises(NotPermitted):
                await backend.jobs()
            with pytest.raises(NotPermitted):
                await backend.cancel(job)
            await backend.close()
        bob = by_token(cluster, server, FileTokens(token(cluster, tmp_path, "bob")), "bob")
        with pytest.raises(NotPermitted):
            await bob.update(job, time_limit=60.0)
        # One that ends: refused by Slurm, and renewed before that by a command.
        short = [*cluster.prefix("alice"), "env", f"SLURM_CONF={cluster.env['SLURM_CONF']}", "scontrol", "token"]
        renewing = by_token(cluster, server, CommandTokens([*short, "lifespan=10"]))
        end = time.monotonic() + 12
        while time.monotonic() < end:
            assert any(j.id == job for j in await renewing.jobs())
            await asyncio.sleep(2)
        stale = by_token(cluster, server, FileTokens(token(cluster, tmp_path, lifespan=10)))
        kept = await stale._link.tokens.current()
        await asyncio.sleep(max(0.0, kept.ends - time.time()) + 1)
        stale._link.tokens.clock = lambda: kept.ends - 5  # whoever's clock is slow finds out from Slurm
        with pytest.raises(NotPermitted):
            await stale.jobs()
        await alice.cancel(job)
        for backend in (alice, bob, renewing, stale):
            await backend.close()
        assert kept.text not in server.log.read_text()


def test_the_world_of_the_commands_is_another_one():
    assert SlurmWorld.make is not RestWorld.make
