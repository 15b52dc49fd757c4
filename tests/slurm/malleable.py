"""What the tests of malleable jobs on real Slurm share: an agent to kill, a Jacobi job, commands that go wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

import waiting
from penstock.ipc.client import ask
from penstock.slurm.parse import parse_version
from penstock.values import merging
from penstock_lab.cluster import Cluster
from penstock_lab.soak.solver import serial

PYTHON = sys.executable


def until(what: str, condition: Callable[[], object], limit: float = 120.0, every: float = 0.05) -> object:
    """What the condition gives once it holds."""
    return waiting.until(condition, what, limit, every)


def mergeable(cluster: Cluster) -> None:
    """Skips the test where a merge may end slurmctld, or nobody knows: it is not sent there, by tests neither."""
    if (why := merging.why_not(parse_version(cluster.slurm_version))) is not None:
        pytest.skip(f"NO MERGE: {why}")


class Agent:
    """An agent that runs as one of the cluster's users, restartable over the same state.

    `commands` maps a Slurm command to a shell script that the agent finds instead of it; `$REAL` is the real one and
    `$AGENT` the agent's process.
    """

    def __init__(self, cluster: Cluster, who: str = "alice", **settings: dict[str, object]) -> None:
        self.cluster = cluster
        self.who = who
        self.folder = cluster.home(who) / "agent"
        self.bin = cluster.home(who) / "bin"
        self.log = cluster.home(who) / "agent.log"
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[str] | None = None
        base: dict[str, dict[str, object]] = {
            "agent": {"state_dir": str(self.folder), "interval": 0.5, "idle_interval": 0.5},
            "slurm": {"min_interval": 0.3, "requests_per_second": 20, "timeout": 15},
            "dmr": {
                "listen": f"{cluster.address}:0",
                "policy": "wide",
                "cooldown": 1,
                "grant_timeout": 10,
                "munge_socket": str(cluster.munge_socket),
            },
            "log": {"level": "debug"},
        }
        for section, values in settings.items():
            base[section] = {**base.get(section, {}), **values}
        config = cluster.home(who) / "penstock.yaml"
        config.write_text(yaml.safe_dump(base))
        config.chmod(0o644)
        self._config = config

    @property
    def socket(self) -> Path:
        return self.folder / "agent.sock"

    def start(self, commands: dict[str, str] | None = None) -> None:
        environment = {"PENSTOCK_CONFIG": str(self._config), **self.environment}
        if commands:
            self._write(commands)
            environment["PATH"] = f"{self.bin}:{os.environ['PATH']}:/usr/sbin"
        with self.log.open("a") as log:
            self._process = self.cluster.popen_as(
                self.who,
                [PYTHON, "-c", "from penstock.cli import main; main()", "agent"],
                env=environment,
                stdout=log,
                stderr=log,
            )
        (self.folder.parent / "agent.pid").write_text(str(self._process.pid))
        until("the agent answers", self.answers, 120)

    def _write(self, commands: dict[str, str]) -> None:
        self.bin.mkdir(exist_ok=True)
        for name, script in commands.items():
            real = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
            text = f"#!/bin/bash\nREAL={real}\nAGENT=$(cat {self.folder.parent}/agent.pid)\n{script}\n"
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    def answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError("the agent ended: " + self.log.read_text()[-2000:])
        try:
            ask(self.socket, "ping", timeout=2)
        except Exception:
            return False
        return True

    def dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL, as the kernel's out-of-memory killer would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
        self._process = None

    def ask(self, op: str, **arguments: object):
        return ask(self.socket, op, arguments)

    def phase(self, job: int) -> str:
        """The phase of a job's resize as the store has it; works while the agent is dead."""
        with sqlite3.connect(f"file:{self.folder}/penstock.db?mode=ro", uri=True, timeout=5) as db:
            rows = db.execute("SELECT state FROM malleable WHERE job=?", (job,)).fetchall()
        return json.loads(rows[0][0])["phase"] if rows else ""

    def resizes(self, kind: str, job: int) -> list[dict[str, object]]:
        done = [r for r in self.ask("status")["resizes"] if r["job"] == job and r["kind"] == kind]
        return [r for r in done if r["outcome"] == "completed"]


@contextmanager
def an_agent(cluster: Cluster, who: str = "alice", **settings: dict[str, object]) -> Iterator[Agent]:
    """Not started yet; stopped and gone in the end, with its last words for a test that failed."""
    it = Agent(cluster, who, **settings)
    try:
        yield it
    finally:
        it.stop()
        if it.log.exists():
            print(it.log.read_text()[-6000:])
        for left in (it.folder, it.bin):
            shutil.rmtree(left, ignore_errors=True)


# Before it says to the agent that it takes a resize up, and that it is done. New ranks start as this program, too.
SLOW = """
import time
from dmr import session
from dmr.examples.jacobi import main

def slowly(honest):
    def later(*arguments):
        time.sleep({hold})
        return honest(*arguments)
    return later

session.Session.accept = slowly(session.Session.accept)
session.Session._finished = slowly(session.Session._finished)
if __name__ == "__main__":
    main()
"""


class Jacobi:
    """A Jacobi job of the cluster's user, and the bits it must compute.

    `program` is another one with the same options, whose result is raw doubles; `munge`: its only credential. `python`
    runs it, `start` are the launcher's options, `exports` variables of the batch script. `hold`: seconds between each
    two words of a resize to the agent, so that its phases last long enough to be met.
    """

    ROWS, COLS, SWEEPS = 48, 32, 240

    def __init__(
        self,
        agent: Agent,
        *,
        size: int = 2,
        smallest: int = 2,
        largest: int = 4,
        pause: float = 0.05,
        who: str = "",
        program: str = "",
        munge: bool = False,
        sweeps: int = SWEEPS,
        every: int = 3,
        field: tuple[int, int] = (ROWS, COLS),
        minutes: int = 10,
        name: str = "",
        python: str = PYTHON,
        start: str = "",
        exports: Mapping[str, str] | None = None,
        hold: float = 0.0,
    ) -> None:
        cluster, who = agent.cluster, who or agent.who
        self.cluster = cluster
        self.folder = cluster.home(who)
        self._raw = bool(program)
        if hold:
            (self.folder / "slow.py").write_text(SLOW.format(hold=hold))
        program = program or (f"{python} slow.py" if hold else f"{python} -m dmr.examples.jacobi")
        self.sweeps, self.field = sweeps, field
        self.result, self.report = self.folder / f"result{name}.npy", self.folder / f"report{name}.jsonl"
        for old in (self.result, self.report):
            old.unlink(missing_ok=True)
        command = (
            f"exec {python} -m dmr.launch {start or f'-n {size} -ppn 1'} {program} --rows {field[0]} "
            f"--cols {field[1]} --sweeps {sweeps} --check-every {every} --min {smallest} --max {largest} --factor 2 "
            f"--sweep-seconds {pause} --out {self.result.name} --report {self.report.name}"
        )
        exported = "".join(f"export {name}={value}\n" for name, value in (exports or {}).items())
        environment = agent.ask("env")
        if munge or who != agent.who:  # another user cannot read the agent's key, and proves itself by munge
            environment = {k: v for k, v in environment.items() if k != "DMR_KEY_FILE"}
        submitted = cluster.run_as(
            who,
            [
                "sbatch",
                "--parsable",
                "-J",
                "jacobi",
                f"-N{size}",
                f"-t{minutes}",
                "-o",
                "jacobi-%j.out",
                "--no-requeue",
            ],
            input=f"#!/bin/bash\n{exported}{command}\n",
            env=environment,
            check=True,
        )
        self.id = int(submitted.stdout)

    def state(self) -> str:
        shown = self.cluster.run_as("root", ["scontrol", "-o", "show", "job", str(self.id)]).stdout
        fields = dict(part.split("=", 1) for part in shown.split() if "=" in part)
        return fields.get("JobState", "")

    def state_told(self) -> str:
        """The same, asked until Slurm gives an answer: under load it may give none at all."""
        return str(until("Slurm has told the job's state", self.state))

    def ended(self) -> bool:
        return self.state() in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")

    def nodes(self) -> int:
        shown = self.cluster.run_as("root", ["squeue", "-h", "-j", str(self.id), "-o", "%D"]).stdout.strip()
        return int(shown or 0)

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.report.read_text().splitlines()] if self.report.exists() else []

    def sizes(self) -> list[object]:
        return [e["size"] for e in self.events() if e["event"] in ("start", "resized")]

    def output(self) -> str:
        return "".join(p.read_text(errors="replace") for p in self.folder.glob(f"jacobi-{self.id}.out"))

    def assert_exact(self, limit: float = 400.0) -> None:
        """Ended well, with the bits of a run that never changed its size, far from converged."""
        until("Jacobi has ended", self.ended, limit)
        assert self.state_told() == "COMPLETED", self.output()
        expected, change = serial(*self.field, self.sweeps)
        assert change > 1e-6, "a converged field would hide lost rows"
        found = self.result.read_bytes() if self._raw else np.load(self.result).tobytes()
        assert found == expected.tobytes()


def assert_nothing_left(cluster: Cluster) -> None:
    """No resizer is pending or running, and every node is idle again."""

    def left() -> str:
        return cluster.run_as("root", ["squeue", "-h", "-o", "%i %j %T %E"]).stdout.strip()

    until("no job is left: " + left(), lambda: not left(), 40)
    states = cluster.run_as("root", ["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()
    assert set(states) <= {"idle", "planned"}, states
