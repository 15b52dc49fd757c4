"""What a backend guarantees of allocations, merging and shrinking (`penstock.slurm.base`)."""

import asyncio

import pytest
from contract_jobs import CANCELLED, COMPLETED, NODES, UNKNOWN_JOB, finished, mergeable, running, sleeper

from penstock.api import Allocation, NodeNeeds
from penstock.errors import Infeasible, NotFound, NotNow


async def test_allocate(world):
    job = await world.backend.allocate(Allocation("alloc-1", 3, 600.0), 10.0)
    seen = await world.look(job)
    assert seen.running and len(seen.nodes) == 3
    assert await world.backend.find("alloc-1") == [job]
    await world.backend.cancel(job)
    await world.until(job, CANCELLED, COMPLETED)


async def test_operators_are_known_by_name(world):
    operators = await world.backend.operators()
    assert operators == await world.admin.operators()
    assert world.backend.whoami() not in operators
    if world.admin.whoami() != "root":
        assert world.admin.whoami() in operators


async def test_an_allocation_that_comes_last_takes_what_nobody_waits_for(world):
    await running(world, nodes=5)
    wide = await world.backend.submit(sleeper(nodes=8))
    job = await world.backend.allocate(Allocation("alloc-4", 2, 120.0, last=True, exclusive=True), 20.0)
    assert (await world.look(job)).priority <= (await world.look(wide)).priority
    # Until the first ends there is room for the short one only: on these nodes the wide one begins then.
    with pytest.raises(NotNow):
        await world.backend.allocate(Allocation("alloc-5", 1, 3600.0, last=True, exclusive=True), 4.0)
    await world.backend.cancel(wide)
    await world.backend.cancel(job)
    await world.until(job, CANCELLED, COMPLETED)


async def test_a_job_without_gres(world):
    assert not await world.backend.holds_gres(await running(world))
    with pytest.raises(NotFound):
        await world.backend.holds_gres(UNKNOWN_JOB)


async def test_a_job_that_takes_any_nodes(world):
    assert await world.backend.node_needs(await running(world)) == NodeNeeds()
    with pytest.raises(NotFound):
        await world.backend.node_needs(UNKNOWN_JOB)


async def test_an_allocation_that_is_not_granted_leaves_nothing(world):
    await running(world, nodes=6)
    with pytest.raises(NotNow) as caught:
        await world.backend.allocate(Allocation("alloc-2", 3, 600.0), 1.0)
    assert not isinstance(caught.value, Infeasible)
    states = {j.id: j.state for j in await world.backend.jobs()}
    assert all(states[job].ended for job in await world.backend.find("alloc-2"))
    assert len([j for j in await world.backend.jobs() if not j.state.ended]) == 1


async def test_an_allocation_that_nobody_waits_for_leaves_nothing(world):
    await running(world, nodes=8)
    task = asyncio.ensure_future(world.backend.allocate(Allocation("alloc-3", 1, 600.0), 60.0))

    async def asked():
        await asyncio.sleep(0)
        return bool(await world.backend.find("alloc-3"))

    await world.settle(asked)
    task.cancel()
    with pytest.raises((asyncio.CancelledError, NotNow)):
        await task
    states = {j.id: j.state for j in await world.backend.jobs()}
    assert all(states[job].ended for job in await world.backend.find("alloc-3"))


async def grown(world, nodes=2, more=2):
    """A running job, its first nodes, and the resizer that was merged into it."""
    await mergeable(world)
    job = await running(world, nodes=nodes)
    before = (await world.look(job)).nodes
    resizer = await world.backend.allocate(Allocation(f"resize-{job}", more, 600.0, expands=job), 10.0)
    extra = (await world.look(resizer)).nodes
    await world.backend.merge(resizer, job)
    return job, resizer, before, extra


async def test_merge_grows_the_job_at_once(world):
    job, resizer, before, extra = await grown(world)
    now = await world.look(job)
    assert set(now.nodes) == {*before, *extra} and now.num_nodes == 4 and now.running
    gone = await world.look(resizer)
    assert gone.state.ended and gone.nodes == ()


async def test_merge_is_idempotent(world):
    job, resizer, before, extra = await grown(world)
    await world.backend.merge(resizer, job)
    assert set((await world.look(job)).nodes) == {*before, *extra}


async def test_a_job_grows_twice_and_shrinks(world):
    job, _, before, _ = await grown(world)
    again = await world.backend.allocate(Allocation("again", 2, 600.0, expands=job), 10.0)
    await world.backend.merge(again, job)
    assert len((await world.look(job)).nodes) == 6
    await world.backend.shrink(job, before)
    assert set((await world.look(job)).nodes) == set(before)
    third = await world.backend.allocate(Allocation("third", 6, 600.0, expands=job), 10.0)
    await world.backend.merge(third, job)
    assert len((await world.look(job)).nodes) == 8


async def test_what_cannot_be_merged(world):
    await mergeable(world)
    job = await running(world, nodes=2)
    stranger = await world.backend.allocate(Allocation("stranger", 1, 600.0), 10.0)
    with pytest.raises(Infeasible):
        await world.backend.merge(stranger, job)
    assert (await world.look(stranger)).running
    with pytest.raises(NotFound):
        await world.backend.merge(UNKNOWN_JOB, job)
    with pytest.raises(NotFound):
        await world.backend.merge(stranger, UNKNOWN_JOB)
    cancelled = await world.backend.allocate(Allocation("cancelled", 1, 600.0, expands=job), 10.0)
    await world.backend.cancel(cancelled)
    await world.until(cancelled, CANCELLED, COMPLETED)
    with pytest.raises(Infeasible):
        await world.backend.merge(cancelled, job)
    assert len((await world.look(job)).nodes) == 2


async def test_an_allocation_for_a_job_that_does_not_run(world):
    job = await world.backend.submit(sleeper(hold=True))
    with pytest.raises(Infeasible):
        await world.backend.allocate(Allocation("early", 1, 600.0, expands=job), 2.0)


async def test_shrink_keeps_what_it_should(world):
    job = await running(world, nodes=4)
    nodes = (await world.look(job)).nodes
    keep = {nodes[0], nodes[2]}
    await world.backend.shrink(job, keep)
    seen = await world.look(job)
    assert set(seen.nodes) == keep and seen.num_nodes == 2 and seen.running
    await world.backend.shrink(job, keep)
    assert await world.look(job) == seen
    other = await world.backend.submit(sleeper(1, nodes=6))  # what was given back is free
    await world.until(other, COMPLETED)
    assert (await world.look(job)).running


async def test_what_cannot_be_shrunk(world):
    job = await running(world, nodes=2)
    first, second = (await world.look(job)).nodes
    foreign = next(n for n in NODES if n not in (first, second))
    for keep in ([foreign], [first, foreign], [second], [], ["no-such-node"]):
        with pytest.raises(Infeasible):
            await world.backend.shrink(job, keep)
    assert set((await world.look(job)).nodes) == {first, second}
    held = await world.backend.submit(sleeper(hold=True))
    with pytest.raises(Infeasible):
        await world.backend.shrink(held, [first])


async def test_a_resized_job_is_one_record(world):
    job, _, before, _ = await grown(world)
    begun = await world.look(job)
    await world.backend.shrink(job, before)
    await world.backend.cancel(job)
    await world.until(job, CANCELLED)
    (record,) = await finished(world, job)
    assert (record.state, record.submit, record.start) == (CANCELLED, begun.submit, begun.start)
