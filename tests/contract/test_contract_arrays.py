"""What a backend guarantees of job arrays (`penstock.slurm.base`)."""

import pytest
from contract_jobs import CANCELLED, COMPLETED, PENDING, RUNNING, sleeper

from penstock.errors import Infeasible


async def rows(world, array):
    """Of the tasks that have not ended: those that run by their index, and the others' rows."""
    alive = [j for j in await world.backend.jobs() if j.array_job == array and not j.state.ended]
    return {j.array_task: j for j in alive if j.state is RUNNING}, [j for j in alive if j.state is PENDING]


async def test_an_array_is_one_row_and_its_running_tasks(world):
    backend = world.backend
    array = await backend.submit(sleeper(300, name="tasks", array="1-7:2,20%2", requeue=True))

    def runs(*tasks):
        async def so():
            return set((await rows(world, array))[0]) == set(tasks)

        return so

    await world.settle(runs(1, 3))
    tasks, (rest,) = await rows(world, array)
    assert (rest.id, rest.array_task, rest.tasks, rest.reason) == (array, None, 3, "JobArrayTaskLimit")
    assert all(j.tasks == 1 and j.id != array and len(j.nodes) == 1 for j in tasks.values())
    assert await backend.find("tasks") == sorted([array, tasks[1].id, tasks[3].id])

    await backend.hold(array)
    still, (rest,) = await rows(world, array)
    assert set(still) == {1, 3} and rest.priority == 0 and rest.tasks == 3
    await backend.release(array)
    assert (await world.look(array)).priority > 0
    await backend.cancel(tasks[1].id)
    await world.settle(runs(3, 5))
    await world.until(tasks[1].id, CANCELLED)  # it may be completing for a while

    await backend.hold(array)
    await backend.requeue(array)

    async def requeued():  # the one that was cancelled, too
        running, waiting = await rows(world, array)
        return not running and sum(j.tasks for j in waiting) == 5

    await world.settle(requeued)
    await backend.requeue(array)
    await backend.cancel(array)

    async def over():
        return all(j.state.ended for j in await backend.jobs() if j.array_job == array)

    await world.settle(over)
    await backend.cancel(array)


async def test_arrays_that_wait(world):
    indices = range(0, 600, 3)
    long = await world.backend.submit(sleeper(hold=True, array=",".join(map(str, indices))))
    lone = await world.backend.submit(sleeper(hold=True, array="7"))
    plain = await world.backend.submit(sleeper(dependency=f"afterok:{long}"))
    seen = await world.look(long)
    assert (seen.array_job, seen.array_task, seen.tasks) == (long, None, len(indices))
    seen = await world.look(lone)
    assert (seen.array_job, seen.array_task, seen.tasks) == (lone, 7, 1)
    seen = await world.look(plain)
    assert (seen.array_job, seen.array_task, seen.tasks, seen.restarts) == (None, None, 1, 0)
    assert seen.pending and str(long) in seen.dependency
    await world.backend.update(long, time_limit=300.0)
    assert (await world.look(long)).time_limit == 300.0
    for array in ("x", "9-1", "1-"):
        with pytest.raises(Infeasible):
            await world.backend.submit(sleeper(array=array))


async def test_tasks_that_wait_are_cancelled_by_their_numbers(world):
    array = await world.backend.submit(sleeper(300, array="0-9%2"))

    async def two():
        return len((await rows(world, array))[0]) == 2

    await world.settle(two)
    await world.backend.cancel(array, [4, 7, 8, 9])
    tasks, (rest,) = await rows(world, array)
    assert set(tasks) == {0, 1} and rest.tasks == 4
    await world.backend.cancel(array, [4, 7])
    assert (await rows(world, array))[1][0].tasks == 4
    await world.backend.cancel(array, [1, 2, 3, 5, 6])

    async def one():
        running, waiting = await rows(world, array)
        return set(running) == {0} and not waiting

    await world.settle(one)
    await world.backend.cancel(array, [3])
    await world.backend.cancel(array)


async def test_accounting_has_one_record_for_an_array_that_is_named(world):
    """The last task has the array's own id: what became of the others must not be lost with it."""
    array = await world.backend.submit(sleeper(8, array="0-2"))
    other = await world.backend.submit(sleeper(1))

    async def runs():
        return bool((await rows(world, array))[0])

    await world.settle(runs)
    tasks = (await rows(world, array))[0]
    await world.backend.cancel(min(task.id for task in tasks.values()))
    found = []

    async def recorded():
        found[:] = await world.backend.history(ids=[array, other])
        return len(found) == 2 and all(record.state.ended for record in found)

    await world.settle(recorded)
    whole, alone = sorted(found, key=lambda record: record.id)
    assert (whole.id, whole.state, alone.id, alone.state) == (array, CANCELLED, other, COMPLETED)
    assert whole.submit <= whole.start <= whole.end
