"""What the agent has learned of programs' speeds, and what it lent, outlive a kill of the agent on real Slurm."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from malleable import PYTHON, Agent, an_agent, assert_nothing_left, until

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300, func_only=True)]

# A program without MPI that takes what it is offered, and says what its steps take: `seconds` on one node, of which the
# part `serial` no node shortens (0 seconds: it says nothing). It ends when there is a file `end`.
GROWS = r"""
import json, os, subprocess, sys, time
from dmr import wire
from dmr.client import Client

seconds, serial, maximum, preferred, report = *map(float, sys.argv[1:5]), sys.argv[5]
job, epoch = int(os.environ["SLURM_JOB_ID"]), 0
client = Client.from_environment()
shown = subprocess.run(["squeue", "-h", "-j", str(job), "-o", "%N"], capture_output=True, text=True).stdout.strip()
hosts = subprocess.run(["scontrol", "show", "hostnames", shown], capture_output=True, text=True).stdout
nodes = hosts.split()


def note():
    with open(report, "a") as file:
        file.write(json.dumps(len(nodes)) + "\n")


note()
while not os.path.exists("end"):
    step = seconds * (serial + (1 - serial) / len(nodes))
    says = {"step_seconds": step, "steps_left": int(1200 / step)} if seconds else {}
    said = wire.Check(job=job, epoch=epoch, per_node=1, method="merge", companion=True, size=len(nodes),
                      nodes=tuple(nodes), minimum=1, maximum=int(maximum), factor=2,
                      preferred=int(preferred) or None, **says)
    reply = client.request(said)
    if isinstance(reply, wire.CheckReply) and reply.action != "none":
        if isinstance(client.request(wire.Accept(job=job, epoch=reply.epoch), urgent=True), wire.Done):
            done = wire.Finished(job=job, epoch=reply.epoch, size=reply.size, nodes=reply.nodes)
            client.request(done, urgent=True)
            nodes, epoch = list(reply.nodes), reply.epoch
            note()
    time.sleep(0.3)
"""


class Grows:
    """Such a job of alice's, and the sizes that it has had."""

    def __init__(
        self,
        agent: Agent,
        name: str,
        seconds: float,
        serial: float = 0.0,
        *,
        nodes: int = 1,
        maximum: int = 8,
        preferred: int = 0,
    ) -> None:
        self.agent, self.home = agent, agent.cluster.home("alice")
        (self.home / "grows.py").write_text(GROWS)
        (self.home / "end").unlink(missing_ok=True)
        self._report = self.home / f"grows-{name}.jsonl"
        self._report.unlink(missing_ok=True)
        script = f"#!/bin/bash\nexec {PYTHON} grows.py {seconds} {serial} {maximum} {preferred} {self._report}\n"
        words = ["sbatch", "--parsable", f"-N{nodes}", "-t30", "-J", name, "-o", "grows-%j.out", "--no-requeue"]
        done = agent.cluster.run_as("alice", words, input=script, env=agent.ask("env"), check=True)
        self.id = int(done.stdout)

    @property
    def sizes(self) -> list[int]:
        return [json.loads(line) for line in self._report.read_text().splitlines()] if self._report.exists() else []

    def end(self) -> None:
        (self.home / "end").touch()
        until(
            "it has ended", lambda: not self.agent.cluster.run_as("root", ["squeue", "-h", "-j", f"{self.id}"]).stdout
        )
        (self.home / "end").unlink()


def rival(cluster: Cluster, nodes: int) -> int:
    words = ["sbatch", "--parsable", f"-N{nodes}", "-t5", "-o", "/dev/null", "--wrap", "sleep 240"]
    return int(cluster.run_as("bob", words, check=True).stdout)


def running(cluster: Cluster, job: int) -> bool:
    return cluster.run_as("root", ["squeue", "-h", "-j", str(job), "-o", "%T"]).stdout.strip() == "RUNNING"


@pytest.fixture
def agent(contained: Cluster) -> Iterator[Agent]:
    with an_agent(contained, dmr={"policy": "throughput", "cooldown": 1}) as it:
        it.start()
        yield it
        (contained.home("alice") / "end").touch()
        contained.run_as("root", ["scancel", "-u", contained.users["alice"]])
        contained.run_as("root", ["scancel", "-u", contained.users["bob"]])


@pytest.mark.parametrize("seconds", [0.0, pytest.param(10.0, marks=pytest.mark.long)], ids=["says-nothing", "measured"])
def test_after_a_kill_a_job_that_has_grown_gives_its_nodes_to_who_waits(
    agent: Agent, contained: Cluster, seconds: float
) -> None:
    grown = Grows(agent, "grown", seconds, 0.3, nodes=2)
    until("it has all nodes", lambda: grown.sizes[-1:] == [8] and agent.phase(grown.id) == "idle")
    agent.kill()
    agent.start()
    waits = rival(contained, 4)
    until("the rival has its nodes", lambda: running(contained, waits), 30)
    assert grown.sizes == [2, 8, 2] or grown.sizes[:4] == [2, 8, 2, 4], "a companion goes back whole"
    contained.run_as("root", ["scancel", str(waits)])
    grown.end()
    assert_nothing_left(contained)


@pytest.mark.long
def test_a_program_that_scales_badly_keeps_no_other_below_what_it_prefers(agent: Agent, contained: Cluster) -> None:
    heat = Grows(agent, "heat", 10.0, 1.0, maximum=4, preferred=4)
    until("it has grown", lambda: heat.sizes[-1:] == [4] and agent.phase(heat.id) == "idle")
    time.sleep(3)  # it says what its steps take there, and the agent looks
    heat.end()
    good = Grows(agent, "sleep", 2.0, 0.0, maximum=4, preferred=4)
    until("it has what it prefers", lambda: good.sizes[-1:] == [4], 30)
    good.end()
    assert_nothing_left(contained)


@pytest.mark.long
def test_of_ten_programs_each_good_one_reaches_its_best_size_and_each_bad_one_stays_small(
    agent: Agent, contained: Cluster
) -> None:
    """One after the other, of one owner with the same limits, on idle nodes; the agent is killed after every second."""
    for number in range(10):
        bad = number % 2 == 0
        one = Grows(agent, f"{'flat' if bad else 'good'}{number}", 10.0, 1.0 if bad else 0.0)
        best = [1, 8, 1] if bad else [1, 8]
        until("it has come to its size", lambda one=one, best=best: one.sizes == best, 90)
        until("it rests", lambda one=one: agent.phase(one.id) == "idle")
        if bad:
            agent.kill()
            agent.start()
        assert one.sizes == best
        one.end()
    assert_nothing_left(contained)
