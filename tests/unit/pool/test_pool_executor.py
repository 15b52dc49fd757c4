"""Tasks as real processes on this host."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock_pool.executor import Ended, TaskExecutor
from penstock_pool.folder import PoolFolder
from penstock_pool.jobfiles import JobFiles
from penstock_pool.jobstart import JobStarter
from penstock_pool.limits import Shares
from penstock_pool.model import AttemptOutcome, Capacity, PoolTask
from penstock_pool.output import output_path

LIMIT = 60.0


def starter(folder: Path) -> JobStarter:
    return JobStarter(JobFiles(PoolFolder("main", folder)), "n7", "site", folder)


class Bench:
    """An executor whose reports can be waited for."""

    def __init__(self, folder: Path, flood: int = 10_000) -> None:
        self.folder = folder
        self.ends: queue.Queue[Ended] = queue.Queue()
        self.it = TaskExecutor(Capacity(2.0, None, 0), folder, flood, self.ends.put, starter(folder))

    def run(self, *argv: str, **more: object) -> Ended:
        self.start(*argv, **more)
        return self.ends.get(timeout=LIMIT)

    def start(self, *argv: str, **more: object) -> None:
        self.it.start(1, 1, PoolTask(argv, **{"workdir": str(self.folder), **more}))

    def read(self, kind: str) -> str:
        return output_path(self.folder, 1, 1, kind).read_text()

    def until(self, probe):
        end = time.monotonic() + LIMIT
        while not (found := probe()):
            assert time.monotonic() < end
            time.sleep(0.02)
        return found


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    it = Bench(tmp_path)
    yield it
    it.it.close("over", grace=0.0)


def test_a_command_that_completes(bench: Bench):
    ended = bench.run(sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)")
    assert (ended.outcome, ended.code, ended.why) == (AttemptOutcome.COMPLETE, 0, "")
    assert (bench.read("out"), bench.read("err")) == ("out\n", "err\n")
    assert ended.use.cpu > 0 and ended.use.wall >= 0


def test_no_shell_and_no_file_without_output(bench: Bench):
    bench.run("echo", "$HOME; false")
    assert bench.read("out") == "$HOME; false\n"
    assert not output_path(bench.folder, 1, 1, "err").exists()


def test_exit_code_and_signal(bench: Bench):
    ended = bench.run("sh", "-c", "exit 3")
    assert (ended.outcome, ended.code, ended.why) == (AttemptOutcome.FAILED, 3, "exit code 3")
    ended = bench.run("sh", "-c", "kill -SEGV $$")
    assert (ended.outcome, ended.code, ended.why) == (AttemptOutcome.FAILED, -11, "killed by SIGSEGV")


@pytest.mark.parametrize(
    ("argv", "more", "why"),
    [
        (["nosuchcommand"], {}, "no such command: nosuchcommand"),
        (["./nosuch"], {}, "no such command: ./nosuch"),
        (["/etc/passwd"], {}, "'/etc/passwd' cannot be started: Permission denied"),
        (["true"], {"inputs": ("here", "gone")}, "its input here is not there"),
        (["true"], {"workdir": "/nosuch"}, "its folder /nosuch is not there"),
    ],
)
def test_what_cannot_start_says_why(bench: Bench, argv, more, why):
    ended = bench.run(*argv, **more)
    assert (ended.outcome, ended.why) == (AttemptOutcome.FAILED, why)


def test_a_flood_is_cut_and_the_task_goes_on(bench: Bench):
    ended = bench.run(sys.executable, "-c", "import sys; sys.stdout.write('x' * 30_000_000)")
    assert ended.outcome is AttemptOutcome.COMPLETE
    assert bench.read("out") == "x" * 10_000 + "\npenstock: cut here, 29990000 more bytes were written\n"


def test_a_folder_that_cannot_be_written_to_is_said(bench: Bench, tmp_path: Path):
    bench.it._output = tmp_path / "gone"
    ended = bench.run("echo", "a")
    assert ended.outcome is AttemptOutcome.COMPLETE
    assert "could not be written" in ended.why


def test_one_that_is_killed_ends_with_all_it_has_started(bench: Bench):
    # One child in a process group of its own, one that ignores SIGTERM.
    bench.start(
        "bash", "-c", "set -m; trap '' TERM; sleep 1000 & echo $!; exec python3 -c 'import time; time.sleep(1000)'"
    )
    child = int(bench.until(lambda: output_path(bench.folder, 1, 1, "out").exists() and bench.read("out")))
    bench.it.kill(1, 2, AttemptOutcome.CANCELLED, "another attempt")
    bench.it.close("over", grace=0.5)
    ended = bench.ends.get(timeout=LIMIT)
    assert (ended.outcome, ended.why) == (AttemptOutcome.LOST, "over")
    bench.until(lambda: gone(child))
    assert bench.it.running == 0


def test_what_a_task_leaves_behind_ends_with_it(bench: Bench):
    ended = bench.run("sh", "-c", "sleep 1000 & echo $!")  # it holds the pipe open
    assert ended.outcome is AttemptOutcome.COMPLETE
    child = int(bench.read("out"))
    bench.until(lambda: gone(child))


def test_one_that_closes_its_output_and_goes_on(bench: Bench):
    ended = bench.run("sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 4")
    assert ended.code == 4


def test_use_is_measured(bench: Bench):
    bench.start(sys.executable, "-c", "x = bytearray(60_000_000)\nprint(1, flush=True)\nwhile True: pass")
    bench.until(output_path(bench.folder, 1, 1, "out").exists)

    def busy():
        used = bench.it.measure()
        time.sleep(0.3)
        return used.get(1, 0.0) > 0.05

    bench.until(busy)
    bench.it.kill(1, 1, AttemptOutcome.CANCELLED, "enough")
    ended = bench.ends.get(timeout=LIMIT)
    assert (ended.outcome, ended.why) == (AttemptOutcome.CANCELLED, "enough")
    assert ended.use.memory > 50_000_000
    assert ended.use.cpu > 0.05


def test_more_memory_than_asked_for(bench: Bench):
    # The kernel refuses a process that asks for more at once ...
    ended = bench.run(
        sys.executable, "-c", "import time; time.sleep(0.5); bytearray(2_000_000_000)", memory=300_000_000
    )
    assert ended.code == 1
    assert "MemoryError" in bench.read("err")
    # ... and what several take together is measured.
    each = "import time; x = bytearray(120_000_000); print('here', flush=True); time.sleep(1000)"
    bench.start("bash", "-c", f'for i in 1 2 3; do {sys.executable} -c "{each}" & done; wait', memory=300_000_000)
    bench.until(lambda: bench.it.measure() is None or not bench.ends.empty())
    ended = bench.ends.get(timeout=LIMIT)
    assert ended.outcome is AttemptOutcome.FAILED
    assert "had asked for 300 MB" in ended.why


def test_environment(bench: Bench):
    bench.run("env", cores=2.5, environment={"MINE": "x"})
    said = dict(line.split("=", 1) for line in bench.read("out").splitlines() if "=" in line)
    assert (said["PENSTOCK_TASK"], said["PENSTOCK_ATTEMPT"], said["OMP_NUM_THREADS"], said["MINE"]) == (
        "1",
        "1",
        "2",
        "x",
    )


def test_each_task_sees_the_gpus_that_it_asked_for_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    ends: queue.Queue[Ended] = queue.Queue()
    it = TaskExecutor(Capacity(4.0, None, 2), tmp_path, 1000, ends.put, starter(tmp_path))
    try:
        script = f"echo $CUDA_VISIBLE_DEVICES; until [ -e {tmp_path}/go ]; do sleep 0.02; done"
        for number, gpus in enumerate((1, 1, 0), 1):
            it.start(number, 1, PoolTask(("sh", "-c", script), workdir=str(tmp_path), gpus=gpus))
        (tmp_path / "go").touch()
        for _ in range(3):
            assert ends.get(timeout=LIMIT).outcome is AttemptOutcome.COMPLETE
    finally:
        it.close("over", grace=0.0)
    saw = [output_path(tmp_path, number, 1, "out").read_text().strip() for number in (1, 2, 3)]
    assert (sorted(saw[:2]), saw[2]) == (["3", "5"], "")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU only")
def test_a_task_is_pinned_to_as_many_cpus_as_it_asked_for(bench: Bench):
    bench.run(sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))", cores=0.5)
    assert bench.read("out") == "1\n"
    assert len(os.sched_getaffinity(0)) >= 2  # ours is what it was


def test_shares():
    shares = Shares([4, 5, 6], 3.0, ["0", "1"])
    assert shares.take(2, 1) == ([4, 5], ["0"])
    assert shares.take(1, 1) == ([6], ["1"])
    assert shares.take(0.5, 0) == ([4], [])
    shares.give_back([6], ["1"])
    assert shares.take(1, 1) == ([6], ["1"])
    assert Shares([0, 1], 25.0, []).take(1, 0) == ([], [])  # more promised than there are: nobody is pinned
