"""Elastic jobs on a real Slurm with PrologFlags=Contain: nodes join and leave by companions, and what goes wrong."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from malleable import Agent, assert_nothing_left, until

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

PYTHON = sys.executable


@pytest.fixture
def agent(contained: Cluster) -> Iterator[Agent]:
    it = Agent(contained, dmr={"policy": "throughput"})
    yield it
    it.stop()
    print(it.log.read_text()[-6000:])  # shown by pytest when the test failed
    for left in (it.folder, it.bin):
        shutil.rmtree(left, ignore_errors=True)


class Elastic:
    """An elastic job of the agent's user on one node, and what it has said."""

    def __init__(
        self, agent: Agent, *options: str, minutes: int = 30, sbatch: Sequence[str] = (), who: str = ""
    ) -> None:
        self.cluster = agent.cluster
        self.who = who or agent.who
        self.home = self.cluster.home(self.who)
        environment = agent.ask("env")
        if self.who != agent.who:  # who cannot read the agent's key proves itself by munge
            environment = {k: v for k, v in environment.items() if k != "DMR_KEY_FILE"}
        (self.home / "options.json").write_text(json.dumps(options))
        script = (
            f"#!{PYTHON}\nimport json, sys\nfrom dmr.elastic.__main__ import main\n"
            "sys.exit(main(json.load(open('options.json'))))\n"
        )
        words = ["sbatch", "--parsable", "-N1", f"-t{minutes}", "-o", "elastic-%j.log", "--no-requeue", *sbatch]
        done = self.cluster.run_as(self.who, words, input=script, env=environment, check=True)
        self.id = int(done.stdout)

    def said(self) -> str:
        path = self.home / f"elastic-{self.id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self) -> str:
        shown = self.cluster.run_as("root", ["scontrol", "-o", "show", "job", str(self.id)]).stdout
        fields = dict(part.split("=", 1) for part in shown.split() if "=" in part)
        return fields.get("JobState", "")

    def ended(self) -> bool:
        return self.state() in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

    def companions(self) -> list[int]:
        listed = self.cluster.run_as("root", ["squeue", "-h", "-o", "%i %j"]).stdout.split("\n")
        return [int(line.split()[0]) for line in listed if f" penstock-{self.id}-" in line]

    def until_said(self, text: str, limit: float = 90.0) -> None:
        try:
            until(f"it says {text!r}", lambda: text in self.said(), limit)
        except AssertionError:
            print(self.said())
            raise


def rival(cluster: Cluster, nodes: int, seconds: int = 3) -> int:
    """Another user's job."""
    command = ["sbatch", "--parsable", f"-N{nodes}", "-t1", "-o", "/dev/null", "--wrap", f"sleep {seconds}"]
    return int(cluster.run_as("bob", command, check=True).stdout)


def state(cluster: Cluster, job: int) -> str:
    return cluster.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"]).stdout.strip()


FARM = (
    "--start",
    f"{PYTHON} -m dmr.elastic.farm head tasks.txt farm --slots 1",
    "--join",
    f"exec {PYTHON} -m dmr.elastic.farm worker farm --slots 1 --grace 10",
    "--grace",
    "10",
    "--interval",
    "0.5",
    "--settle",
    "0.5",
)


def tasks(home: Path, count: int, seconds: float) -> None:
    shutil.rmtree(home / "farm", ignore_errors=True)
    shutil.rmtree(home / "results", ignore_errors=True)
    line = f"sleep {seconds}; mkdir -p results; echo $PENSTOCK_TASK >> results/$PENSTOCK_TASK"
    (home / "tasks.txt").write_text(f"{line}\n" * count)


def assert_all_done(home: Path, count: int) -> None:
    found = {p.name for p in (home / "results").iterdir()}
    assert found == {str(n) for n in range(count)}


def test_a_farm_grows_gives_nodes_to_a_rival_and_loses_no_task(agent: Agent, contained: Cluster) -> None:
    agent.start()
    tasks(contained.home("alice"), 60, 1.0)
    farm = Elastic(agent, "--nodes", "1:8", *FARM)
    farm.until_said("grown 1 -> 8 nodes")
    waiting = rival(contained, 4)
    farm.until_said("shrunk 8 ->")
    until("the rival runs", lambda: state(contained, waiting) in ("RUNNING", "COMPLETED"))
    until("the farm is done", farm.ended, 180)
    assert farm.state() == "COMPLETED", farm.said()
    assert_all_done(contained.home("alice"), 60)
    assert_nothing_left(contained)
