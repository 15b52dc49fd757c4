"""The same Jacobi script under every MPI library there is to have: it grows and shrinks, by whatever works there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from malleable import Agent, Jacobi, assert_nothing_left, until

import dmr
from mpi_libraries import LIBRARIES, Library, python_of
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    it = Agent(cluster)
    yield it
    it.stop()
    if it.log.exists():
        print(it.log.read_text()[-6000:])  # shown by pytest when the test failed
    for left in (it.folder, it.bin):
        shutil.rmtree(left, ignore_errors=True)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_jacobi_grows_and_shrinks(library: Library, agent: Agent, cluster: Cluster) -> None:
    python = python_of(library)
    agent.start()
    home = str(Path(dmr.__file__).parents[1])
    exports = {"PYTHONPATH": home, **library.exports}
    jacobi = Jacobi(agent, python=python, start=library.start, exports=exports, pause=0.15, sweeps=150)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id) or jacobi.ended(), 120)
    print(jacobi.output())
    assert jacobi.nodes() == 4, jacobi.output()
    command = ["sbatch", "--parsable", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 3"]
    waiting = int(cluster.run_as("bob", command, check=True).stdout)
    until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id) or jacobi.ended(), 120)

    def state() -> str:
        return cluster.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(waiting), "-o", "%T"]).stdout.strip()

    until("the waiting job runs", lambda: state() in ("RUNNING", "COMPLETED"))
    jacobi.assert_exact(300)
    assert jacobi.sizes()[:3] == [2, 4, 2], jacobi.output()
    assert_nothing_left(cluster)
