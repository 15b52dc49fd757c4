"""Where Slurm forbids the merge, a second job holds the added nodes: an MPI job over two Slurm jobs, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from malleable import Agent, Jacobi, an_agent, assert_nothing_left, until

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.timeout(900)]


@pytest.fixture
def agent(contained: Cluster) -> Iterator[Agent]:
    with an_agent(contained) as it:
        yield it


def occupy(cluster: Cluster, nodes: int) -> int:
    """Another user's job of so many nodes, for three seconds."""
    command = ["sbatch", "--parsable", f"-N{nodes}", "-t1", "-o", "/dev/null", "--wrap", "sleep 3"]
    return int(cluster.run_as("bob", command, check=True).stdout)


def companions(cluster: Cluster, job: int) -> list[int]:
    """Jobs that wait or run under the name of a companion of that job."""
    listed = cluster.run_as("root", ["squeue", "-h", "-o", "%i %j"]).stdout.split("\n")
    return [int(line.split()[0]) for line in listed if f" penstock-{job}-" in line]


def test_grows_by_a_companion_gives_it_back_for_a_waiting_job_and_grows_again(agent: Agent, contained: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent, pause=0.08)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id))
    assert jacobi.nodes() == 2 and len(companions(contained, jacobi.id)) == 1
    (said,) = [d for d in agent.ask("explain", subject=f"job {jacobi.id}") if d["verb"] == "expand"]
    assert "by-companion" in [code for code, _ in said["reasons"]]
    waiting = occupy(contained, 6)
    until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id))
    ran = lambda: contained.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(waiting), "-o", "%T"]).stdout  # noqa: E731
    until("the waiting job runs", lambda: ran().strip() in ("RUNNING", "COMPLETED"))
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]
    assert_nothing_left(contained)


@pytest.mark.long
def test_an_operator_has_the_launcher_of_a_users_job_ask_for_a_companion(contained: Cluster) -> None:
    service = Agent(contained, "operator", agent={"serve": "all"})
    try:
        service.start()
        jacobi = Jacobi(service, who="alice", pause=0.08)
        until("it has grown", lambda: service.resizes("expand", jacobi.id))
        (companion,) = companions(contained, jacobi.id)
        owner = contained.run_as("root", ["squeue", "-h", "-j", str(companion), "-o", "%u %r"]).stdout.split()[0]
        assert owner == contained.users["alice"]
        waiting = occupy(contained, 6)
        until("it has shrunk", lambda: service.resizes("shrink", jacobi.id))
        ran = lambda: contained.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(waiting), "-o", "%T"]).stdout  # noqa: E731
        until("the waiting job runs", lambda: ran().strip() in ("RUNNING", "COMPLETED"))
        jacobi.assert_exact()
        assert jacobi.sizes()[:3] == [2, 4, 2]
        assert_nothing_left(contained)
    finally:
        service.stop()
        print(service.log.read_text()[-6000:])
        contained.run_as("operator", ["rm", "-rf", str(service.folder)])


@pytest.mark.long
def test_the_agent_is_killed_while_a_launcher_asks(contained: Cluster) -> None:
    service = Agent(contained, "operator", agent={"serve": "all"}, dmr={"grant_timeout": 60})
    try:
        service.start()
        busy = occupy(contained, 6)
        jacobi = Jacobi(service, who="alice", pause=0.2)
        until(
            "the launcher asks",
            lambda: service.phase(jacobi.id) == "allocating" or service.resizes("expand", jacobi.id),
        )
        service.kill()
        until(
            "the others have gone",
            lambda: str(busy) not in contained.run_as("root", ["squeue", "-h", "-o", "%i"]).stdout,
        )
        service.start()
        until("it has grown in the end", lambda: service.resizes("expand", jacobi.id), 200)
        assert len(companions(contained, jacobi.id)) == 1
        jacobi.assert_exact()
        assert_nothing_left(contained)
    finally:
        service.stop()
        contained.run_as("operator", ["rm", "-rf", str(service.folder)])


# Each script replaces salloc as the agent sees it, and kills the agent at one point of an expansion.
KILLS = {
    "before the companion is asked for": 'kill -9 "$AGENT"; exit 1',
    "while the companion is asked for": '(sleep 0.3; kill -9 "$AGENT") & exec "$REAL" "$@"',
    "after the grant": '"$REAL" "$@"; kill -9 "$AGENT"',
}


@pytest.mark.long
@pytest.mark.parametrize("point", KILLS)
def test_agent_killed_while_it_gets_a_companion(point: str, agent: Agent, contained: Cluster) -> None:
    agent.start({"salloc": KILLS[point]})
    jacobi = Jacobi(agent, pause=0.25)
    until("the agent is dead", agent.dead)
    agent.start()
    until("it has grown in the end", lambda: agent.resizes("expand", jacobi.id), 200)
    assert len(companions(contained, jacobi.id)) == 1
    jacobi.assert_exact()
    assert jacobi.sizes() == [2, 4]
    assert_nothing_left(contained)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["joining", "offered", "resizing", "proposed", "leaving", "releasing"])
def test_agent_killed_in_a_phase(phase: str, agent: Agent, contained: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent, pause=0.25)
    if phase in ("proposed", "leaving", "releasing"):
        until("it has grown", lambda: agent.resizes("expand", jacobi.id))
        occupy(contained, 6)
    until(f"the resize is {phase}", lambda: agent.phase(jacobi.id) == phase)
    agent.kill()
    assert jacobi.state() == "RUNNING", "the application goes on without the agent"
    agent.start()
    until("it has come through", lambda: agent.phase(jacobi.id) == "idle", 300)
    jacobi.assert_exact()
    assert_nothing_left(contained)


@pytest.mark.long
def test_the_job_ends_while_no_agent_runs(agent: Agent, contained: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id))
    agent.kill()
    contained.run_as("alice", ["scancel", str(jacobi.id)], check=True)
    until("the job has ended", jacobi.ended)
    assert companions(contained, jacobi.id)
    agent.start()
    assert_nothing_left(contained)


def scancelled(cluster: Cluster, companion: int) -> None:
    cluster.run_as("alice", ["scancel", str(companion)], check=True)


def out_of_time(cluster: Cluster, companion: int) -> None:
    cluster.run_as("root", ["scontrol", "update", f"jobid={companion}", "EndTime=now"])


def on_a_dead_node(cluster: Cluster, companion: int) -> None:
    nodes = cluster.run_as("root", ["squeue", "-h", "-j", str(companion), "-o", "%N"]).stdout.strip()
    node = cluster.run_as("root", ["scontrol", "show", "hostnames", nodes]).stdout.split()[0]
    cluster.run_as("root", ["scontrol", "update", f"nodename={node}", "state=down", "reason=test"], check=True)


@pytest.fixture
def resumed(contained: Cluster) -> Iterator[None]:
    yield
    contained.run_as("root", ["scontrol", "update", "nodename=n[1-8]", "state=resume"])


@pytest.mark.long
@pytest.mark.parametrize("end", [scancelled, out_of_time, on_a_dead_node])
@pytest.mark.parametrize("phase", ["idle", "offered", "resizing"])
@pytest.mark.usefixtures("resumed")
def test_a_companion_that_ends_by_itself(
    phase: str, end: Callable[[Cluster, int], None], agent: Agent, contained: Cluster
) -> None:
    """What its ranks did is lost with them, or they were not needed yet: then the job goes on. Nothing is left.

    While it is offered, its ranks are being started: nothing of the job depends on them.
    """
    agent.start()
    jacobi = Jacobi(agent, pause=0.1)
    if phase == "idle":
        until("it has grown", lambda: agent.resizes("expand", jacobi.id))
    until(f"it is {phase}", lambda: agent.phase(jacobi.id) == phase)
    (companion,) = companions(contained, jacobi.id)
    end(contained, companion)
    until("the companion has gone", lambda: companion not in companions(contained, jacobi.id))
    until("the job has ended", jacobi.ended, 500)
    if phase == "offered" or jacobi.state() == "COMPLETED":
        jacobi.assert_exact()
    contained.run_as("root", ["scontrol", "update", "nodename=n[1-8]", "state=resume"])
    assert_nothing_left(contained)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["allocating", "joining", "offered", "resizing", "proposed", "leaving", "releasing"])
def test_the_controller_restarts_in_a_phase(phase: str, agent: Agent, contained: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent, pause=0.25)
    if phase in ("proposed", "leaving", "releasing"):
        until("it has grown", lambda: agent.resizes("expand", jacobi.id))
        occupy(contained, 6)
    until(f"the resize is {phase}", lambda: agent.phase(jacobi.id) == phase)
    contained.stop_controller()
    contained.start_controller()
    until("it has come through", lambda: agent.phase(jacobi.id) == "idle", 300)
    jacobi.assert_exact()
    assert_nothing_left(contained)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["joining", "offered", "resizing"])
def test_the_job_is_cancelled_in_a_phase(phase: str, agent: Agent, contained: Cluster) -> None:
    agent.start()
    jacobi = Jacobi(agent)
    until(f"the resize is {phase}", lambda: agent.phase(jacobi.id) == phase)
    contained.run_as("alice", ["scancel", str(jacobi.id)], check=True)
    assert_nothing_left(contained)
