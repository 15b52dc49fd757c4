"""`penstock try` on a real Slurm with another user's jobs in the queue, beside what a plain chain then takes."""

from __future__ import annotations

import json
import time

import pytest

pytestmark = pytest.mark.slurm

FLOW = """
name: chain
stages:
  - {name: a, nodes: 4, time: 1m, expect: 5s, run: sleep 5}
  - {name: b, nodes: 4, time: 1m, expect: 5s, run: sleep 5}
"""


def submitted(cluster, who, seconds, nodes, *options):
    words = ["sbatch", "--parsable", "-o", "/dev/null", "-N", str(nodes), "-t", "1", *options]
    return cluster.run_as(who, [*words, "--wrap", f"sleep {seconds}"]).stdout.strip()


def queue(cluster, who):
    return cluster.run_as(who, ["squeue", "-h", "--me", "-o", "%i"]).stdout.split()


def told(agent, file):
    done = agent.run("alice", "try", "--json", file)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_what_is_said_of_a_queue_and_what_a_plain_chain_then_takes(make_agent, cluster):
    agent = make_agent()
    file = agent.write(FLOW)
    idle = told(agent, file)
    assert not idle["live"] and idle["cuts"][0]["makespan"]["median"] == 10.0 and not idle["gain"]
    for seconds, nodes in ((30, 6), (20, 8), (15, 8)):
        submitted(cluster, "bob", seconds, nodes)
    agent.until(lambda: cluster.run_as("bob", ["squeue", "-h", "--me", "-t", "R"]).stdout, "bob's first job")
    said = told(agent, file)
    live = told(agent.start(), file)
    assert live["live"] and not said["live"]
    assert queue(cluster, "alice") == [], "nothing was submitted"
    for one in (said, live):
        range_ = one["cuts"][0]["makespan"]
        assert 10.0 <= range_["low"] < range_["high"] < 200.0, "all three stand before it, for no longer than 3 minutes"
    begun = time.monotonic()
    first = submitted(cluster, "alice", 5, 4)
    submitted(cluster, "alice", 5, 4, f"--dependency=afterok:{first}")
    agent.until(lambda: not queue(cluster, "alice"), "the end of the chain", 180.0)
    assert 30.0 < time.monotonic() - begun < live["cuts"][0]["makespan"]["high"] + 60.0
