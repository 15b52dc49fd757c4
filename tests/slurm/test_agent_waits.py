"""Waits on a real Slurm: what is asked and watched, what accounting tells, and maintenance."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from agents import SlurmAgent

from penstock_lab.cluster import Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[SlurmAgent]:
    it = SlurmAgent(cluster, asa={"predictor": "share-mix", "alternatives": [1.0, 2.0, 60.0, 600.0]})
    yield it
    it.down()


def waits(agent: SlurmAgent, *options: str) -> dict[str, Any]:
    done = agent.run("alice", "waits", "--json", *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_accounting_the_queue_and_slurm_tell_what_to_expect(agent, cluster):
    begun = time.time()
    cluster.run_as("alice", ["srun", "-N", "2", "-t", "1", "true"], check=True)

    agent.until(lambda: [r["State"] for r in agent.accounting(begun)] == ["COMPLETED"], "accounting")
    agent.start()
    agent.until(lambda: waits(agent)["geometries"], "the waits from accounting")
    busy = ["sbatch", "--parsable", "-N", "8", "-t", "5", "--wrap", "sleep 300"]
    blocker = cluster.run_as("bob", busy, check=True).stdout.strip()
    agent.until(lambda: cluster.run_as("bob", ["squeue", "-h", "-t", "R"]).stdout.strip(), "the blocker")

    def seen() -> dict[str, Any]:  # with the agent's next look
        told: dict[str, Any] = waits(agent, "-N", "2", "-t", "1m")["outlook"]
        return told if all((told["experts"].get(one) or 0) > 100 for one in ("queue", "slurm")) else {}

    found = agent.until(seen, "the blocker in the outlook")
    assert 100 < found["experts"]["queue"] <= 300
    assert found["experts"]["slurm"] > 100
    assert found["known_waits"] + found["like_geometries"] > 0
    text = "name: t\nstages:\n  - {name: one, nodes: 2, time: 60, expect: 1, run: sleep 1}\n"
    number = agent.submit(text, "asa")
    (stage,) = agent.until(lambda: [s for s in agent.state(number)["stages"] if s["job"]], "its submission")
    assert {"queue", "slurm", "history"} <= stage["estimate_said"].keys()
    cluster.run_as("bob", ["scancel", blocker], check=True)
    assert agent.finish(number)["phase"] == "completed"
    assert waits(agent)["calibration"]["predictions"] == 1


def test_a_stage_that_would_reach_into_a_maintenance_waits_for_its_end(agent, cluster):
    words = ["scontrol", "create", "reservation", "ReservationName=service", "StartTime=now+45", "Duration=60"]
    cluster.run_as("operator", [*words, "Users=root", "Flags=MAINT,IGNORE_JOBS", "Nodes=ALL"], check=True)
    try:
        agent.start()
        text = "name: t\nstages:\n  - {name: one, nodes: 2, time: 60, expect: 1, run: sleep 1}\n"
        number = agent.submit(text, "perstage")

        def why() -> str:
            return agent.run("alice", "explain", f"w{number}").stdout

        said = agent.until(lambda: "maintenance service" in (text := why()) and text, "the reason")
        assert "2 nodes for 1m could not end before maintenance" in said
        time.sleep(2.0)
        assert cluster.run_as("root", ["squeue", "-h"]).stdout == "", "nothing stands in the queue meanwhile"
    finally:
        cluster.run_as("operator", ["scontrol", "delete", "ReservationName=service"])
    assert agent.stop() == 0
    agent.start()
    assert agent.finish(number)["phase"] == "completed"
