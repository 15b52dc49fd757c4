"""What commands load: a help page, and a command that only asks the agent, nothing of the agent itself.

Counted in modules, since times depend on the machine: `python -m penstock_lab.bench.commands` has those.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.table import commands

SLOW = {
    "asyncio", "numpy", "psutil", "pydantic", "prometheus_client", "rich", "sqlite3", "structlog", "yaml",
    "dmr.client", "dmr.wire", "penstock.api", "penstock.app", "penstock.future", "penstock.slurm",
    "penstock.state.store", "penstock.workflow.model", "penstock.workflow.run", "penstock.workflow.state",
    "penstock.workflow.submit", "penstock_planning",
}  # fmt: skip
"""Nobody needs these to ask, nor to say how a command is called; with all that is in them."""
MOST, MOST_OWN = 185, 50
"""Modules that such a command may load, those of Python included (some 70 before its first line), and Penstock's."""
STILL_SLOW = {
    "backtest", "bags", "cluster", "dashboard", "db", "demo", "history", "hold", "ledger", "plan", "pool", "profile",
    "quote", "select", "simulate", "slots", "stage", "whatif",
}  # fmt: skip
"""Commands whose help page loads what they run. The list only gets shorter."""
SLURMS_OWN = {"sbatch"}
"""Their help page is Slurm's."""
ANSWERS: dict[str, Any] = {
    "status": {
        "now": 1.0, "problems": [], "paused_until": 0.0, "workflows": [], "malleable": [], "moldable": [],
        "jobs": [{"job": 7, "name": "a", "state": "PENDING", "nodes": 1, "tasks": 1, "submitted": 1.0, "start": None,
                  "reason": "Priority"}], "resizes": [],
    },
    "waits": {"live": True, "outlook": None, "geometries": [], "accuracy": []},
    "explain": [{"at": 1.0, "subject": "agent", "verb": "hold", "reasons": [["new", "it has just started"]]}],
}  # fmt: skip


def loaded(words: list[str], folder: Path) -> tuple[str, list[str]]:
    """What a command prints, and the modules that it has loaded at its end."""
    program = (
        "import atexit, os, sys\n"
        "atexit.register(lambda: os.write(9, ' '.join(sys.modules).encode()))\n"
        "from penstock.__main__ import main\n"
        "sys.argv[0] = 'penstock'\nmain()"
    )
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder),
        "PENSTOCK_AGENT__STATE_DIR": str(folder),
        "COLUMNS": "80",
    }
    read, write = os.pipe()
    try:
        done = subprocess.run(
            ["bash", "-c", f'exec "$@" 9>&{write}', "-", sys.executable, "-c", program, *words],
            env=environ, capture_output=True, text=True, timeout=60, pass_fds=[write], check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    with os.fdopen(read) as told:
        names = told.read().split()
    assert done.returncode == 0, done.stderr
    return done.stdout, names


def heavy(names: list[str]) -> list[str]:
    return sorted(one for one in SLOW if any(name == one or name.startswith(f"{one}.") for name in names))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """A folder in which an agent answers."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "agent.sock"))
        door.listen(9)

        def serve() -> None:
            while True:
                try:
                    connection, _peer = door.accept()
                except OSError:
                    return
                with connection, connection.makefile("rwb") as stream:
                    answer = ANSWERS[json.loads(stream.readline())["op"]]
                    stream.write(json.dumps({"ok": True, "result": answer}).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield tmp_path
        door.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("name", sorted(commands().keys() - STILL_SLOW - SLURMS_OWN))
def test_a_help_page_loads_nothing_of_what_the_command_runs(tmp_path, name):
    told, names = loaded([name, "--help"], tmp_path)
    assert told.startswith("Usage: ")
    own = [one for one in names if one.startswith(("penstock", "dmr"))]
    assert heavy(names) == []
    assert (len(names) <= MOST, len(own) <= MOST_OWN) == (True, True), (len(names), len(own))


@pytest.mark.parametrize("name", sorted(STILL_SLOW & commands().keys()))
def test_the_list_of_those_that_still_do_has_no_other(tmp_path, name):
    _told, names = loaded([name, "--help"], tmp_path)
    own = [one for one in names if one.startswith(("penstock", "dmr"))]
    assert heavy(names) or len(names) > MOST or len(own) > MOST_OWN, f"{name} is light: take it off STILL_SLOW"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["status"], "Priority"),
        (["status", "--json"], '"reason": "Priority"'),
        (["top"], "workflows 0"),
        (["top", "--json"], '"problems": []'),
        (["waits"], "No waits are known yet"),
        (["waits", "--json"], '"geometries": []'),
        (["explain", "agent"], "it has just started"),
        (["--help"], "Usage: penstock"),
        (["--version"], "penstock, version"),
    ],
    ids=" ".join,
)
def test_a_command_that_asks_loads_nothing_of_the_agent(agent, words, says):
    told, names = loaded(words, agent)
    assert says in told
    own = [one for one in names if one.startswith(("penstock", "dmr"))]
    assert heavy(names) == []
    assert (len(names) <= MOST, len(own) <= MOST_OWN) == (True, True), (len(names), len(own))
