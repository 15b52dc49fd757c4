"""Growth on real Slurm takes nothing that a waiting job is about to get, and does take what is left over."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from malleable import PYTHON, Agent, until

from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from penstock_lab.papers.dmr.application import COST
from penstock_lab.papers.dmr.models import Model
from penstock_lab.papers.dmr.paper import Application
from penstock_lab.papers.dmr.standin import Order
from penstock_planning.select.speedup import Amdahl

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
ENDS = 3
# Slurm's usual periods, and a controller that is as slow as one with much to do: between the end of a job and the start
# of the next one there is time to do wrong.
SLOW = "bf_interval=30,bf_resolution=1,sched_interval=60,sched_min_interval=5000000"


@pytest.fixture
def cluster(new_folder: Callable[[str], Path]) -> Iterator[Cluster]:
    folder = new_folder("l")
    yield up(ClusterSpec(nodes=8, folder=folder, scheduling=SLOW))
    down(folder)


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    it = Agent(cluster, dmr={"policy": "throughput", "cooldown": 0.5})
    yield it
    it.stop()
    print(it.log.read_text()[-6000:])  # shown by pytest when the test failed
    shutil.rmtree(it.folder, ignore_errors=True)


def occupy(cluster: Cluster, nodes: int) -> int:
    """Another user's job that would keep its nodes for ten minutes."""
    command = ["sbatch", "--parsable", f"-N{nodes}", "-t10", "-o", "/dev/null", "--wrap", "sleep 600"]
    return int(cluster.run_as("bob", command, check=True).stdout)


def solver(agent: Agent) -> int:
    """A malleable job on one node that could be on four, without MPI."""
    model = Model(Application("solver", 6000, 1, 4, 4, 0.2), 600.0, Amdahl())
    order = Order(model, 1, COST, "solver.json")
    command = shlex.join([PYTHON, "-m", "penstock_lab.papers.dmr.standin", order.text()])
    submit = ["sbatch", "--parsable", "-N1", "-t15", "-o", "/dev/null", "--no-requeue"]
    script = f"#!/bin/sh\nexec {command}\n"
    return int(agent.cluster.run_as("alice", submit, input=script, env=agent.ask("env"), check=True).stdout)


def queue(cluster: Cluster) -> dict[int, tuple[str, int, str]]:
    """State, nodes and (expected) start of all jobs."""
    rows = cluster.run_as("root", ["squeue", "-h", "-o", "%i|%T|%D|%S"], check=True).stdout.split()
    return {int(i): (state, int(nodes), start) for i, state, nodes, start in (row.split("|") for row in rows)}


def test_nothing_grows_onto_nodes_that_were_freed_a_moment_ago_for_others(agent: Agent, cluster: Cluster) -> None:
    agent.start()
    wide, pair = occupy(cluster, 5), occupy(cluster, 2)
    me = solver(agent)
    until("it is known", lambda: agent.phase(me))
    waiting = [occupy(cluster, 2) for _ in range(ENDS)]

    def running(job: int) -> bool:
        return queue(cluster).get(job, ("", 0, ""))[0] == "RUNNING"

    try:
        for after in waiting:
            until("it was promised a start", lambda n=after: queue(cluster)[n][2] != "N/A", 60)
            cluster.run_as("root", ["scancel", str(pair)], check=True)
            until("the next one has the nodes", lambda n=after: running(n), 60)
            pair = after
        assert agent.ask("status")["resizes"] == [], "it has grown, or tried to"
        assert queue(cluster)[me][1] == 1
        cluster.run_as("root", ["scancel", str(pair)], check=True)
        until("it has grown onto what is left over", lambda: queue(cluster)[me][1] == 3, 60)
    finally:
        cluster.run_as("root", ["scancel", str(wide), str(me), str(pair), *map(str, waiting)])
        until("nothing is left", lambda: not queue(cluster), 60)


@pytest.mark.long
def test_a_resizer_waits_behind_those_who_were_promised_the_nodes_before_its_end(
    agent: Agent, cluster: Cluster
) -> None:
    agent.start()
    wide = occupy(cluster, 5)
    me = solver(agent)
    after = occupy(cluster, 6)  # in ten minutes, on two idle nodes or on the one that is left beside
    try:
        until("it has grown", lambda: queue(cluster)[me][1] > 1, 60)
        assert queue(cluster)[me][1] == 2, "one of the two idle nodes is promised before its end"
        assert queue(cluster)[after][0] == "PENDING"
    finally:
        cluster.run_as("root", ["scancel", str(wide), str(me), str(after)])
        until("nothing is left", lambda: not queue(cluster), 60)
