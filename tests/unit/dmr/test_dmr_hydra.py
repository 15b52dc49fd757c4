"""Which shell lines start an mpiexec that dies of USR2; the real one of MPICH beside this Python, where it is."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path

import pytest

from dmr.elastic.__main__ import main
from dmr.hydra import complaint

OPEN_MPI = "mpirun (Open MPI) 5.0.7\n"
HYDRA = "HYDRA build details:\n    Version: 5.0.2\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260101\n"
USR2 = int(signal.SIGUSR2)


def program(folder: Path, version: str, name: str = "mpiexec") -> dict[str, str]:
    """The environment of a shell that finds an mpiexec which says this of itself."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] || exit 1\ncat <<'END'\n{version}END\n")
    file.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("version", "lines", "ends"),
    [
        (HYDRA, "exec mpiexec -n 4 ./md", True),
        (INTEL, "rm -f up; mpiexec -n 4 ./md &\nwait", True),
        (OPEN_MPI, "exec mpiexec -n 4 ./md", False),
        (OPEN_MPI, "exec mpiexec.hydra -n 4 ./md", True),
        (OPEN_MPI, "/opt/mpich/bin/mpiexec.hydra -n 4 ./md", True),
        (OPEN_MPI, "module load gcc/13 impi/2021.18\nmpiexec ./md", True),
        (OPEN_MPI, "  ml mpich\nmpirun ./md", True),
        (HYDRA, "module purge\nmodule load openmpi/5.0\nmpiexec ./md", False),
        (OPEN_MPI, "module load impi\nmodule swap impi openmpi\nmpiexec ./md", False),
        (OPEN_MPI, "module unload impi\nmodule load gcc\nmpiexec ./md", False),
        (HYDRA, "module load gcc\nmpiexec ./md", True),
        (HYDRA, "# mpiexec was here\nsrun ./md", False),
        (HYDRA, "srun ./mpiexec-like; ./my-mpiexec; echo mpiexec.log", False),
        (HYDRA, "srun --mpi=pmi2 ./md", False),
        (HYDRA, "mpirun ./md", False),  # there is none
    ],
)
def test_lines_that_start_an_mpiexec_that_ends_on_usr2(tmp_path, version, lines, ends):
    environ = program(tmp_path / "bin", version)
    said = complaint(USR2, lines, environ)
    assert (said is not None) == ends, said
    assert complaint(int(signal.SIGUSR1), lines, environ) is None
    assert complaint(int(signal.SIGTERM), lines, environ) is None


def test_one_that_is_named_by_its_path_is_asked_itself(tmp_path):
    program(tmp_path / "one", HYDRA)
    environ = program(tmp_path / "two", OPEN_MPI)
    said = complaint(USR2, f"exec {tmp_path}/one/mpiexec -n 2 ./md", environ)
    assert said is not None and said.startswith(f"{tmp_path}/one/mpiexec is that of MPICH or Intel MPI")
    assert complaint(USR2, f"exec {tmp_path}/two/mpiexec -n 2 ./md", environ) is None


def test_the_real_one_of_mpich(tmp_path):
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        pytest.skip("no MPICH beside this Python")
    assert complaint(USR2, f"{mpiexec} -n 2 ./md", {"PATH": "/usr/bin"}) is not None


def test_an_elastic_job_whose_program_would_be_lost_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", program(tmp_path / "bin", HYDRA)["PATH"])
    plan = '{"minimum": 1, "maximum": 4, "start": "mpiexec ./md", "again": "mpiexec ./md -r", "signal": 12}'
    monkeypatch.setattr("sys.stdin", io.StringIO(plan))
    assert main(["--plan", "-"]) == 2
    assert capsys.readouterr().err == (
        "elastic: signal: start: mpiexec is that of MPICH or Intel MPI: it ends on USR2, and the program with it; "
        "save on USR1 instead\n"
    )
