"""Elastic jobs for the tests on real Slurm: one job and what it has said, a farm of tasks, a rival."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from malleable import Agent, an_agent, assert_nothing_left, until

from penstock_lab.cluster import Cluster

PYTHON = sys.executable


@pytest.fixture
def agent(contained: Cluster) -> Iterator[Agent]:
    with an_agent(contained, dmr={"policy": "throughput"}) as it:
        yield it


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

    @classmethod
    def of(cls, agent: Agent, number: int) -> Elastic:
        """One that was submitted otherwise."""
        it = cls.__new__(cls)
        it.cluster, it.who, it.id = agent.cluster, agent.who, number
        it.home = agent.cluster.home(agent.who)
        return it

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


def rival(cluster: Cluster, nodes: int, seconds: int = 3, *options: str) -> int:
    """Another user's job, of a minute at most where `options` say nothing else."""
    command = ["sbatch", "--parsable", f"-N{nodes}", "-t1", "-o", "/dev/null", *options, "--wrap", f"sleep {seconds}"]
    return int(cluster.run_as("bob", command, check=True).stdout)


def state(cluster: Cluster, job: int) -> str:
    return cluster.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"]).stdout.strip()


@pytest.fixture
def home(contained: Cluster) -> Path:
    """Of alice, without what the tests before have left."""
    place = contained.home("alice")
    for left in ("over", "want", "farm", "results", "bad", "stubborn", "options.json"):
        path = place / left
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return place


def end(job: Elastic) -> None:
    """Its head ends, and nothing is left."""
    (job.home / "over").touch()
    until("the job has ended", job.ended, 90)
    assert job.state() == "COMPLETED", job.said()
    assert_nothing_left(job.cluster)


def submit_file(agent: Agent, file: dict[str, object], name: str = "elastic.yaml") -> Elastic:
    """By `penstock elastic`, as the agent's user."""
    home = agent.cluster.home(agent.who)
    (home / name).write_text(yaml.safe_dump(file))
    environment = {"PENSTOCK_CONFIG": str(home / "penstock.yaml")}
    command = [PYTHON, "-c", "from penstock.cli import main; main()", "elastic", name, "--json"]
    done = agent.cluster.run_as(agent.who, command, env=environment, check=True)
    return Elastic.of(agent, json.loads(done.stdout)["job"])


def tasks(home: Path, count: int, seconds: float) -> None:
    line = f"sleep {seconds}; mkdir -p results; echo $PENSTOCK_TASK >> results/$PENSTOCK_TASK"
    (home / "tasks.txt").write_text(f"{line}\n" * count)


def assert_all_done(home: Path, count: int) -> None:
    found = {p.name for p in (home / "results").iterdir()}
    assert found == {str(n) for n in range(count)}


def farm_file(**more: object) -> dict[str, object]:
    elastic = {"min": 1, "max": 8, "use": "farm", "tasks": "tasks.txt", "slots": 1, "grace": "10s", "interval": 0.5}
    return {"name": "farm", "time": "30m", "output": "elastic-%j.log", "elastic": {**elastic, "settle": 0.5, **more}}


def by_chance(job: Elastic, count: int, largest: int, seed: int = 5) -> int:
    """The program says by turns what it has use for, so that the job is resized; how often it was, `count` at least."""
    draw = random.Random(seed)
    want = job.home / f"elastic-{job.id}" / "want"

    def resizes() -> int:
        return job.said().count("elastic: grown ") + job.said().count("elastic: shrunk ")

    size = 1
    while resizes() < count and not job.ended():
        size = draw.choice([n for n in range(1, largest + 1) if n != size])
        want.write_text(f"{size}\n")
        want.chmod(0o666)
        before, deadline = resizes(), time.monotonic() + 15
        until("it is resized", lambda: resizes() > before or time.monotonic() > deadline or job.ended(), 60)  # noqa: B023
    want.write_text(f"{largest}\n")
    return resizes()
