"""What only pyslurm can be asked: that it is it that answers, what it lacks, and what happens when libslurm hangs."""

import asyncio
import time

import psutil
import pytest
from contract_jobs import COMPLETED, RUNNING, finished, running, sleeper

from penstock.api import Job
from penstock.errors import Infeasible, OutcomeUnknown, SlurmUnavailable
from penstock_lab.cluster import processes

pytestmark = pytest.mark.slurm


def worker_of(backend):
    return psutil.Process(backend._link._process.pid)


async def test_pyslurm_answers(pyslurm_world):
    backend = pyslurm_world.backend
    job = await backend.submit(sleeper(1, name="through-pyslurm"))
    assert await backend.find("through-pyslurm") == [job]
    await backend.update(job, time_limit=300.0)
    await pyslurm_world.until(job, COMPLETED)
    await finished(pyslurm_world, job)
    await backend.nodes()
    await backend.cancel(job)
    asked = {label.removeprefix("pyslurm ") for label in backend.requests if label.startswith("pyslurm ")}
    assert asked >= {"submit", "find", "update", "jobs", "history", "nodes", "cancel"}
    assert not {"sbatch", "squeue", "scancel", "scontrol update"} & set(backend.requests)
    assert backend.seconds["pyslurm jobs"] > 0


async def test_both_ways_show_the_same(pyslurm_world):
    """Every field of every job, node and partition, and what accounting says, also of a job that was resized."""
    pyslurm, plain = pyslurm_world.backend, pyslurm_world.plain
    since = time.time() - 1
    parent = await running(pyslurm_world, nodes=4)
    await pyslurm.submit(sleeper(dependency=f"afterok:{parent}"))
    await pyslurm.submit(sleeper(hold=True, begin="now+3600", comment="x"))
    await pyslurm.submit(sleeper(nodes=8))
    await pyslurm.submit(sleeper(array="0-3,7%1", begin="now+3600"))
    await pyslurm.shrink(parent, (await pyslurm_world.look(parent)).nodes[:1])
    for look in ("jobs", "nodes", "partitions"):
        mine, theirs = await getattr(pyslurm, look)(), await getattr(plain, look)()
        assert sorted(str(item) for item in mine) == sorted(str(item) for item in theirs)
    await pyslurm.cancel(parent)
    await finished(pyslurm_world, parent)
    own = {job.id for job in await plain.jobs() if job.submit >= since}

    async def recorded():
        return {record.id for record in await plain.history(ids=own)} == own

    await pyslurm_world.settle(recorded)
    made = list(await pyslurm.history(ids=own))
    assert made == list(await plain.history(ids=own))
    lately = [record for record in await pyslurm.history(since=since) if record.id in own]
    assert lately == [record for record in await plain.history(since=since) if record.id in own]
    assert made[0] in lately


async def test_a_long_script_and_one_that_names_a_file(pyslurm_world):
    """Of a script pyslurm thinks first that it is the name of a file."""
    long = "#!/bin/sh\n" + "# " + "x" * 300 + "\n" + "# " + "y/" * 4000 + "\ntrue\n"
    spec = sleeper(name="long")
    job = await pyslurm_world.backend.submit(type(spec)("long", long, 1, 60.0, output="/dev/null", workdir="/tmp"))
    await pyslurm_world.until(job, COMPLETED)
    for script in ("/bin/sh", "", "#!/bin/sh\n\0"):
        with pytest.raises(Infeasible):
            await pyslurm_world.backend.submit(type(spec)("file", script, 1, 60.0, workdir="/tmp"))


async def test_a_call_that_hangs_hangs_nothing_else(pyslurm_world):
    """The controller is there and says nothing."""
    job = await running(pyslurm_world)
    backend = pyslurm_world.backend_of("alice", timeout=2.0)
    await backend.site()
    first = worker_of(backend)
    at = pyslurm_world.cluster.daemons.layout
    (controller,) = [p for p in processes.find(at.root, at.slurm_conf) if p.name() == "slurmctld"]
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.05)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    controller.suspend()
    try:
        with pytest.raises(SlurmUnavailable, match=r"no answer within"):
            await backend.jobs()
        assert not first.is_running() and ticks > 5
    finally:
        controller.resume()
        ticking.cancel()
    assert job in [j.id for j in await backend.jobs() if j.state is RUNNING]
    assert worker_of(backend) != first
    controller.suspend()
    try:
        with pytest.raises(OutcomeUnknown, match=r"no answer within"):
            await backend.update(job, time_limit=300.0)
    finally:
        controller.resume()
    await backend.update(job, time_limit=240.0)
    assert next(j for j in await backend.jobs() if j.id == job).time_limit == 240.0


async def test_a_process_that_dies_is_started_again_and_ends_with_the_backend(pyslurm_world):
    backend = pyslurm_world.backend_of("alice")
    await backend.jobs()
    worker = worker_of(backend)
    worker.kill()
    calls = [backend.jobs() for _ in range(3)]
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        assert not isinstance(answer, Exception) or isinstance(answer, SlurmUnavailable)
    await backend.jobs()
    again = worker_of(backend)
    assert again != worker
    asking = asyncio.ensure_future(backend.nodes())
    await asyncio.sleep(0)
    asking.cancel()  # whoever asks next does not get the answer to this
    assert all(isinstance(job, Job) for job in await backend.jobs())
    await backend.close()
    assert not again.is_running()
