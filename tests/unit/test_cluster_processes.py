"""A cluster's processes are found by their environment, whatever they have made of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from penstock.cluster.processes import MARK, find

# As slurmstepd does when it sets its title: the first variables are gone, the others are there.
PROGRAM = """
import ctypes
argv = (ctypes.c_char_p * 3)(b"sleep", b"60", None)
environment = (ctypes.c_char_p * 4)(b"", b"", b"{mark}={folder}", None)
ctypes.CDLL(None).execve(b"/bin/sleep", argv, environment)
"""


def test_a_process_that_has_written_over_its_environment_is_found(tmp_path: Path) -> None:
    program = PROGRAM.format(mark=MARK, folder=tmp_path)
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            deadline = time.monotonic() + 30
            while not (found := find(tmp_path, tmp_path / "slurm.conf")):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert [p.pid for p in found] == [process.pid]
        finally:
            process.kill()
