"""An agent as a process, over a simulated Slurm whose jobs really run."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import json_answers
import pytest
import structlog
import yaml

import penstock.resize.running.part
from penstock.console import output
from penstock.console.answers import Answer
from penstock.errors import PenstockError
from penstock.ipc.client import ask
from penstock_lab.mock import control
from penstock_lab.mock.model import ClusterConfig
from waiting import until

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]


class AgentSite:
    """A simulated Slurm of four nodes with real processes, and an agent that a test starts, kills and starts again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = control.start(folder / "slurm", ClusterConfig(nodes=4), kill_wait=0.3, timeout=60.0)
        self.config = folder / "penstock.yaml"
        self.settings: dict[str, Any] = {
            "agent": {"state_dir": str(folder / "agent"), "interval": 0.2, "idle_interval": 0.2, "seed": 7},
            "slurm": {"backend": "mock", "mock_socket": str(self.cluster.socket), "min_interval": 0.1},
            "asa": {"alternatives": [0.5, 1.0]},
            "dmr": {"listen": "127.0.0.1:0"},
        }
        self.configure()
        self.log = folder / "agent.log"
        self.socket = folder / "agent" / "agent.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, **sections: dict[str, Any]) -> None:
        """Write the configuration file, with these keys changed."""
        for section, values in sections.items():
            self.settings.setdefault(section, {}).update(values)
        self.config.write_text(yaml.safe_dump(self.settings))

    @property
    def environment(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        return {**clean, "PENSTOCK_CONFIG": str(self.config), "COLUMNS": "200"}

    def until(self, probe: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
        """Poll until `probe` gives something true, and return it."""
        return until(probe, lambda: f"{what}; the agent said: {self.said()}", seconds, 0.05)

    def said(self) -> str:
        """The end of the agent's log."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the agent and wait until it answers."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "agent", *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.until(self.answers, "the agent")
        return self.process

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said()
        try:
            return bool(ask(self.socket, "ping")["pid"] == self.process.pid)
        except PenstockError:
            return False

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """End the agent; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """One command of the command line, with these variables in its environment."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            env={**self.environment, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        if "--json" in arguments and done.stdout and (name := json_answers.named_by(arguments)) is not None:
            json_answers.check(name, done.stdout)
        return done

    def names(self) -> list[str]:
        """The names of all jobs that were ever submitted to the simulated Slurm by this user."""
        return [r["name"] for r in control.call(self.cluster.folder, "history", ids=[], name=None, since=None)]

    def down(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.cluster.stop()


@pytest.fixture(autouse=True, scope="session")
def answers_are_as_their_schemas_say() -> Iterator[None]:
    """Whatever a test has a command print as JSON in this process is held against the command's schema."""
    make = output.json_text

    def checked(answer: Mapping[str, Any] | Answer) -> str:
        text = make(answer)
        if (name := json_answers.name_of(click.get_current_context().command)) is not None:
            json_answers.check(name, text)
        return text

    output.json_text = checked
    yield
    output.json_text = make


@pytest.fixture(scope="module")
def site() -> Iterator[AgentSite]:
    """A cluster for a module of tests; each starts the agent (or finds it started by the one before)."""
    folder = Path(tempfile.mkdtemp(prefix="pa-"))
    folder.chmod(0o755)
    it = AgentSite(folder)
    try:
        yield it
    finally:
        it.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def agent(site: AgentSite) -> AgentSite:
    """The site with its agent running."""
    if site.process is None or site.process.poll() is not None:
        site.start()
    return site


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Iterator[Callable[..., Path]]:
    """Installs a package for the test: its entry points by group, and its files' texts by path; gives its folder."""
    folder = tmp_path / "installed"

    def install(points: Mapping[str, Mapping[str, str]], files: Mapping[str, str] | None = None) -> Path:
        about = folder / "mine-1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in them.items()) for group, them in points.items()]
        (about / "entry_points.txt").write_text("".join(lines))
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        monkeypatch.syspath_prepend(folder)
        return folder

    yield install
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def log_as_before():
    """A command that runs in this process sets up its log, with a stream that is closed when the command has ended."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def quick_and_quiet(monkeypatch):
    """No fsync, no log, no look through all installed distributions at every restart: these tests make thousands."""
    monkeypatch.setattr(
        penstock.resize.running.part, "make_policy", functools.cache(penstock.resize.running.part.make_policy)
    )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
