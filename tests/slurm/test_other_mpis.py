"""The same Jacobi script under every MPI library there is to have: it grows and shrinks, by whatever works there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from malleable import Agent, Jacobi, assert_nothing_left, until

import dmr
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(900)]

CACHE = Path("/var/tmp")


@dataclass(frozen=True)
class Library:
    """An MPI library: the wheel that has it, or the programs that the machine must have; how it is started."""

    name: str
    start: str
    wheel: tuple[str, ...] = ()
    mpiexec: str = ""
    exports: dict[str, str] = field(default_factory=dict)


# Several nodes are one host here, which Open MPI's shared memory does not expect.
ONE_HOST = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_mpi_yield_when_idle": "1", "PMIX_MCA_gds": "hash"}
LIBRARIES = [
    Library("mpich-srun", "--srun --mpi=pmi2 -n 2 -N 2", ("mpich",)),
    Library("openmpi4", "-n 2 -N 1", mpiexec="mpiexec.openmpi", exports=ONE_HOST),
    Library("openmpi5", "-n 2 -N 1 --bind-to none", ("openmpi",), exports=ONE_HOST),
    # Its libfabric is not on PyPI; without, it runs where shared memory reaches, but 2021.19 insists on it.
    Library("intel", "-n 2 -ppn 1", ("--no-deps", "impi-rt==2021.18.1")),
    Library("intel-srun", "--srun --mpi=pmi2 -n 2 -N 2", ("--no-deps", "impi-rt==2021.18.1")),
]


def python_of(library: Library) -> str:
    """The Python of a virtual environment with mpi4py, numpy and the library; kept for the next time."""
    wheel = library.wheel[-1] if library.wheel else library.mpiexec
    folder = CACHE / f"penstock-mpi-{wheel}-{sys.version_info.major}.{sys.version_info.minor}"
    done = folder / "done"
    if library.mpiexec and shutil.which(library.mpiexec) is None:
        pytest.skip(f"no {library.mpiexec} on this machine (Debian: apt-get install openmpi-bin)")
    if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.geteuid()):
        pytest.fail(f"{folder} is somebody else's: what is in it would be run")
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        steps = [[sys.executable, "-m", "venv", str(folder)]]
        pip = [str(folder / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        steps.append([*pip, "mpi4py>=4.1", "numpy"])
        steps += [[*pip, *library.wheel]] if library.wheel else []
        for step in steps:
            ran = subprocess.run(step, capture_output=True, text=True, timeout=500, check=False)
            if ran.returncode:
                pytest.skip(f"cannot install {library.name}: {ran.stderr[-300:]}")
        if library.mpiexec:
            (folder / "bin" / "mpiexec").symlink_to(shutil.which(library.mpiexec) or "")
        done.touch()
    return str(folder / "bin" / "python")


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
