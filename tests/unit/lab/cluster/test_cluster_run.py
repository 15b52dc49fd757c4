"""`penstock cluster run` does not leave its command behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# The command alone, without a cluster; `grace` is how long it gets, `slow` how long it takes to start.
PROGRAM = """
import importlib, subprocess, sys, time

module = importlib.import_module("penstock_lab.cli.cluster")

class Stub:
    def popen_as(self, who, argv, stdin):
        process = subprocess.Popen(argv, stdin=stdin, text=True, start_new_session=True)
        time.sleep({slow})
        return process

module.Cluster.load = lambda folder: Stub()
module._GRACE = {grace}
module.cluster(["run", "--", *sys.argv[1:]])
"""


def run(
    script: str, place: Path, grace: float = 30, before: tuple[str, ...] = (), slow: float = 0
) -> subprocess.Popen[bytes]:
    """Have it run a shell's script, and wait until that has made the file `ready`.

    It itself learns `slow` seconds late that the script has begun.
    """
    words = [*before, sys.executable, "-c", PROGRAM.format(grace=grace, slow=slow), "sh", "-c", script]
    process = subprocess.Popen(words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (place / "ready").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    return process


def left(place: Path) -> list[psutil.Process]:
    """What still runs in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(place) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def gone(place: Path) -> bool:
    """Whether nothing runs in this folder; what was killed a moment ago may need another one."""
    deadline = time.monotonic() + 10
    while left(place) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not left(place)


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """Programs end with SIGHUP, though these tests may run by nohup, whose programs do not."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where the command runs; nothing is left in it, however the test ends."""
    yield tmp_path
    for process in left(tmp_path):
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_ends_with_it_though_it_does_not_want_to(place: Path, number: signal.Signals) -> None:
    with run("trap '' TERM; touch ready; sleep 60; sleep 60", place, grace=0.5) as process:
        process.send_signal(number)
        assert process.wait(30) != 0
    assert gone(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nor_one_that_is_just_being_started(place: Path, number: signal.Signals) -> None:
    with run("touch ready; sleep 60", place, slow=2) as process:
        process.send_signal(number)
        assert process.wait(30) != 0
    assert gone(place)


def test_it_and_its_children_have_time_to_tidy_up(place: Path) -> None:
    child = "(trap 'sleep 1; touch tidy; exit' TERM; touch ready; while :; do sleep 0.1; done)"
    with run(f"{child} & wait", place) as process:
        process.terminate()
        process.wait(30)
    assert (place / "tidy").exists()
    assert gone(place)


def test_who_asks_twice_does_not_wait(place: Path) -> None:
    with run("trap 'touch asked' TERM; touch ready; while :; do sleep 0.1; done", place, grace=60) as process:
        process.terminate()
        deadline = time.monotonic() + 30
        while not (place / "asked").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.terminate()
        process.wait(30)
    assert gone(place)


def test_nohup_still_means_that_it_goes_on(place: Path) -> None:
    with run("touch ready; while [ ! -e go ]; do sleep 0.1; done; touch done", place, before=("nohup",)) as process:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        (place / "go").touch()
        assert process.wait(30) == 0
    assert (place / "done").exists()
