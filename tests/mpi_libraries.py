"""The MPI libraries that tests run their programs with, each in a virtual environment that is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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
