"""`import dmr` needs mpi4py and numpy, and nothing else that is installed."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import dmr

pytestmark = pytest.mark.mpi

SCRIPT = """
import importlib.util, sys
sys.path[:0] = sys.argv[1:]
for name in ("click", "pydantic", "yaml", "structlog", "psutil", "penstock"):
    assert importlib.util.find_spec(name) is None, name
import dmr, dmr.wire, dmr.credential, dmr.plan, dmr.quirks
assert "mpi4py" not in sys.modules and "numpy" not in sys.modules, "these are imported lazily"
from mpi4py import MPI
import dmr.examples.jacobi
status = dmr.dmr_check_status(MPI.COMM_WORLD, 1, 4)
assert not status.action and status.size == 1
print("fine")
"""


def test_it_runs_beside_mpi4py_and_numpy_alone(tmp_path):
    installed = Path(sysconfig.get_path("platlib"))
    for part in ("mpi4py", "numpy", "numpy.libs"):
        (tmp_path / part).symlink_to(installed / part)
    home = tmp_path / "home"
    home.mkdir()
    (home / "dmr").symlink_to(Path(dmr.__file__).parent)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DMR_", "PYTHON"))}
    environment["LD_LIBRARY_PATH"] = str(Path(sys.prefix) / "lib")
    # -S: without site-packages.
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SCRIPT, str(home), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.strip() == "fine", ran.stderr
