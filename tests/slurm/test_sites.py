"""Plans over two real clusters, one of them asked through a prefix as it would be through ssh."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import empty
from penstock_lab.cluster import Cluster, ClusterSpec, up
from waiting import until

# Bringing a cluster up has limits of its own.
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400, func_only=True)]

FLOW = """
name: flow
stages:
  - {name: left, nodes: 2, time: 5m, run: "true", produces: 100 MB}
  - {name: right, nodes: 2, time: 5m, run: "true", produces: 100 MB, after: []}
  - {name: both, nodes: 1, time: 5m, run: "true", after: [left, right]}
"""


@pytest.fixture(scope="module")
def far(session_cluster: Cluster, new_folder: Callable[[str], Path]) -> Iterator[Cluster]:
    """A second cluster of two nodes; users and munge are those of the first one."""
    it = up(ClusterSpec(nodes=2, folder=new_folder("sites"), name="sites", join=session_cluster.folder))
    yield it
    it.down()


def fill(cluster: Cluster, nodes: int, minutes: int) -> None:
    """A job of bob's runs on so many nodes."""
    words = ["sbatch", "--parsable", f"-N{nodes}", f"-t{minutes}", "-o", "/dev/null", "--exclusive"]
    made = cluster.run_as("bob", [*words, "--wrap", "sleep 900"])
    assert made.returncode == 0, made.stderr

    def asked(*words: str) -> str:
        return cluster.run_as("root", list(words)).stdout

    # Slurm tries a job again two minutes after its launch has failed, as it does on a machine with much else to do.
    until(
        lambda: "RUNNING" in asked("squeue", "-h", "-o", "%T"),
        lambda: "the job to run\n" + asked("scontrol", "show", "jobs") + asked("sinfo", "-R") + asked("sinfo", "-N"),
        seconds=300,
    )


def plan(cluster: Cluster, far: Cluster, who: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`penstock plan` as that user on the first cluster."""
    home = cluster.home(who)
    prefix = ["env", *(f"{key}={value}" for key, value in far.env.items())]
    prefix += [f"PENSTOCK_AGENT__STATE_DIR={home}/far", sys.executable, "-m"]
    sites = {
        "sites": {
            "near": {},
            "far": {"prefix": prefix, "speed": 0.8},
            "dead": {"prefix": ["sh", "-c", "echo no route to host >&2; exit 255"]},
        },
        "links": [{"between": ["near", "far"], "bandwidth": "10 MB/s", "latency": "2s"}],
        "patience": "3m",
    }
    for name, text in (("flow.yaml", FLOW), ("sites.json", json.dumps(sites))):
        done = cluster.run_as(who, ["sh", "-c", f"cat > {name}"], input=text, cwd=home)
        assert done.returncode == 0, done.stderr
    words = [sys.executable, "-m", "penstock", "plan", "flow.yaml", "--sites", "sites.json", "--json", *options]
    env = {"PENSTOCK_AGENT__STATE_DIR": str(home / "near"), "PENSTOCK_SLURM__BACKEND": "cli"}
    return cluster.run_as(who, words, env=env, cwd=home, timeout=350)


def test_a_workflow_is_spread_over_two_clusters(cluster: Cluster, far: Cluster) -> None:
    fill(cluster, 6, 30)
    for method in ("paper", "greedy"):
        done = plan(cluster, far, "alice", "--alpha", "0", "--method", method)
        assert done.returncode == 0, done.stderr
        assert "site dead is left out: it hung up: no route to host" in done.stderr
        found = json.loads(done.stdout)
        stages = {s["name"]: s for s in found["stages"]}
        # Two nodes are free at each, and what runs far takes 375 s, not five minutes.
        assert {stages["left"]["site"], stages["right"]["site"]} == {"near", "far"}, method
        for stage in stages.values():
            length = {"near": 300, "far": 375}[stage["site"]]
            assert stage["end"] - stage["start"] == length
            assert set(stage["on"]) <= ({"n7", "n8"} if stage["site"] == "near" else {"n1", "n2"})
        (moved,) = found["transfers"]
        assert (moved["from"], moved["to"], moved["bytes"]) == ("far", "near", 100e6)
        assert moved["end"] - moved["start"] == 12
        assert stages["both"]["site"] == "near" and stages["both"]["start"] == moved["end"]
        assert found["makespan"] == 375 + 12 + 300
        assert [s["clock_ahead"] for s in found["sites"]] == [0, 0]
        assert all(s["partition"] == "batch" for s in found["sites"])


@pytest.mark.long
def test_a_plan_at_the_other_cluster_is_reserved_there(cluster: Cluster, far: Cluster) -> None:
    fill(cluster, 8, 60)
    fill(far, 2, 5)  # so that nothing begins meanwhile, however slow the machine is
    try:
        done = plan(cluster, far, "operator", "--alpha", "0", "--reserve")
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("far: Submitted batch job") == 3
        found = json.loads(done.stdout)
        assert {s["site"] for s in found["stages"]} == {"far"} and found["transfers"] == []
        reserved = {s["name"]: s for s in found["reserved"]["stages"]}
        # 375 s are seven minutes to Slurm, and a minute of margin is reserved beyond each
        assert all(s["end"] - s["start"] == 480 for s in reserved.values()) and len(reserved) == 3
        shown = far.run_as("root", ["scontrol", "-o", "show", "reservations"]).stdout
        assert shown.count("ReservationName=flow-") == 3
        waiting = far.run_as("root", ["squeue", "-h", "-t", "PD", "-o", "%j %v"]).stdout.splitlines()
        assert len(waiting) == 3 and all(line.split()[0] == line.split()[1] for line in waiting)
        assert "ReservationName" not in cluster.run_as("root", ["scontrol", "-o", "show", "reservations"]).stdout
    finally:
        empty(far)
