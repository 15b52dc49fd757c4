"""What every call of a backend guarantees (`penstock.slurm.base`), held against each backend."""

import asyncio
import time

import pytest
from contract_jobs import (
    CANCELLED,
    COMPLETED,
    FAILED,
    NODES,
    PENDING,
    RUNNING,
    TIMEOUT,
    UNKNOWN_JOB,
    finished,
    running,
    sleeper,
)

from penstock.api import Allocation, JobSpec
from penstock.errors import Infeasible, NotFound, NotPermitted

# -- looking -----------------------------------------------------------------------------------------------------


async def test_an_idle_cluster(world):
    nodes = await world.backend.nodes()
    assert sorted(n.name for n in nodes) == list(NODES)
    (partition,) = await world.backend.partitions()
    assert all(n.usable and n.cpus == 2 and n.partitions == (partition.name,) for n in nodes)
    assert sorted(partition.nodes) == list(NODES)
    assert partition.up and partition.default and partition.max_time is None and partition.max_nodes is None
    site = await world.backend.site()
    assert site.version >= (22, 5) and site.permits_expansion and not site.accrues_always
    assert not [job for job in await world.backend.jobs() if not job.state.ended]


async def test_a_running_job_in_the_snapshot(world):
    before = world.backend.now()
    job = await running(world, nodes=3, time_limit=601.0)
    seen = await world.look(job)
    assert (seen.id, seen.user, seen.state) == (job, world.backend.whoami(), RUNNING)
    assert seen.running and not seen.pending
    assert (seen.num_nodes, len(set(seen.nodes)), seen.num_cpus) == (3, 3, 6)
    assert set(seen.nodes) <= set(NODES)
    assert seen.time_limit in (601.0, 660.0)  # Slurm keeps whole minutes, rounded up
    assert before - 1 <= seen.submit <= seen.start <= world.backend.now() + 1
    assert seen.eligible is not None and seen.submit <= seen.eligible <= seen.start
    assert seen.end == pytest.approx(seen.start + seen.time_limit, abs=1)
    (partition,) = await world.backend.partitions()
    assert seen.partition == partition.name and seen.qos == "normal"
    assert seen.priority > 0 and seen.dependency == ""


async def test_everybody_sees_every_job(world):
    job = await running(world)
    theirs = next(j for j in await world.other.jobs() if j.id == job)
    assert theirs == await world.look(job)
    assert world.other.whoami() != world.backend.whoami()


async def test_a_job_that_waits_for_nodes(world):
    await running(world, nodes=8)
    job = await world.backend.submit(sleeper(1, nodes=8))
    seen = await world.look(job)
    assert seen.pending and seen.nodes == () and seen.num_nodes == 8
    assert seen.eligible == pytest.approx(seen.submit, abs=1)
    assert seen.start is None or seen.start >= seen.submit


async def test_the_steps_of_a_job(world):
    job = await running(world, nodes=2)
    nodes = (await world.look(job)).nodes

    async def there():
        return bool(await world.backend.steps(job))

    await world.settle(there)
    (batch,) = [s for s in await world.backend.steps(job) if s.id == "batch"]
    assert (batch.job, batch.nodes) == (job, nodes[:1])
    assert await world.backend.steps(UNKNOWN_JOB) == []
    await world.backend.cancel(job)
    await world.until(job, CANCELLED)
    assert await world.backend.steps(job) == []


# -- submitting --------------------------------------------------------------------------------------------------


async def test_a_job_runs_and_completes(world):
    job = await world.backend.submit(sleeper(1, nodes=2, name="short"))
    seen = await world.until(job, COMPLETED)
    assert seen.state.ended and seen.end >= seen.start
    (record,) = await finished(world, job)
    assert (record.id, record.user, record.state, record.exit_code) == (job, world.backend.whoami(), COMPLETED, 0)
    assert (record.submit, record.start, record.end) == (seen.submit, seen.start, seen.end)
    assert record.eligible == seen.eligible and record.num_nodes == 2 and record.name == "short"
    assert record.time_limit == seen.time_limit == 600.0


async def test_a_script_that_fails(world):
    job = await world.backend.submit(sleeper(1, exit_code=3))
    await world.until(job, FAILED)
    (record,) = await finished(world, job)
    assert (record.state, record.exit_code) == (FAILED, 3)


async def test_history_by_name_and_time(world):
    mine = await world.backend.submit(sleeper(1, name="by-name"))
    theirs = await world.other.submit(sleeper(1, name="by-name"))
    await world.until(mine, COMPLETED)
    await finished(world, mine)
    await finished(world, theirs)
    since = (await world.look(mine)).submit - 1
    assert [r.id for r in await world.backend.history(name="by-name", since=since)] == [mine]
    assert [r.id for r in await world.backend.history(name="by-na", since=since)] == []
    assert mine in [r.id for r in await world.backend.history(since=since)]
    assert mine in [r.id for r in await world.backend.history(since=0.0)]
    assert sorted(r.id for r in await world.backend.history(ids=[mine, theirs])) == [mine, theirs]
    assert await world.backend.history(ids=[UNKNOWN_JOB]) == []
    await world.advance(2)
    assert await world.backend.history(name="by-name", since=world.backend.now()) == []


@pytest.mark.parametrize(
    "world", ["mock", pytest.param(None, id="slurm", marks=[pytest.mark.slurm, pytest.mark.long])], indirect=True
)
async def test_the_time_limit_ends_a_job(world):
    job = await world.backend.submit(sleeper(1000, time_limit=60.0))
    seen = await world.until(job, TIMEOUT, deadline=160)
    assert seen.end - seen.start >= 60


async def test_a_held_job_waits_for_its_release(world):
    job = await world.backend.submit(sleeper(1, hold=True))
    await world.advance(2)
    seen = await world.look(job)
    assert seen.pending and seen.priority == 0 and seen.eligible is None
    await world.backend.release(job)
    await world.backend.release(job)
    await world.until(job, COMPLETED)
    await world.backend.release(job)


async def test_begin_puts_a_job_off(world):
    job = await world.backend.submit(sleeper(1, begin="now+3600"))
    await world.advance(2)
    assert (await world.look(job)).pending
    await world.backend.update(job, begin="now")
    await world.until(job, COMPLETED)


async def test_afterok_waits_for_its_parent(world):
    parent = await world.backend.submit(sleeper(3))
    child = await world.backend.submit(sleeper(1, dependency=f"afterok:{parent}"))
    seen = await world.look(child)
    assert seen.pending and seen.eligible is None and str(parent) in seen.dependency
    ended = await world.until(parent, COMPLETED)
    seen = await world.until(child, COMPLETED)
    assert seen.eligible is not None and seen.start >= ended.end


async def test_afterok_of_a_failed_parent_never_starts(world):
    parent = await world.backend.submit(sleeper(1, exit_code=1))
    child = await world.backend.submit(sleeper(1, dependency=f"afterok:{parent}"))
    await world.until(parent, FAILED)

    async def hopeless():
        return (await world.look(child)).reason == "DependencyNeverSatisfied"

    await world.settle(hopeless)
    seen = await world.look(child)
    assert seen.pending and seen.eligible is None


async def test_a_dependency_can_be_taken_off(world):
    parent = await running(world)
    child = await world.backend.submit(sleeper(1, dependency=f"afterok:{parent}"))
    await world.backend.update(child, dependency="")
    await world.until(child, COMPLETED)


async def test_what_slurm_refuses_for_ever(world):
    for spec in (
        sleeper(nodes=9),
        sleeper(partition="nowhere"),
        sleeper(dependency="afterok:what"),
        sleeper(begin="whenever"),
        JobSpec("job", "no shebang", 1, 60.0),
    ):
        with pytest.raises(Infeasible):
            await world.backend.submit(spec)
    with pytest.raises(Infeasible):
        await world.backend.allocate(Allocation("big", 9, 60.0), 2.0)
    assert not [job for job in await world.backend.jobs() if not job.state.ended]


async def test_find_by_name(world):
    assert await world.backend.find("never-used") == []
    ended = await world.backend.submit(sleeper(1, name="find.me-1_x"))
    await world.until(ended, COMPLETED)
    held = await world.backend.submit(sleeper(1, name="find.me-1_x", hold=True))
    await world.backend.submit(sleeper(1, name="find.me", hold=True))
    others = await world.other.submit(sleeper(1, name="find.me-1_x", hold=True))
    assert await world.backend.find("find.me-1_x") == [ended, held]
    (uid,) = (job.uid for job in await world.admin.jobs() if job.id == others)
    assert await world.admin.find("find.me-1_x", uid) == [others]
    assert await world.admin.find("find.me", uid) == []


# -- changing ----------------------------------------------------------------------------------------------------


async def test_cancel_is_idempotent(world):
    job = await running(world)
    await world.backend.cancel(job)
    await world.until(job, CANCELLED)
    await world.backend.cancel(job)
    waiting = await world.backend.submit(sleeper(hold=True))
    await world.backend.cancel(waiting)
    await world.until(waiting, CANCELLED)
    with pytest.raises(NotFound):
        await world.backend.cancel(UNKNOWN_JOB)


async def test_update_changes_what_is_given(world):
    job = await world.backend.submit(sleeper(hold=True, time_limit=600.0, dependency=None))
    await world.backend.update(job, time_limit=300.0)
    seen = await world.look(job)
    assert (seen.time_limit, seen.priority, seen.state) == (300.0, 0, PENDING)
    await world.backend.update(job)
    with pytest.raises(NotFound):
        await world.backend.update(UNKNOWN_JOB, time_limit=60.0)
    waiting = await world.backend.submit(sleeper(begin="now+3600"))
    with pytest.raises(NotPermitted):
        await world.backend.update(waiting, priority=1_000_000_000)
    with pytest.raises(NotPermitted):
        await world.backend.update(waiting, nice=-5)
    await world.backend.update(waiting, nice=1000)  # its priority it gets when it is eligible
    await world.backend.update(waiting, priority=0)
    assert (await world.look(waiting)).priority == 0
    for call in (world.backend.release, lambda j: world.backend.shrink(j, ["n1"])):
        with pytest.raises(NotFound):
            await call(UNKNOWN_JOB)


async def test_a_foreign_job_is_out_of_reach(world):
    job = await running(world, nodes=2)
    held = await world.backend.submit(sleeper(hold=True))
    first = (await world.look(job)).nodes[0]
    for attempt in (
        world.other.cancel(job),
        world.other.shrink(job, [first]),
        world.other.update(job, time_limit=60.0),
        world.other.update(held, dependency=""),
        world.other.release(held),
    ):
        with pytest.raises(NotPermitted):
            await attempt
    seen = await world.look(job)
    assert (seen.state, len(seen.nodes), seen.time_limit) == (RUNNING, 2, 600.0)
    assert (await world.look(held)).priority == 0


async def test_calls_end_soon(world):
    started = time.monotonic()
    await asyncio.gather(world.backend.jobs(), world.backend.nodes(), world.backend.partitions(), world.backend.site())
    assert time.monotonic() - started < 15
    await world.backend.close()
