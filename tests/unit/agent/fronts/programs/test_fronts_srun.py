"""The srun of a job that runs as a task of a pool: what it is asked for, and real commands on this host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.fronts.programs.folder import front_folder
from penstock.fronts.programs.step import (
    POOL_JOB,
    STEPS,
    StepError,
    copy_environment,
    exported,
    file_of,
    read_ask,
    read_words,
)
from penstock.slurm.option_table import options_of

KINDS, _ = options_of("srun")
JOB = {
    "SLURM_JOB_ID": "5000000007",
    POOL_JOB: "5000000007",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_NTASKS": "1",
    "SLURMD_NODENAME": "n7",
    "SLURM_JOB_NAME": "j",
}


class TestWords:
    @pytest.mark.parametrize(
        ("words", "found", "command"),
        [
            (["-n2", "-c", "1", "prog", "-n", "9"], [("ntasks", "2"), ("cpus-per-task", "1")], ["prog", "-n", "9"]),
            (["--cpu-bind=q", "--", "-odd"], [("cpu-bind", "q")], ["-odd"]),
            (["-ul", "--export", "A=b", "x"], [("unbuffered", None), ("label", None), ("export", "A=b")], ["x"]),
            (["-K0", "--kill-on-bad-exit", "x"], [("kill-on-bad-exit", "0"), ("kill-on-bad-exit", None)], ["x"]),
            (["--jobi=4", "x"], [("jobid", "4")], ["x"]),
            (
                ["--ignore-signals=INT", "--spread-segments", "x"],
                [("ignore-signals", "INT"), ("spread-segments", None)],
                ["x"],
            ),
            (["--overlap", "--container-type", "oci", "x"], [("overlap", None), ("container-type", "oci")], ["x"]),
        ],
    )
    def test_options_up_to_the_command(self, words, found, command):
        read = read_words(words)
        assert (read.found, read.command) == (found, command)

    @pytest.mark.parametrize("words", [["--nonsense", "x"], ["-~", "x"], ["-n"], ["--output"], ["--cpu", "x"]])
    def test_what_is_no_option_ends_as_srun_does(self, words):
        with pytest.raises(StepError) as told:
            read_words(words)
        assert told.value.code == 255

    @given(st.lists(st.sampled_from([f"--{name}" for name in KINDS] + ["-n", "2", "x", "--", "-", "-u", "-e"])))
    def test_no_word_of_the_command_is_lost(self, words):
        try:
            read = read_words(words)
        except StepError:
            return
        assert words[len(words) - len(read.command) :] == read.command


class TestAsked:
    @pytest.mark.parametrize(
        ("words", "more", "count"),
        [
            (["x"], {}, 1),
            (["x"], {"SLURM_NTASKS": "2"}, 2),
            (["-n1", "x"], {"SLURM_NTASKS": "2"}, 1),
            (["--ntasks-per-node=2", "x"], {}, 2),
            (["-n5", "-O", "x"], {}, 5),
        ],
    )
    def test_copies(self, words, more, count):
        assert read_ask(words, {**JOB, **more}).count == count

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["-n3", "x"], "Unable to create step for job 5000000007: More processors requested than permitted"),
            (["-n2", "-c2", "x"], "More processors"),
            (["-n2", "-N2", "x"], "Only allocated 1 nodes asked for 2"),
            (["-n0", "x"], 'Invalid numeric value "0" for --ntasks.'),
            (["-t", "soon", "x"], "Invalid --time specification"),
            ([], "No command given"),
            (["--multi-prog", "x"], "--multi-prog is not known in a job of a pool"),
            (["--async", "--parsable", "x"], "--async is not known in a job of a pool"),
        ],
    )
    def test_refusals(self, words, text):
        with pytest.raises(StepError, match=text):
            read_ask(words, JOB)

    def test_a_second_node_that_one_copy_does_not_need_is_left_out(self):
        ask = read_ask(["-N2", "-n1", "x"], JOB)
        assert ask.warnings == ["srun: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1"]

    def test_limits(self):
        ask = read_ask(["-t", "0:30", "-W", "5", "-K", "x"], JOB)
        assert (ask.limit, ask.patience, ask.bad_exit) == (30.0, 5.0, True)

    def test_variables_and_files_of_a_copy(self):
        ask = read_ask(["-n2", "-c1", "-J", "step", "x"], JOB)
        it = copy_environment(ask, {**JOB, "A": "b"}, 3, 1)
        assert (it["SLURM_PROCID"], it["SLURM_STEP_ID"], it["SLURM_NTASKS"], it["A"]) == ("1", "3", "2", "b")
        assert (it["SLURM_CPUS_PER_TASK"], it["SLURM_JOB_NAME"], it["SLURM_GTIDS"]) == ("1", "step", "0,1")
        assert file_of("%x-%j.%s-%3t-%N-%a", JOB, 3, 1) == "j-5000000007.3-001-n7-4294967294"
        assert file_of("\\%t", JOB, 3, 1) == "%t"

    def test_export(self):
        for nothing in ("NONE", "none,B=3"):
            assert exported({"A": "1", "SLURM_X": "2"}, nothing) == {"SLURM_X": "2"}
        assert exported({"A": "1", "SLURM_X": "2"}, "A,B=3") == {"SLURM_X": "2", "A": "1", "B": "3"}
        assert exported({"A": "1"}, None) == exported({"A": "1"}, "ALL,A=2") == {"A": "1"}
        assert exported({"A": "1"}, "B=2,all") == {"A": "1", "B": "2"}  # as srun does (22.05.8)


@pytest.fixture(scope="module")
def srun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shim")
    root.chmod(0o755)
    return front_folder(root, {"own": str(root)}, sys.executable) / "task" / "srun"


class Here:
    """A job of a pool in a folder of its own."""

    def __init__(self, srun: Path, folder: Path) -> None:
        self.folder = folder
        self._srun = str(srun)
        path = f"{srun.parent}:{os.environ['PATH']}"
        self.environment = {**JOB, "PATH": path, STEPS: str(folder / "steps")}

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._srun, *words],
            env=self.environment,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._srun, *words], env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, text=True
        )


@pytest.fixture
def here(srun: Path, tmp_path: Path) -> Here:
    return Here(srun, tmp_path)


def test_one_copy_has_the_input_the_words_and_the_exit_code(here: Here):
    done = here.run("-n1", "--cpu-bind=q", "--cpus-per-task=1", "sh", "-s", "a b", stdin='echo "$1"; exit 3\n')
    assert (done.returncode, done.stdout) == (3, "a b\n")
    assert done.stderr == "srun: error: n7: task 0: Exited with exit code 3\n"


def test_each_copy_has_all_of_the_input_and_lines_stay_whole(here: Here):
    lines = "".join(f"{i} {'x' * 200}\n" for i in range(500))
    done = here.run("-n2", "-l", "cat", stdin=lines)
    told = done.stdout.splitlines()
    for rank in ("0: ", "1: "):
        assert [line[3:] for line in told if line.startswith(rank)] == lines.splitlines()
    assert len(told) == 1000


def test_a_label_stands_at_the_begin_of_a_line_and_a_carriage_return_begins_none(here: Here, srun: Path):
    words = [srun, "-n1", "-l", "printf", "1%%\\r2%%\\r\\nend"]
    done = subprocess.run(words, env=here.environment, cwd=here.folder, capture_output=True, check=True)
    assert done.stdout == b"0: 1%\r2%\r\n0: end"


def test_how_copies_end(here: Here):
    done = here.run("-n2", "sh", "-c", "exit $SLURM_PROCID")
    assert (done.returncode, done.stderr) == (1, "srun: error: n7: task 1: Exited with exit code 1\n")
    done = here.run("-n1", "sh", "-c", "kill -9 $$")
    assert (done.returncode, done.stderr) == (137, "srun: error: n7: task 0: Killed\n")
    done = here.run("-n2", "sh", "-c", "[ $SLURM_PROCID = 0 ] && exit 200; kill -9 $$")
    assert done.returncode == 137  # a signal outweighs every code
    done = here.run("-n2", "nope")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "srun: error: n7: tasks 0-1: Exited with exit code 2")
    assert "slurmstepd: error: execve(): nope: No such file or directory" in done.stderr


def test_steps_are_counted(here: Here):
    assert [here.run("sh", "-c", "echo $SLURM_STEP_ID").stdout.strip() for _ in range(3)] == ["0", "1", "2"]


def test_files_of_its_own(here: Here):
    here.run("-n2", "-o", "out-%t", "-e", "err", "sh", "-c", "echo $SLURM_PROCID; echo wrong >&2")
    assert [(here.folder / f"out-{rank}").read_text() for rank in (0, 1)] == ["0\n", "1\n"]
    assert (here.folder / "err").read_text() == "wrong\nwrong\n"
    done = here.run("-n2", "-o", "1", "sh", "-c", "echo $SLURM_PROCID")
    assert done.stdout == "1\n"
    done = here.run("-o", "/nowhere/x", "true")
    assert (done.returncode, "Could not open /nowhere/x" in done.stderr) == (1, True)


def test_signals_are_handed_on(here: Here):
    script = 'trap "echo got; exit 5" USR1; echo on; while true; do sleep 0.02; done'
    running = here.start("-n1", "bash", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "on\n"
    running.send_signal(signal.SIGUSR1)
    assert running.stdout.readline() == "got\n"
    assert running.wait(30) == 5


def test_the_first_that_fails_ends_the_others_where_that_is_said(here: Here):
    began = time.monotonic()
    done = here.run("-n2", "-K", "sh", "-c", "[ $SLURM_PROCID = 1 ] || exit 5; exec sleep 50")
    assert time.monotonic() - began < 40
    assert done.returncode == 143
    assert "STEP 5000000007.0 ON n7 CANCELLED AT" in done.stderr


def test_outside_of_a_job_of_a_pool_the_real_one_runs(here: Here, tmp_path: Path):
    real = tmp_path / "bin" / "srun"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\necho real "$@"\n')
    real.chmod(0o755)
    here.environment["PATH"] = f"{real.parent}:{here.environment['PATH']}"
    for change in ({POOL_JOB: ""}, {"SLURM_JOB_ID": "12"}):
        there = dict(here.environment)
        here.environment.update(change)
        assert here.run("-n1", "hostname").stdout == "real -n1 hostname\n"
        here.environment = there
    assert here.run("--jobid=12", "x").stdout == "real --jobid=12 x\n"
    assert here.run("--version").stdout == "real --version\n"


def test_a_signal_that_comes_while_a_copy_starts_is_handed_on(here: Here):
    program = (
        "import os, signal, sys\n"
        "from penstock.fronts.programs.srun import front_srun\n"
        "unblock = signal.pthread_sigmask\n"
        "def late(how, signals):\n"
        "    if how == signal.SIG_SETMASK and os.getpid() == ours:\n"
        "        os.kill(ours, signal.SIGTERM)\n"
        "    return unblock(how, signals)\n"
        "ours, signal.pthread_sigmask = os.getpid(), late\n"
        "sys.exit(front_srun(None, ['-n1', 'sleep', '30'], dict(os.environ)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=here.environment, cwd=here.folder, timeout=60)
    assert done.returncode == 128 + signal.SIGTERM
