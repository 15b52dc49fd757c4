"""Jobs of a pool as real processes on this host."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pooled_jobs import job

from penstock_pool.executor import Ended, TaskExecutor
from penstock_pool.folder import PoolFolder
from penstock_pool.jobfiles import JobFiles
from penstock_pool.jobstart import NO_FILES, JobStarter
from penstock_pool.model import AttemptOutcome, Capacity
from penstock_pool.signals import Whom
from penstock_pool.terms import FIRST_JOB

LIMIT = 60.0


class Desk:
    """An executor, and the files of a pool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.files = JobFiles(PoolFolder("main", folder))
        self.ends: queue.Queue[Ended] = queue.Queue()
        starter = JobStarter(self.files, "n7", "site", folder)
        self.it = TaskExecutor(Capacity(2.0), folder, 1000, self.ends.put, starter)

    def start(self, script: str, *words: str, memory: int | None = None, **terms: object) -> None:
        made = job(**terms)
        assert made.job is not None
        environment = self.files.keep_environment({"PATH": "/usr/bin:/bin", "MINE": "1"})
        kept = replace(made.job, script=self.files.keep_script(script.encode()), environment=environment)
        task = replace(made, job=kept, argv=("run.sh", *words), workdir=str(self.work), memory=memory)
        self.it.start(3, 1, task)

    def run(self, script: str, *words: str, **terms: object) -> Ended:
        self.start(script, *words, **terms)
        return self.ends.get(timeout=LIMIT)

    def text(self, name: str = f"slurm-{FIRST_JOB + 3}.out") -> str:
        path = self.work / name
        return path.read_text() if path.exists() else ""

    def until(self, text: str) -> None:
        end = time.monotonic() + LIMIT
        while text not in self.text():
            assert time.monotonic() < end, self.text()
            time.sleep(0.02)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    it = Desk(tmp_path)
    yield it
    it.it.close("over", grace=0.0)


def test_a_script_has_its_words_its_environment_and_one_file_for_both_outputs(desk: Desk):
    script = '#!/bin/sh\necho "$1|$2|$MINE|$SLURM_JOB_ID|$SLURMD_NODENAME|$PWD"; cat; echo wrong >&2; exit 3\n'
    ended = desk.run(script, "a b", "c")
    assert (ended.outcome, ended.code) == (AttemptOutcome.FAILED, 3)
    assert desk.text() == f"a b|c|1|{FIRST_JOB + 3}|n7|{desk.work}\nwrong\n"


def test_files_of_its_own(desk: Desk):
    (desk.work / "in").write_text("from a file\n")
    (desk.work / "out").write_text("before\n")
    terms = {"stdin": "in", "stdout": "out", "stderr": "err-%j", "umask": 0o027}
    assert desk.run("#!/bin/sh\ncat; echo wrong >&2\n", **terms).outcome is AttemptOutcome.COMPLETE
    assert (desk.text("out"), desk.text(f"err-{FIRST_JOB + 3}")) == ("from a file\n", "wrong\n")
    assert (desk.work / f"err-{FIRST_JOB + 3}").stat().st_mode & 0o777 == 0o640
    desk.run("#!/bin/sh\necho more\n", stdout="out", append=True)
    assert desk.text("out") == "from a file\nmore\n"


def test_files_that_cannot_be_opened_are_told_as_slurm_does(desk: Desk):
    ended = desk.run("#!/bin/sh\ntrue\n", stdout="/nowhere/out")
    assert (ended.outcome, ended.code) == (AttemptOutcome.FAILED, -NO_FILES)
    assert "/nowhere/out" in ended.why


def test_an_interpreter_that_is_not_there(desk: Desk):
    ended = desk.run("#!/no/such/shell\n")
    assert (ended.outcome, ended.code) == (AttemptOutcome.FAILED, 2)
    assert "No such file" in desk.text()


def test_at_its_limit_it_is_warned_and_ended(desk: Desk):
    script = '#!/bin/bash\ntrap "echo warned" USR1; echo on; while true; do sleep 0.05; done\n'
    ended = desk.run(script, limit=1.5, signal=10, before=0.9, batch=True)
    assert ended.outcome is AttemptOutcome.TIMEOUT
    text = desk.text()
    assert text.startswith("on\nwarned\n")
    assert f"*** JOB {FIRST_JOB + 3} ON n7 CANCELLED AT" in text
    assert "DUE TO TIME LIMIT ***" in text


def test_without_a_step_nobody_hears_a_warning_that_is_for_steps(desk: Desk):
    script = '#!/bin/bash\ntrap "echo warned" USR1; while true; do sleep 0.05; done\n'
    assert desk.run(script, limit=1.2, signal=10, before=1.1).outcome is AttemptOutcome.TIMEOUT
    assert "warned" not in desk.text()


def test_a_signal_reaches_those_that_it_is_for(desk: Desk):
    step = desk.folder / "task" / "srun"
    step.parent.mkdir()
    step.write_text('#!/bin/bash\ntrap "echo step; exit" USR1; echo in; while true; do sleep 0.05; done\n')
    step.chmod(0o755)
    desk.start(f'#!/bin/bash\ntrap "echo shell" USR1\n{step} & \necho out\nwait; wait; echo end\n')
    desk.until("in")
    desk.it.send(3, 1, 10, Whom.STEPS)
    ended = desk.ends.get(timeout=LIMIT)
    assert ended.outcome is AttemptOutcome.COMPLETE
    assert ("step" in desk.text(), "shell" in desk.text()) == (True, False)
    desk.start('#!/bin/bash\ntrap "echo shell; exit 4" USR1; echo on; while true; do sleep 0.05; done\n')
    desk.until("on")
    desk.it.send(3, 1, 10, Whom.BATCH)
    assert desk.ends.get(timeout=LIMIT).code == 4


def test_cancelled_it_has_time_to_end(desk: Desk):
    desk.start('#!/bin/bash\ntrap "echo last; exit" TERM; echo on; while true; do sleep 0.05; done\n')
    desk.until("on")
    desk.it.kill(3, 1, AttemptOutcome.CANCELLED, "cancelled")
    assert desk.ends.get(timeout=LIMIT).outcome is AttemptOutcome.CANCELLED
    assert "last" in desk.text()
    assert f"*** JOB {FIRST_JOB + 3} ON n7 CANCELLED AT" in desk.text()


def test_more_memory_than_it_asked_for(desk: Desk):
    script = f"#!{sys.executable}\nimport time\nx = bytearray(200_000_000)\nprint('on', flush=True)\ntime.sleep(100)\n"
    desk.start(script, memory=50_000_000)
    desk.until("on")
    desk.it.measure()
    ended = desk.ends.get(timeout=LIMIT)
    assert ended.outcome is AttemptOutcome.MEMORY
    assert ended.use.memory > 150_000_000


def test_pools_of_one_user_count_from_numbers_of_their_own(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (JobFiles(PoolFolder(name, tmp_path / name)) for name in ("a", "b"))
    assert not first.mark.exists()
    assert (first.first(), second.first(), first.first()) == (FIRST_JOB, FIRST_JOB + 100_000_000, FIRST_JOB)


def test_what_is_kept_is_kept_once(tmp_path: Path):
    files = JobFiles(PoolFolder("main", tmp_path))
    assert files.keep_script(b"#!/bin/sh\n") == files.keep_script(b"#!/bin/sh\n")
    assert files.environment(files.keep_environment({"A": "\udcff"})) == {"A": "\udcff"}
    assert files.script(files.keep_script(b"#!/bin/sh\n")).stat().st_mode & 0o777 == 0o700
