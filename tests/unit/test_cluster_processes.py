"""A cluster's processes are found by their environment, whatever they have made of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from penstock.cluster.processes import MARK, find, kill_all

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


def test_processes_are_ended_though_the_look_alone_took_longer_than_the_limit() -> None:
    """As on a busy machine, where nothing must be left all the same."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            looks = iter([[psutil.Process(process.pid)], []])
            assert kill_all(lambda: next(looks), limit=0.0) == 1
            assert process.wait(30) == -signal.SIGKILL
        finally:
            process.kill()
