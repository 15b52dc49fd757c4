"""A cluster's processes are found by their environment, whatever they have made of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from penstock_lab.cluster.processes import MARK, find, kill_all, of_users, other_clusters

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


def asleep(uid: int) -> int:
    """How many `sleep` this user has, in containers and outside."""
    told = (p.info for p in psutil.process_iter(["name", "uids"]))  # others end while it looks
    return sum(one["name"] == "sleep" and one["uids"] is not None and one["uids"].real == uid for one in told)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container")
def test_processes_of_containers_are_left_alone(tmp_path: Path) -> None:
    """Another system's: its users have our users' numbers by chance, its cluster our cluster's folder by default."""
    uid, conf = 61234, tmp_path / "slurm.conf"
    there = ["env", f"{MARK}={tmp_path}", "setpriv", f"--reuid={uid}", "--clear-groups", "sleep", "60"]
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *there]
    with subprocess.Popen(inside) as container, subprocess.Popen(there) as ours:
        try:
            deadline = time.monotonic() + 30
            while asleep(uid) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            inner = psutil.Process(container.pid).children()[0].pid
            assert [p.pid for p in of_users([uid])] == [ours.pid]
            assert ours.pid in {p.pid for p in find(tmp_path, conf)}
            assert str(tmp_path) in other_clusters(tmp_path / "other")
            ours.kill()
            ours.wait(30)
            assert psutil.pid_exists(inner)
            assert (of_users([uid]), find(tmp_path, conf)) == ([], [])
            assert str(tmp_path) not in other_clusters(tmp_path / "other")
        finally:
            ours.kill()
            container.kill()
