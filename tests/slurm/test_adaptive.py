"""dask-jobqueue's workers and Parsl's blocks in a real Slurm's queue, as many as the rule says: theirs, or ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import SlurmAgent
from test_python_doors import python

from penstock_lab.cluster import Cluster

__all__ = ["python"]

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(900)]

HEAD = """\
import sys, time
from dask_jobqueue import SLURMCluster
from distributed import Client
from pathlib import Path
from penstock.tools.dask_jobqueue import PenstockAdaptive

def second(i, dep=None):
    time.sleep(SECOND)
    return i

def first(seconds):
    time.sleep(seconds)
    return 0

def until(name):
    while not Path(name).exists():
        time.sleep(0.1)

def told(name):
    Path(name).touch()

def cluster(**options):
    made = SLURMCluster(queue="batch", cores=1, memory="500MB", walltime="00:05:00", local_directory="/tmp",
                        death_timeout=300, log_directory="log")
    ours = {"Adaptive": PenstockAdaptive, **options} if sys.argv[1] == "ours" else {}
    made.adapt(maximum_jobs=4, interval="1s", target_duration="1s", **ours)
    return made
"""
FLICKER = """
if __name__ == "__main__":
    SECOND = 2
    with cluster() as it, Client(it) as client:
        tasks = client.map(second, range(40), pure=False)
        until("again")
        del tasks
        until("more")
        tasks = client.map(second, range(40), pure=False)
        assert client.gather(tasks) == list(range(40))
        told("done")
        until("leave")
"""
"""A notebook whose user runs a cell, interrupts it, thinks, and runs it again."""

AHEAD = """
if __name__ == "__main__":
    SECOND = 10
    with cluster(expect={"first": 50}) as it, Client(it) as client:
        client.submit(int).result()
        told("begun")
        one = client.submit(first, 50)
        rest = [client.submit(second, i, one, pure=False) for i in range(12)]
        one.result()
        begun = time.monotonic()
        assert client.gather(rest) == list(range(12))
        told("done")
        print(time.monotonic() - begun, flush=True)
        until("leave")
"""
"""One task, and twelve that need its result."""

PARSL = """
import os, sys, time
import parsl
from pathlib import Path
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SingleNodeLauncher
from parsl.providers import SlurmProvider
from penstock.tools.parsl import ask_ahead

@parsl.python_app
def nothing():
    pass

@parsl.python_app
def first(seconds):
    import time
    time.sleep(seconds)

@parsl.python_app
def second(i, dep):
    import time
    time.sleep(10)
    return i

provider = SlurmProvider(
    partition="batch", walltime="00:05:00", init_blocks=1, max_blocks=4, launcher=SingleNodeLauncher(),
    worker_init="export PATH=" + os.path.dirname(sys.executable) + ":$PATH"
)
htex = HighThroughputExecutor(address="127.0.0.1", max_workers_per_node=1, provider=provider)
with parsl.load(Config(executors=[htex], strategy="htex_auto_scale", strategy_period=1)) as dfk:
    if sys.argv[1] == "ours":
        assert ask_ahead(dfk, expect={"first": 50}) == 1
    nothing().result()
    Path("begun").touch()
    one = first(50)
    rest = [second(i, one) for i in range(12)]
    one.result()
    begun = time.monotonic()
    assert [task.result() for task in rest] == list(range(12))
    Path("done").touch()
    print(time.monotonic() - begun, flush=True)
"""
"""The same of Parsl's."""


class Runs:
    """Programs of Alice's, each in a folder of its own."""

    def __init__(self, cluster: Cluster, python: str, more: dict[str, str] | None = None) -> None:
        self.cluster = cluster
        self.python = python
        path = f"{Path(python).parent}:{cluster.user_env('alice')['PATH']}"
        self.environment = {**(more or {}), "PATH": path}
        self.place = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/var/tmp"))
        self.place.chmod(0o755)
        self.process: subprocess.Popen[str] | None = None
        self.output = self.place / "output"

    def start(self, program: str, kind: str) -> None:
        user = self.cluster.user("alice")
        self.folder = self.place / kind
        self.folder.mkdir()
        os.chown(self.folder, user.uid, user.gid)
        (self.folder / "program.py").write_text(program)
        with self.output.open("a") as output:
            self.process = self.cluster.popen_as(
                "alice",
                [self.python, "program.py", kind],
                env=self.environment,
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )

    def tell(self, name: str) -> None:
        (self.folder / name).touch()

    def until(self, probe: Callable[[], object], seconds: float = 150.0) -> None:
        end = time.monotonic() + seconds
        while not probe():
            assert self.process is None or self.process.poll() in (None, 0), self.said()
            assert time.monotonic() < end, self.cluster.run_as("root", ["squeue"]).stdout + self.said()
            time.sleep(0.2)

    def said(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def jobs(self, state: str) -> list[str]:
        """Of Alice's, in this state in the queue."""
        return self.cluster.run_as("alice", ["squeue", "-h", "--me", "-t", state, "-o", "%i"]).stdout.split()

    def never_started(self, since: float) -> int:
        """How many jobs of Alice's were cancelled in the queue."""
        begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
        words = ["sacct", "-nXP", "-S", begin, "-o", "State,Start"]
        rows = self.cluster.run_as("alice", words, check=True).stdout.splitlines()
        return sum(row.startswith("CANCELLED") and row.endswith(("|None", "|Unknown")) for row in rows)

    def down(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture
def runs(cluster: Cluster, python: str) -> Iterator[Runs]:
    it = Runs(cluster, python)
    yield it
    it.down()


def flicker(runs: Runs, kind: str) -> tuple[int, float]:
    """How many jobs were cancelled in the queue, and how long after the nodes were free the work was done (s)."""
    cluster, since = runs.cluster, time.time()
    busy = ["sbatch", "--parsable", "-N8", "-t2", "-o/dev/null"]
    holder = cluster.run_as("bob", [*busy, "--wrap=sleep 100"], check=True).stdout.strip()
    runs.until(lambda: cluster.run_as("bob", ["squeue", "-h", "-t", "R"]).stdout.strip())
    runs.start(HEAD + FLICKER, kind)
    runs.until(lambda: len(runs.jobs("PD")) == 4)
    cluster.run_as("bob", [*busy, "--wrap=sleep 20"], check=True)  # who comes after
    runs.tell("again")
    quiet = time.monotonic()
    runs.until(lambda: time.monotonic() - quiet > 8)
    runs.tell("more")
    runs.until(lambda: len(runs.jobs("PD")) == 4)
    cluster.run_as("bob", ["scancel", holder], check=True)
    free = time.monotonic()
    runs.until((runs.folder / "done").exists)
    took = time.monotonic() - free
    cancelled = runs.never_started(since)
    runs.tell("leave")
    assert runs.process is not None
    runs.process.wait(60)
    return cancelled, took


def test_demand_that_flickers_costs_no_place_in_the_queue(runs: Runs):
    theirs, late = flicker(runs, "theirs")
    runs.until(lambda: not runs.cluster.run_as("root", ["squeue", "-h"]).stdout.strip())
    ours, soon = flicker(runs, "ours")
    print(f"cancelled in the queue: Dask's rule {theirs}, ours {ours}; work done {late:.0f} and {soon:.0f} s after")
    assert theirs >= 4, "the complaint is gone"
    assert ours == 0
    assert soon <= late


@pytest.fixture
def with_agent(cluster: Cluster, python: str) -> Iterator[Runs]:
    """Alice's programs and her agent, which knows that eight jobs like those of workers have waited for a minute."""
    agent = SlurmAgent(cluster, asa={"predictor": "share-mix"})
    it = Runs(cluster, python, agent.environment)
    try:
        cluster.run_as("bob", ["sbatch", "-N8", "-t2", "-o/dev/null", "--wrap=sleep 60"], check=True)
        it.until(lambda: cluster.run_as("bob", ["squeue", "-h", "-t", "R"]).stdout.strip())
        since = time.time()
        for _ in range(8):
            cluster.run_as("alice", ["sbatch", "-N1", "-t5", "-o/dev/null", "--wrap=true"], check=True)
        it.until(lambda: [row["State"] for row in agent.accounting(since)] == ["COMPLETED"] * 8)
        agent.start()
        agent.until(
            lambda: json.loads(agent.run("alice", "waits", "--json").stdout)["geometries"], "what it has learned"
        )
        yield it
    finally:
        it.down()
        agent.down()


def ahead(runs: Runs, program: str, kind: str) -> float:
    """How long the second phase took (s), on one node and what else there was in time."""
    cluster = runs.cluster
    busy = ["sbatch", "-N7", "-o/dev/null"]
    runs.start(program, kind)
    runs.until((runs.folder / "begun").exists)
    cluster.run_as("bob", [*busy, "-t1", "--wrap=sleep 50"], check=True)
    begun = time.monotonic()
    runs.until(lambda: time.monotonic() - begun > 25)
    cluster.run_as("bob", [*busy, "-t2", "--wrap=sleep 60"], check=True)  # who comes before the second phase
    runs.until((runs.folder / "done").exists)
    runs.tell("leave")
    assert runs.process is not None
    runs.process.wait(60)
    cluster.run_as("bob", ["scancel", "--me"], check=True)
    runs.until(lambda: not cluster.run_as("root", ["squeue", "-h"]).stdout.strip())
    return float(runs.said().split()[-1])


def test_workers_that_are_asked_for_ahead_are_there_in_time(with_agent: Runs):
    theirs = ahead(with_agent, HEAD + AHEAD, "theirs")
    ours = ahead(with_agent, HEAD + AHEAD, "ours")
    print(f"the second phase: Dask's rule {theirs:.0f} s, ours {ours:.0f} s")
    assert ours < 0.8 * theirs


def test_blocks_that_are_asked_for_ahead_are_there_in_time(with_agent: Runs):
    theirs = ahead(with_agent, PARSL, "theirs")
    ours = ahead(with_agent, PARSL, "ours")
    print(f"the second phase: Parsl's strategy {theirs:.0f} s, asked ahead {ours:.0f} s")
    assert ours < 0.8 * theirs
