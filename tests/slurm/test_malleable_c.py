"""The Jacobi solver in C as a job on real Slurm, across isolated hosts, with munge: it grows and shrinks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from malleable import Agent, Jacobi, an_agent, assert_nothing_left, until

from dmr_c_build import built
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.fixture
def agent(isolated: Cluster) -> Iterator[Agent]:
    with an_agent(isolated) as it:
        yield it


@pytest.fixture
def by_companions(contained: Cluster) -> Iterator[Agent]:
    """An agent where Slurm merges nothing."""
    with an_agent(contained) as it:
        yield it


def rival(cluster: Cluster, nodes: int = 6) -> None:
    """Another user's job that waits for nodes which only the malleable one can give."""
    words = ["sbatch", "--parsable", f"-N{nodes}", "-t1", "-o", "/dev/null", "--wrap", "sleep 1"]
    cluster.run_as("bob", words, check=True)


@pytest.mark.long
def test_a_program_in_c_grows_and_shrinks(agent: Agent, isolated: Cluster) -> None:
    program = built("all", sanitize="") / "jacobi"
    agent.start()
    jacobi = Jacobi(agent, program=str(program), munge=True)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id) or jacobi.state() not in ("PENDING", "RUNNING"))
    assert jacobi.nodes() == 4, jacobi.output()
    rival(isolated)
    until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id))
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]
    (said,) = [line for line in jacobi.output().splitlines() if "dmr:" in line]
    assert "built with mpicc_abi it may" in said  # it is built without, for the merge
    assert_nothing_left(isolated)


def test_a_program_in_c_grows_by_a_companion(by_companions: Agent, contained: Cluster) -> None:
    """Its processes are of two jobs then, and two of MPI's worlds."""
    agent = by_companions
    program = built("all", sanitize="", compiler="mpicc_abi") / "jacobi"
    agent.start()
    jacobi = Jacobi(agent, program=str(program), munge=True, pause=0.08)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id) or jacobi.state() not in ("PENDING", "RUNNING"))
    assert jacobi.nodes() == 2, jacobi.output()  # the others are a companion's
    (said,) = [d for d in agent.ask("explain", subject=f"job {jacobi.id}") if d["verb"] == "expand"]
    assert "by-companion" in [code for code, _ in said["reasons"]]
    rival(contained)
    until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id))
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]
    assert "dmr:" not in jacobi.output()
    assert_nothing_left(contained)


@pytest.mark.long
def test_the_launcher_of_a_program_in_c_asks_for_its_companion(contained: Cluster) -> None:
    """Where the agent is the site's, which cannot ask in a user's name."""
    program = built("all", sanitize="", compiler="mpicc_abi") / "jacobi"
    with an_agent(contained, "operator", agent={"serve": "all"}) as service:
        service.start()
        jacobi = Jacobi(service, who="alice", program=str(program), pause=0.08)
        until("it has grown", lambda: service.resizes("expand", jacobi.id))
        rival(contained)
        until("it has shrunk", lambda: service.resizes("shrink", jacobi.id))
        jacobi.assert_exact()
        assert jacobi.sizes()[:3] == [2, 4, 2]
        assert_nothing_left(contained)
