"""Signals at `dmr.launch`: the program hears of Ctrl-C once, and ends as it likes; it does not outlive the launcher."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

PROGRAM = """
import signal, sys, time
from mpi4py import MPI
heard = []
signal.signal(signal.SIGINT, lambda *a: heard.append(1))
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("read", sys.stdin.readline().strip(), flush=True)
until = time.time() + 60
while not heard and time.time() < until: time.sleep(0.05)
time.sleep(2)  # hydra ends everybody at once when it hears a second one
open(f"rank{MPI.COMM_WORLD.rank}", "w").write(str(len(heard)))
"""
Start = Callable[[int], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the program by the launcher in a session of its own, with that standard input."""
    pytest.importorskip("mpi4py")
    (tmp_path / "program.py").write_text(PROGRAM)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "DMR", "PMI", "HYDRA"))}
    environment = inherited | {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}
    started: list[subprocess.Popen[str]] = []

    def start(stdin: int) -> subprocess.Popen[str]:
        # As a login does: the terminal, if it is one, becomes that of the session.
        words = [sys.executable, "-m", "dmr.launch", "-n", "2", sys.executable, "program.py"]
        take = "import fcntl, os, sys, termios\nif os.isatty(0): fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        process = subprocess.Popen(
            [sys.executable, "-c", f"{take}os.execv(sys.argv[1], sys.argv[1:])", *words],
            cwd=tmp_path,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


def heard(folder: Path) -> list[str]:
    return [path.read_text() if (path := folder / f"rank{rank}").exists() else "killed" for rank in (0, 1)]


def test_at_a_terminal(start: Start, tmp_path: Path) -> None:
    """What is typed reaches rank 0, and so does Ctrl-C, which the terminal sends to mpiexec, too."""
    ours, theirs = pty.openpty()
    process = start(theirs)
    os.close(theirs)
    os.write(ours, b"words\n")
    assert process.stdout is not None and process.stdout.readline() == "read words\n"
    time.sleep(0.5)
    os.write(ours, b"\x03")
    assert process.wait(60) == 128 + signal.SIGINT
    os.close(ours)
    assert heard(tmp_path) == ["1", "1"]


@pytest.mark.parametrize("whom", ["the launcher", "its group"])
def test_without_a_terminal(start: Start, tmp_path: Path, whom: str) -> None:
    """Sent by somebody, as by a job script's trap, or to all processes, as by a supervisor."""
    (tmp_path / "words").write_text("words\n")
    with (tmp_path / "words").open() as words:
        process = start(words.fileno())
    assert process.stdout is not None and process.stdout.readline() == "read words\n"
    time.sleep(0.5)
    (os.killpg if whom == "its group" else os.kill)(process.pid, signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGINT
    assert heard(tmp_path) == ["1", "1"]


def test_a_killed_launcher_leaves_nobody(start: Start) -> None:
    """Nor does `kill -9` on its process group, of which the program is no member."""
    process = start(subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == "read \n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert any(member.name().startswith("mpiexec") for member in family)
    process.kill()
    _gone, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
