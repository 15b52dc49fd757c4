"""Stages that age while they depend on others, on real Slurm: since when, and that none starts early or twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import SlurmAgent

from penstock_lab.cluster import Cluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can write a file that belongs to root"),
]

ALLOWED = {"workflows": {"age_while_dependent": True}}


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[SlurmAgent]:
    it = SlurmAgent(cluster, **ALLOWED)
    yield it
    it.down()


def chain(stages: int, ledger: Path, seconds: float = 0.2) -> str:
    """Each stage writes down its beginning and its end."""
    lines = ["name: chain", "stages:"]
    for i in range(1, stages + 1):
        run = f"echo {i} begin >>{ledger}; sleep {seconds}; echo {i} end >>{ledger}"
        lines.append(f"  - {{name: s{i}, nodes: 2, time: 60, expect: 1, run: '{run}'}}")
    return "\n".join([*lines, ""])


def ages(cluster: Cluster) -> dict[int, tuple[str, str]]:
    """AccrueTime and the dependency of the user's pending jobs, as Slurm says them."""
    done = cluster.run_as("alice", ["squeue", "-h", "--me", "-t", "PD", "-O", "JobID:20,AccrueTime:30,Dependency:100"])
    rows = [(line[:20].strip(), line[20:50].strip(), line[50:].strip()) for line in done.stdout.splitlines()]
    return {int(job): (accrue, dependency) for job, accrue, dependency in rows if dependency not in ("", "(null)")}


def aged_and_in_order(agent: SlurmAgent, cluster: Cluster, stages: int, kills: int) -> None:
    ledger = agent.folder / "ledger"
    busy = ["sbatch", "--parsable", "-N", "8", "-t", "5", "-o", "/dev/null", "--wrap", "sleep 300"]
    blocker = cluster.run_as("bob", busy, check=True).stdout.strip()
    agent.until(lambda: cluster.run_as("bob", ["squeue", "-h", "-t", "R"]).stdout.strip(), "the blocker")
    agent.start()
    number = agent.submit(chain(stages, ledger), "seed")
    for _ in range(kills):  # while it submits
        agent.stop(signal.SIGKILL)
        agent.start()
    agent.until(lambda: len(ages(cluster)) == stages - 1, "all that depend on another", 120.0)
    agent.until(lambda: all(a not in ("", "N/A", "Unknown") for a, _ in ages(cluster).values()), "their ages", 15.0)
    before = ages(cluster)
    cluster.run_as("bob", ["scancel", blocker], check=True)
    for _ in range(kills):  # while they run
        agent.stop(signal.SIGKILL)
        agent.start()
    for job, (accrue, _dependency) in ages(cluster).items():
        assert before[job][0] == accrue, "an age that is counted stays"
    assert agent.finish(number, 60.0 + 12.0 * stages)["phase"] == "completed"
    said = ledger.read_text().split("\n")[:-1]
    assert said == [f"{i} {what}" for i in range(1, stages + 1) for what in ("begin", "end")], "once each, in order"


@pytest.mark.long
def test_a_seeded_chain_ages_from_its_submission_and_runs_in_order_under_kills(agent, cluster):
    aged_and_in_order(agent, cluster, 10, 1)


@pytest.mark.long
@pytest.mark.timeout(1500, func_only=True)  # twice as long as it may take by its own deadline, and a little more
def test_a_hundred_seeded_jobs_keep_their_age(agent, cluster):
    for _ in range(2):  # a workflow of at most 50 stages is in the queue as a whole
        aged_and_in_order(agent, cluster, 50, 3)
        (agent.folder / "ledger").unlink()
        agent.stop()


def test_a_users_own_file_cannot_allow_it(agent, cluster):
    user = cluster.user("alice")
    os.chown(agent.config, user.uid, user.gid)
    done = agent.run("alice", "config", "check")
    assert done.returncode != 0 and "only an administrator can allow this" in done.stdout + done.stderr


def test_where_limits_are_enforced_it_is_refused_with_the_reason(enforcing):
    agent = SlurmAgent(enforcing, **ALLOWED)
    try:
        agent.start()
        file = agent.write(chain(2, agent.folder / "ledger"))
        done = agent.run("alice", "submit", file, "--strategy", "seed")
        assert done.returncode == 2, done.stderr
        assert "limits are enforced" in done.stderr
    finally:
        agent.down()
