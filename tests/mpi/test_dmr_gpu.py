"""Arrays in the memory of a real GPU, where there is one; dmr_moves.py has the stand-in for everywhere else."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.long]

PROGRAM = str(Path(__file__).parent / "dmr_gpu_moves.py")


@pytest.fixture
def gpu() -> None:
    """Skips where no NVIDIA GPU answers."""
    smi = shutil.which("nvidia-smi")
    if smi is None or subprocess.run([smi, "-L"], capture_output=True, check=False).returncode:
        pytest.skip("no NVIDIA GPU here")


@pytest.mark.parametrize("case", ["cupy", "torch", "torch-float32"])
@pytest.mark.timeout(300)
def test_arrays_of_a_real_gpu_arrive_on_it(mpirun, gpu: None, case: str) -> None:
    library = case.split("-")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = mpirun(6, PROGRAM, case, MPIR_CVAR_POLLS_BEFORE_YIELD="1", time_limit=240)
    assert done.returncode == 0, done.stderr
