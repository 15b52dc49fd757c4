"""What status and top say of a user's own work in the queue, on the simulated Slurm and on a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from conftest import COMMAND
from penstock.api import JobSpec
from penstock.ipc.client import ask
from penstock_lab.mock import control

WIDE = """
name: survey-of-all-galaxies
shell: strict
stages:
  - {name: reading-of-all-plates, nodes: 1, time: 600, expect: 500, run: sleep 500}
  - {name: plot-of-everything, nodes: 2, time: 600, expect: 500, run: sleep 500, after: reading-of-all-plates}
"""
ELASTIC = """name: galaxies
elastic: {min: 1, max: 4, use: restart, run: exec ./md, checkpoint: state}
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_SEEN = 15.0  # seconds within which the agent has looked


def job(agent, script="sleep 500", **more):
    """The number of a job that its owner has submitted without Penstock."""
    spec = JobSpec("md", f"#!/bin/sh\n{script}\n", 1, 600.0, **more)
    return control.call(agent.cluster.folder, "submit", spec=spec)


def status(agent, sought, **variables):
    """What `penstock status` prints, when it has `sought`, or after a while."""
    until = time.monotonic() + _SEEN
    while True:
        done = agent.run("status", **variables)
        assert done.returncode == 0, done.stderr
        if re.search(sought, done.stdout) or time.monotonic() > until:
            return done.stdout
        time.sleep(0.2)


def on_a_terminal(agent, *words):
    """What is seen of a command on 80 columns, until it ends or says the last stage's name; it is ended then."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    env = {**agent.environment, "COLUMNS": "80", "LINES": "50", "TERM": "xterm"}
    with subprocess.Popen([*COMMAND, *words], env=env, stdin=its, stdout=its, stderr=its) as begun:
        os.close(its)
        said, until = b"", time.monotonic() + _SEEN
        while time.monotonic() < until and b"plot-of-everything" not in said:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    said += os.read(ours, 65536)
                except OSError:  # it has ended
                    break
        begun.send_signal(signal.SIGINT)
        os.close(ours)
    return _ESCAPES.sub("", said.decode(errors="replace"))


def test_a_job_that_has_not_asked_the_agent_yet_is_shown(agent):
    number = job(agent)
    said = status(agent, rf"\b{number}\b")
    assert re.search(rf"\b{number} +running\b", said), said
    assert "Nothing of" not in said


def test_an_elastic_job_is_shown_by_the_name_of_its_file_while_it_waits(agent):
    number = job(agent, hold=True)
    folder = agent.folder / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(f"#!/bin/sh\necho {number}\n")
    (folder / "sbatch").chmod(0o755)
    (agent.folder / "galaxies.yaml").write_text(ELASTIC)
    own = {"PATH": f"{folder}:{os.environ['PATH']}", "XDG_STATE_HOME": str(agent.folder / "own")}
    done = agent.run("elastic", "galaxies.yaml", **own)
    assert done.returncode == 0, done.stderr
    assert f"{number} galaxies, elastic" in status(agent, rf"\b{number}\b", **own)


def test_what_can_never_start_is_not_shown_as_queued(agent):
    first = job(agent, "exit 1")
    second = job(agent, dependency=f"afterok:{first}")
    links = [
        {"called": "first", "job": first, "dependency": "", "at": time.time()},
        {"called": "second", "job": second, "dependency": f"afterok:{first}", "at": time.time()},
    ]
    run = ask(agent.socket, "follow", {"links": links})["run"]
    said = status(agent, "DependencyNeverSatisfied")
    (line,) = [line for line in said.splitlines() if line.startswith("second ")]
    assert "never starts" in line and "DependencyNeverSatisfied" in said, said
    told = json.loads(agent.run("status", str(run), "--json").stdout)["workflows"][0]
    assert [stage.get("reason") for stage in told["stages"]] == [None, "DependencyNeverSatisfied"]


@pytest.mark.parametrize("command", ["status", "top"])
def test_no_word_is_broken_on_a_terminal_of_80_columns(agent, command):
    (agent.folder / "wide.yaml").write_text(WIDE)
    if not any("galaxies" in run["name"] for run in ask(agent.socket, "status")["workflows"]):
        assert agent.run("submit", "wide.yaml", "--strategy", "perstage").returncode == 0
    status(agent, r"reading-of-all-plates +running")
    said = on_a_terminal(agent, command)
    assert "reading-of-all-plates" in said and "plot-of-everything" in said, said
    assert all(len(line.rstrip()) <= 80 for line in said.splitlines())
