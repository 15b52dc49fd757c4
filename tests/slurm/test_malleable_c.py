"""The Jacobi solver in C as a job on real Slurm, across isolated hosts, with munge: it grows and shrinks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from malleable import Agent, Jacobi, assert_nothing_left, until

from dmr_c_build import built
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.fixture
def agent(isolated: Cluster) -> Iterator[Agent]:
    it = Agent(isolated)
    yield it
    it.stop()
    print(it.log.read_text()[-6000:])
    shutil.rmtree(it.folder, ignore_errors=True)


def test_a_program_in_c_grows_and_shrinks(agent: Agent, isolated: Cluster) -> None:
    program = built("all", sanitize="") / "jacobi"
    agent.start()
    jacobi = Jacobi(agent, program=str(program), munge=True)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id) or jacobi.state() not in ("PENDING", "RUNNING"))
    assert jacobi.nodes() == 4, jacobi.output()
    words = ["sbatch", "--parsable", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 1"]
    isolated.run_as("bob", words, check=True)
    until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id))
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]
    assert "dmr:" not in jacobi.output()
    assert_nothing_left(isolated)
