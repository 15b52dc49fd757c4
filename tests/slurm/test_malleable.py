"""A real MPI job grows (by the merge) and shrinks on real Slurm, and survives the agent's death at every point of it.

How it grows by companions, which is the usual way, is in test_companion."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from malleable import Agent, Jacobi, assert_nothing_left, mergeable, until

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.timeout(900)]


@pytest.fixture(params=["one host", pytest.param("isolated", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The session's cluster, and the one whose nodes are hosts of their own."""
    found: Cluster = request.getfixturevalue("isolated" if request.param == "isolated" else "cluster")
    return found


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    mergeable(cluster)
    it = Agent(cluster, malleable={"backend": "merge"})
    yield it
    it.stop()
    print(it.log.read_text()[-6000:])  # shown by pytest when the test failed
    for left in (it.folder, it.bin):
        shutil.rmtree(left, ignore_errors=True)


def occupy(cluster: Cluster, nodes: int, seconds: int = 3) -> int:
    """Another user's job of so many nodes."""
    command = ["sbatch", "--parsable", f"-N{nodes}", "-t1", "-o", "/dev/null", "--wrap", f"sleep {seconds}"]
    return int(cluster.run_as("bob", command, check=True).stdout)


def job_state(cluster: Cluster, job: int) -> str:
    return cluster.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"]).stdout.strip()


def test_grows_on_idle_nodes_shrinks_for_a_waiting_job_and_grows_again(agent: Agent, cluster: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id))
    assert jacobi.nodes() == 4
    waiting = occupy(cluster, 6)
    until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id))
    until("the waiting job runs", lambda: job_state(cluster, waiting) in ("RUNNING", "COMPLETED"))
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]

    def records() -> list[str]:
        columns = ["-n", "-P", "-D", "-X", "-j", str(jacobi.id), "-o", "state"]
        return cluster.run_as("root", ["sacct", *columns]).stdout.split()

    # Accounting lags by seconds.
    until("accounting has the end", lambda: records()[-1:] == ["COMPLETED"], 30)
    assert set(records()[:-1]) == {"RESIZING"}
    assert_nothing_left(cluster)


# Each script replaces a command of Slurm as the agent sees it, and kills the agent at one point of an expansion.
KILLS = {
    "before the resizer is asked for": {"salloc": 'kill -9 "$AGENT"; exit 1'},
    "while the resizer is asked for": {"salloc": '(sleep 0.3; kill -9 "$AGENT") & exec "$REAL" "$@"'},
    "after the grant": {"salloc": '"$REAL" "$@"; kill -9 "$AGENT"'},
    "before the merge": {"scontrol": 'case "$*" in *NumNodes=0*) kill -9 "$AGENT"; exit 1;; esac; exec "$REAL" "$@"'},
    "after the merge": {
        "scontrol": 'case "$*" in *NumNodes=0*) "$REAL" "$@"; kill -9 "$AGENT"; exit 0;; esac; exec "$REAL" "$@"'
    },
}


def rare(*names: str) -> list[Any]:
    """Half a minute each: with `--all`."""
    return [pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.mark.parametrize("point", ["before the merge", *rare(*(p for p in KILLS if p != "before the merge"))])
def test_agent_killed_in_an_expansion(point: str, agent: Agent, cluster: Cluster) -> None:
    agent.start(KILLS[point])
    jacobi = Jacobi(agent, pause=0.1)  # it shall still run when the agent has made sure that nothing surfaces
    until("the agent is dead", agent.dead)
    assert jacobi.state_told() == "RUNNING", "the application goes on without the agent"
    agent.start()
    until("it has grown in the end", lambda: agent.resizes("expand", jacobi.id), 200)
    assert jacobi.nodes() == 4
    jacobi.assert_exact()
    assert jacobi.sizes() == [2, 4]
    assert_nothing_left(cluster)


@pytest.mark.parametrize("phase", rare("offered", "resizing"))
def test_agent_killed_around_the_spawn(phase: str, agent: Agent, cluster: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent, pause=0.1, hold=1.0)  # it shall still run when the agent offers anew
    until(f"the resize is {phase}", lambda: agent.phase(jacobi.id) == phase)
    agent.kill()
    # Long enough for the new ranks to come up, and for their message to find nobody.
    moment = time.monotonic() + 3
    until("some time has passed", lambda: time.monotonic() > moment)
    assert jacobi.state_told() == "RUNNING"
    agent.start()
    until("it has grown in the end", lambda: 4 in jacobi.sizes())
    until("the agent knows", lambda: agent.phase(jacobi.id) == "idle")
    jacobi.assert_exact()
    assert_nothing_left(cluster)


@pytest.mark.parametrize("phase", rare("proposed", "leaving", "releasing"))
def test_agent_killed_in_a_shrink(phase: str, agent: Agent, cluster: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent, size=4, largest=4, pause=0.1, hold=1.0)
    until("it is known", lambda: agent.phase(jacobi.id))
    waiting = occupy(cluster, 6)
    until(f"the shrink is {phase}", lambda: agent.phase(jacobi.id) == phase)
    agent.kill()
    moment = time.monotonic() + 2
    until("some time has passed", lambda: time.monotonic() > moment)
    assert jacobi.state_told() == "RUNNING"
    agent.start()
    until("the waiting job runs", lambda: job_state(cluster, waiting) in ("RUNNING", "COMPLETED"), 90)
    jacobi.assert_exact()
    assert jacobi.sizes()[:2] == [4, 2]
    assert_nothing_left(cluster)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["allocating", "merging", "offered", "resizing", "proposed", "leaving", "releasing"])
def test_the_controller_restarts_in_a_phase(phase: str, agent: Agent, cluster: Cluster) -> None:
    # That one passes too quickly to be met.
    slow = {"scontrol": 'case "$*" in *NumNodes=0*) sleep 3;; esac; exec "$REAL" "$@"'}
    agent.start(slow if phase == "merging" else None)
    jacobi = Jacobi(agent, pause=0.25, hold=1.0)
    if phase in ("proposed", "leaving", "releasing"):
        until("it has grown", lambda: agent.resizes("expand", jacobi.id))
        occupy(cluster, 6)
    until(f"the resize is {phase}", lambda: agent.phase(jacobi.id) == phase)
    cluster.stop_controller()
    cluster.start_controller()
    until("it has come through", lambda: agent.phase(jacobi.id) == "idle", 300)
    jacobi.assert_exact()
    assert_nothing_left(cluster)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["offered", "resizing", "leaving"])
def test_the_time_limit_is_reached_in_a_phase(phase: str, agent: Agent, cluster: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent, size=4 if phase == "leaving" else 2, hold=1.0)
    if phase == "leaving":
        until("it is known", lambda: agent.phase(jacobi.id))
        occupy(cluster, 6)
    until(f"the resize is {phase}", lambda: agent.phase(jacobi.id) == phase)
    cluster.run_as("root", ["scontrol", "update", f"jobid={jacobi.id}", "EndTime=now"], check=True)
    until("Slurm has ended it", lambda: jacobi.state() == "TIMEOUT", 200)
    assert_nothing_left(cluster)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["offered", "resizing"])
def test_a_node_fails_in_a_phase(phase: str, agent: Agent, cluster: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent, hold=1.0)
    until(f"the resize is {phase}", lambda: agent.phase(jacobi.id) == phase)
    try:
        cluster.run_as("root", ["scontrol", "update", "nodename=n3", "state=down", "reason=test"], check=True)
        until("Slurm has ended it", lambda: jacobi.state() == "NODE_FAIL")
    finally:
        cluster.run_as("root", ["scontrol", "update", "nodename=n3", "state=resume"])
    assert_nothing_left(cluster)


def test_slurm_refuses_the_merge(agent: Agent, cluster: Cluster) -> None:
    agent.start(
        {"scontrol": 'case "$*" in *NumNodes=0*) echo "Job step already exists" >&2; exit 1;; esac; exec "$REAL" "$@"'}
    )
    jacobi = Jacobi(agent, pause=0.02)
    until("the merge was refused and cleaned up", lambda: agent.phase(jacobi.id) == "cleaning")
    jacobi.assert_exact()
    assert jacobi.sizes() == [2]
    assert_nothing_left(cluster)


def test_the_job_is_cancelled_during_an_expansion(agent: Agent, cluster: Cluster) -> None:
    # Until the job has ended for good: Slurm 22.05 merges into one that is just ending, and then neither ever ends.
    agent.start({"scontrol": 'case "$*" in *NumNodes=0*) sleep 20;; esac; exec "$REAL" "$@"'})
    jacobi = Jacobi(agent)
    until("the merge is under way", lambda: agent.phase(jacobi.id) == "merging")
    cluster.run_as("alice", ["scancel", str(jacobi.id)], check=True)
    assert_nothing_left(cluster)


def test_an_operator_resizes_a_users_job_and_a_foreigner_cannot(cluster: Cluster) -> None:
    service = Agent(cluster, "operator", agent={"serve": "all"})
    try:
        service.start()
        jacobi = Jacobi(service, who="alice")
        until("the user's job has grown", lambda: service.resizes("expand", jacobi.id))
        jacobi.assert_exact()
        assert jacobi.sizes()[:2] == [2, 4]
        assert_nothing_left(cluster)
    finally:
        service.stop()
        cluster.run_as("operator", ["rm", "-rf", str(service.folder)])
