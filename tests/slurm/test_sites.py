"""Plans over two real clusters, one of them asked through a prefix as it would be through ssh."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pytest

from penstock.cluster import Cluster, ClusterSpec, up

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
def far(session_cluster: Cluster) -> Iterator[Cluster]:
    """A second cluster of two nodes; users and munge are those of the first one."""
    from conftest import folder_of

    it = up(ClusterSpec(nodes=2, folder=folder_of("sites"), name="sites", join=session_cluster.folder))
    yield it
    it.down()


def test_a_workflow_is_spread_over_two_clusters(cluster: Cluster, far: Cluster) -> None:
    made = cluster.run_as("bob", ["sbatch", "--parsable", "-N6", "-t30", "-o", "/dev/null", "--wrap", "sleep 900"])
    assert made.returncode == 0, made.stderr
    end = time.monotonic() + 120
    while "RUNNING" not in cluster.run_as("root", ["squeue", "-h", "-o", "%T"]).stdout:
        assert time.monotonic() < end, "timed out waiting for the job to run"
        time.sleep(0.2)
    prefix = ["env", *(f"{key}={value}" for key, value in far.env.items()), sys.executable, "-m"]
    sites = {
        "sites": {
            "near": {},
            "far": {"prefix": prefix, "speed": 0.8},
            "dead": {"prefix": ["sh", "-c", "echo no route to host >&2; exit 255"]},
        },
        "links": [{"between": ["near", "far"], "bandwidth": "10 MB/s", "latency": "2s"}],
        "patience": "3m",
    }
    home = cluster.home("alice")
    for name, text in (("flow.yaml", FLOW), ("sites.json", json.dumps(sites))):
        done = cluster.run_as("alice", ["sh", "-c", f"cat > {name}"], input=text, cwd=home)
        assert done.returncode == 0, done.stderr
    words = [sys.executable, "-m", "penstock", "plan", "flow.yaml", "--sites", "sites.json", "--alpha", "0", "--json"]
    for method in ("moga", "greedy"):
        env = {"PENSTOCK_AGENT__STATE_DIR": str(home / "state"), "PENSTOCK_SLURM__BACKEND": "cli"}
        done = cluster.run_as("alice", [*words, "--method", method], env=env, cwd=home, timeout=300)
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
