"""Slurm's commands as processes, their place taken by scripts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time

import psutil
import pytest

ASK = """\
import asyncio
from penstock.slurm.commands import CommandRunner
asyncio.run(CommandRunner().run(["sbatch"], limit=60.0, changing=True))
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is missing")
def test_what_an_agent_was_submitting_when_it_was_killed_is_not_submitted_later(tmp_path):
    told = tmp_path / "pid"
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\necho $$ >{told}.new\nmv {told}.new {told}\nexec sleep 60\n")
    (tmp_path / "sbatch").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen([sys.executable, "-c", ASK], env=environment) as agent:
        deadline = time.monotonic() + 60
        while not told.exists():
            assert time.monotonic() < deadline and agent.poll() is None
            time.sleep(0.02)
        agent.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(told.read_text())).wait(10)
