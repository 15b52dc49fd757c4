"""Jobs that the contract's tests submit."""

import pytest

from penstock.api import JobSpec, JobState
from penstock.values import merging

PENDING, RUNNING, COMPLETED = JobState.PENDING, JobState.RUNNING, JobState.COMPLETED
FAILED, CANCELLED, TIMEOUT = JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT
UNKNOWN_JOB = 4_000_000
NODES = tuple(f"n{i}" for i in range(1, 9))


def sleeper(seconds=60, nodes=1, exit_code=0, name="job", **more):
    more.setdefault("time_limit", 600.0)
    script = f"#!/bin/sh\nsleep {seconds}\nexit {exit_code}\n"
    return JobSpec(name, script, nodes, output="/dev/null", workdir="/tmp", **more)


async def running(world, **more):
    """A job that runs until the test ends."""
    job = await world.backend.submit(sleeper(300, **more))
    await world.until(job, RUNNING)
    return job


async def mergeable(world):
    """Skips the test where a merge may end slurmctld, or nobody knows: it is not sent there, by tests neither."""
    if (why := merging.why_not((await world.backend.site()).version)) is not None:
        pytest.skip(f"NO MERGE: {why}")


async def finished(world, job):
    """The record of a job; accounting may lag."""
    found = []

    async def recorded():
        found[:] = await world.backend.history(ids=[job])
        return bool(found) and found[0].state.ended

    await world.settle(recorded)
    return found
