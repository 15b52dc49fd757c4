"""Many random resizes in a row: exact results, and nothing left over."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from malleable import Agent, Jacobi, assert_nothing_left, until

from penstock_lab.cluster import Cluster, ClusterSpec, up
from penstock_lab.soak.random_policy import installed

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(5400)]


def with_random_policy(cluster: Cluster, resizes: int) -> Agent:
    """An agent that finds the policy by its entry point, as an installed plug-in."""
    often = {
        "submissions_per_hour": 10_000,
        "user_submissions_burst": 10_000,
        "min_interval": 0.3,
        "requests_per_second": 20,
        "timeout": 30,
    }
    agent = Agent(cluster, dmr={"policy": "random", "cooldown": 0}, slurm=often)
    agent.environment = installed(cluster.folder / "plugin", resizes)
    return agent


def completed(agent: Agent, job: int) -> int:
    """How many resizes of the job have come to a good end, from the state file."""
    with sqlite3.connect(f"file:{agent.folder}/penstock.db?mode=ro", uri=True, timeout=30) as db:
        found = db.execute("SELECT count(*) FROM resizes WHERE job=? AND outcome='completed'", (job,)).fetchone()
    return int(found[0])


@pytest.mark.parametrize("site", ["cluster", "contained"])
def test_a_hundred_random_resizes_of_one_job(site: str, request: pytest.FixtureRequest) -> None:
    cluster: Cluster = request.getfixturevalue(site)
    agent = with_random_policy(cluster, 100)
    try:
        agent.start()
        began = time.monotonic()
        # Nodes that a companion gave back are not asked for again for some seconds: a hundred of those take longer.
        pause = 0.04 if site == "cluster" else 0.08
        jacobi = Jacobi(
            agent, size=2, smallest=1, largest=8, pause=pause, sweeps=12000, every=2, field=(192, 128), minutes=900
        )
        until("100 resizes", lambda: completed(agent, jacobi.id) >= 100 or jacobi.ended(), 3600, every=1.0)
        print(f"{completed(agent, jacobi.id)} resizes in {time.monotonic() - began:.0f} s ({site})")
        assert completed(agent, jacobi.id) >= 100, jacobi.output()
        jacobi.assert_exact(1200)
        assert_nothing_left(cluster)
    finally:
        agent.stop()
        print(agent.log.read_text()[-4000:])
        shutil.rmtree(agent.folder, ignore_errors=True)


def test_a_thousand_random_resizes_of_ten_jobs(new_folder: Callable[[str], Path]) -> None:
    # Ten jobs of MPI on few cores: a slurmd that is asked then may leave out a batch script of its own, and slurmctld
    # ends that job as a node's failure ("missing from batch node"). So nodes are asked rarely. And jobs that have ended
    # are remembered until all have. There is room for all at their largest: who has had a hundred keeps the last size.
    cluster = up(ClusterSpec(nodes=40, folder=new_folder("many"), slurmd_timeout=1800, min_job_age=7200))
    agent = with_random_policy(cluster, 100)
    try:
        agent.start()
        began = time.monotonic()
        jobs = [
            Jacobi(
                agent,
                smallest=1,
                largest=4,
                pause=0.2,
                sweeps=9000,
                every=1,
                field=(192, 128),
                minutes=240,
                name=f"-{number}",
            )
            for number in range(10)
        ]
        until("all of them", lambda: all(completed(agent, j.id) >= 100 or j.ended() for j in jobs), 4800, every=2.0)
        counts = [completed(agent, j.id) for j in jobs]
        print(f"{sum(counts)} resizes in {time.monotonic() - began:.0f} s")
        assert min(counts) >= 100
        for jacobi in jobs:
            jacobi.assert_exact(3600)
        assert_nothing_left(cluster)
    finally:
        print(agent.log.read_text()[-4000:])
        agent.stop()
        cluster.down()
