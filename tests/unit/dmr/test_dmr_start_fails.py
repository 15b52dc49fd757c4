"""New processes that will never come up: the launcher sees it where mpiexec would wait for ever."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from dmr import offspring, supervisor
from dmr.command import parse
from dmr.line import LineError


@pytest.fixture
def mpiexec(tmp_path):
    """One whose srun runs so many seconds, and which then waits for processes, as hydra does."""

    def made(seconds: float) -> str:
        program = tmp_path / "mpiexec"
        program.write_text(
            f"#!{sys.executable}\nimport subprocess, time\nsubprocess.run(['sleep', '{seconds}'])\ntime.sleep(600)\n"
        )
        program.chmod(0o755)
        return str(program)

    return made


def started(program: str, limit: float) -> str:
    """Why nothing came up."""

    async def run() -> str:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HYDRA_"))}
        it = supervisor.Supervisor(parse("hydra", program, ["-n", "1", "true"]), environ, 7, 10.0)
        world = {"nodes": ["a", "b"], "job": 8}
        with pytest.raises(LineError) as raised:
            await it._answer({"op": "start", "worlds": [world], "per_node": 1, "limit": limit})
        return str(raised.value)

    return asyncio.run(run())


def test_an_srun_that_failed_is_seen_long_before_the_limit(mpiexec):
    began = time.monotonic()
    assert started(mpiexec(1.5), 300.0) == "srun could not start the processes on a,b"
    assert time.monotonic() - began < 60


def test_an_srun_that_failed_between_two_looks_is_seen_a_little_later(mpiexec, monkeypatch):
    monkeypatch.setattr(supervisor, "_BEGINS", 1.0)
    monkeypatch.setattr(supervisor, "_LOOK", 2.0)
    assert started(mpiexec(0.0), 300.0) == "srun could not start the processes on a,b"


def test_one_that_runs_has_its_time(mpiexec):
    assert started(mpiexec(600), 3.0) == "no new processes within 3 s"


def test_a_child_that_has_ended_does_not_run():
    assert offspring.running(2**22 + 1) is None
    with subprocess.Popen(["bash", "-c", "sleep 600 & wait"]) as shell:
        end = time.monotonic() + 20
        while not offspring.running(shell.pid):
            assert time.monotonic() < end
            time.sleep(0.02)
        shell.kill()
    child = subprocess.Popen(["true"])
    while offspring._runs(str(child.pid)):
        time.sleep(0.02)
    child.wait()
