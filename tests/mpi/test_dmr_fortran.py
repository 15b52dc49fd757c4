"""Programs in Fortran, under sanitizers: libdmr's module, and an example with the bits of the one in C."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent
from jacobi_bits import BECOME, OPTIONS, SANITIZER, events, same

from dmr import credential, wire
from dmr_c_build import SANITIZED, SOURCES, built
from outside import need_program

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

LAUNCHED = {"launched": True, "options": ["-hosts", "n1,n2", "-ppn", "1"], "DMR_TIMEOUT": "20", **SANITIZER}


@pytest.fixture(scope="module")
def folder() -> Path:
    """With the example, and `deals` of these tests, over as much of MPI's module as they need: this MPI has none."""
    need_program("gfortran", "gfortran")
    here, out = Path(__file__).parent, built("all", compiler="mpicc_abi")
    prefix = Path(sys.executable).parent.parent
    c, module = out / "fortran_mpi.o", out / "fortran_mpi_module.o"
    flags = f"-O1 -g -fcheck=all -Werror {SANITIZED}"
    linked = f"{c} {module} -L{prefix}/lib -Wl,-rpath,{prefix}/lib -lmpi_abi"
    for words in (
        [prefix / "bin/mpicc_abi", "-c", "-o", c, here / "dmr_fortran_mpi.c"],
        ["gfortran", "-std=f2018", f"-J{out}", "-c", "-o", module, here / "dmr_fortran_mpi.f90"],
        ["make", "-s", "-C", SOURCES, "fortran", f"OUT={out}", f"MPIFC=gfortran -I{out}", f"MPI_FORTRAN={linked}",
         f"MPICC={prefix}/bin/mpicc_abi", f"SANITIZE={SANITIZED}", f"FFLAGS={flags}"],
        ["gfortran", "-std=f2018", "-Wall", *flags.split(), f"-J{out}", f"-I{out}", "-o", out / "fortran-deals",
         SOURCES / "dmr.f90", here / "dmr_fortran_deals.f90", *linked.split(), f"-L{out}", "-Wl,-rpath,$ORIGIN",
         "-ldmr"],
    ):  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    return out


def test_the_example(mpirun, folder: Path, tmp_path: Path, key: credential.Key) -> None:
    """The same bits as in C; the second growth is one onto nodes of another job."""

    def from_jobs(request: wire.Request) -> wire.Reply | None:
        reply = agent._answer(request)
        held = 77 if isinstance(reply, wire.CheckReply) and agent.epoch == 2 and reply.action == "expand" else 0
        return replace(reply, companion=held) if held else reply

    program = str(folder / "jacobi-fortran")
    with FakeAgent(key, (4, 2, 5), patience=1, veto=from_jobs) as agent:
        done = mpirun(2, *BECOME, program, *OPTIONS, agent=agent.address, **LAUNCHED)
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.bin") and "30 sweeps, last change" in done.stdout
    assert [s for event, s in events(tmp_path) if event == "resized"] == [4, 2, 5], done.stderr


def test_rows_are_what_they_were(mpirun, folder: Path, key: credential.Key) -> None:
    """Dealt in turn and as the program says; counted from 1."""
    with FakeAgent(key, (3, 1, 4), patience=1) as agent:
        done = mpirun(2, *BECOME, str(folder / "fortran-deals"), agent=agent.address, **LAUNCHED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["size 2", "size 3", "size 1", "size 4", "made 12 steps", ""], done.stderr
