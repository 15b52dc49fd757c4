"""The demo itself, the short way, on the simulated Slurm with real MPI processes."""

import subprocess
import sys

import pytest


@pytest.mark.mpi
@pytest.mark.timeout(240)
def test_the_quick_demo_sees_everything_happen(tmp_path):
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "demo", "--quick", "--out", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "FAIL" not in ran.stdout and "perceived wait" in ran.stdout
    assert (tmp_path / "gantt-mock.png").exists()
