"""Resource selection on two real clusters that share their accounting: submission, moves, and what is left out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from agents import COMMAND, SlurmAgent

from penstock_lab.cluster import Cluster, ClusterSpec, up
from waiting import until

# Bringing two clusters up has limits of its own.
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240, func_only=True)]

SITE = """
partitions:
  near/batch: {base: 3 GHz, charge: 1}
  near/short: {base: 3 GHz, charge: 1}
  far/batch: {base: 1.5 GHz, charge: 0.2}
"""
TASK = """
name: md
run: |
  sleep 2
  echo "$PENSTOCK_TASK $SLURM_CLUSTER_NAME" >>out.$PENSTOCK_TASK
time: 5m
requirements: [{type: compute, form: {isa: x86}, amount: %s}]
"""


class Two:
    """The clusters, and a user's command line on the first. `near` gives whole nodes, `far` single CPUs."""

    def __init__(self, near: Cluster, far: Cluster) -> None:
        self.near, self.far = near, far
        self.user = SlurmAgent(near, select={"gain": 5, "gain_share": 0.0}, slurm={"request_burst": 200})
        (self.user.place / "site.yaml").write_text(SITE)

    def penstock(self, *arguments: str) -> Any:
        """Run in the user's folder, which is where the jobs run then."""
        words = [*COMMAND, *arguments, "--json"]
        done = self.near.run_as("alice", words, env=self.user.environment, cwd=self.user.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["resources"]

    def task(self, name: str, amount: str = "6e9") -> str:
        path = self.user.place / name
        path.write_text(TASK % amount)
        return str(path)

    @property
    def site(self) -> str:
        return str(self.user.place / "site.yaml")

    def bag(self, number: int) -> Any:
        """A pass, made from another folder."""
        done = self.user.run("alice", "bags", str(number), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["bags"][0]

    def results(self) -> dict[int, list[str]]:
        """The clusters that each task ran on."""
        found = {}
        for path in self.user.folder.glob("out.*"):
            lines = [line.split() for line in path.read_text().splitlines()]
            found[int(path.suffix[1:])] = [cluster for _, cluster in lines]
        return found


@pytest.fixture(scope="module")
def clusters(sweep: None) -> Iterator[tuple[Cluster, Cluster]]:
    from conftest import folder_of

    more = ("PartitionName=short Nodes=n1 MaxTime=1 State=UP",)
    near = up(ClusterSpec(nodes=3, folder=folder_of("near"), name="near", extra=more))
    far = up(ClusterSpec(nodes=2, folder=folder_of("far"), name="far", join=near.folder, select="cons_tres"))
    yield near, far
    near.down()


@pytest.fixture
def two(clusters: tuple[Cluster, Cluster]) -> Iterator[Two]:
    it = Two(*clusters)
    yield it
    for cluster in clusters:
        cluster.run_as("root", ["scancel", "--partition=batch"])
    it.user.down()


def test_a_bag_over_two_clusters(two):
    task = two.task("t.yaml", "6e10")
    rows = {r["resource"]: r for r in two.penstock("select", task, "--site-file", two.site)}
    assert set(rows) == {"near/batch", "near/short", "far/batch"}
    assert (rows["near/batch"]["tx"], rows["far/batch"]["tx"]) == (20.0, 40.0)
    assert rows["near/short"]["why"] == "the time limit of 300 s exceeds its longest of 60 s"
    cheap = two.penstock("select", task, "--site-file", two.site, "--metric", "cost")
    assert cheap[0]["resource"] == "far/batch"
    assert cheap[0]["cost"] == pytest.approx(0.2 * 40 / 3600)
    sent = two.penstock("select", task, "--site-file", two.site, "-n", "16", "--submit")
    assert sum(r["tasks"] for r in sent) == 16
    assert {r["resource"] for r in sent if r["tasks"]} == {"near/batch", "far/batch"}
    number = sent[0]["bag"]
    done = until(lambda: (b := two.bag(number))["finished"] and b, "the bag")
    assert done["progress"] == {"waiting": 0, "running": 0, "done": 16, "failed": 0, "unplaced": 0, "homeless": 0}
    ran = until(lambda: len(r := two.results()) == 16 and r, "the results")
    assert all(len(places) == 1 for places in ran.values())
    assert {place for places in ran.values() for place in places} == {"near", "far"}
    # Both took two seconds and what Slurm adds; far was expected to take forty.
    rows = {r["resource"]: r for r in two.penstock("select", task, "--site-file", two.site)}
    assert rows["far/batch"]["tx"] < 40.0


@pytest.mark.long
def test_what_waits_moves_to_the_other_cluster(two):
    two.near.run_as("bob", ["sbatch", "-N3", "-t", "30", "--wrap", "sleep 1800"], check=True)
    hog = ["sbatch", "--parsable", "-N2", "--exclusive", "-t", "60", "--wrap", "sleep 3600"]
    hog_id = two.far.run_as("bob", hog, check=True).stdout.strip()
    task = two.task("t.yaml")
    sent = two.penstock("select", task, "--site-file", two.site, "-n", "8", "--submit")
    assert {r["resource"] for r in sent if r["tasks"]} == {"near/batch"}
    number = sent[0]["bag"]
    time.sleep(6.0)
    assert not two.bag(number)["moves"]
    two.far.run_as("bob", ["scancel", hog_id], check=True)
    moved = until(lambda: (b := two.bag(number))["moves"] and b, "a move")
    assert {m["to"] for m in moved["moves"]} == {"far/batch"}
    done = until(lambda: (b := two.bag(number))["finished"] and b, "the bag")
    assert done["progress"]["done"] == 8 and done["progress"]["failed"] == 0
    ran = until(lambda: len(r := two.results()) == 8 and r, "the results")
    assert all(places == ["far"] for places in ran.values())


@pytest.mark.long
def test_one_of_the_clusters_alone(two):
    task = two.task("t.yaml")
    (only,) = two.penstock("select", task, "--site-file", two.site, "-M", "far")
    assert only["resource"] == "far/batch"
    refused = two.user.run("alice", "select", task, "-M", "nowhere")
    assert refused.returncode == 2 and "there is no cluster 'nowhere'" in refused.stderr


@pytest.mark.long
def test_a_bag_is_cancelled_and_a_dead_cluster_is_left_out(two):
    task = two.task("t.yaml")
    two.near.run_as("bob", ["sbatch", "-N3", "-t", "30", "--wrap", "sleep 1800"], check=True)
    sent = two.penstock("select", task, "--site-file", two.site, "-M", "near", "-n", "4", "--submit")
    done = two.user.run("alice", "bags", str(sent[0]["bag"]), "--cancel")
    assert done.returncode == 0, done.stderr
    assert two.bag(sent[0]["bag"])["cancelled"]
    until(lambda: not two.near.run_as("alice", ["squeue", "-h", "--me"]).stdout.strip(), "the cancelled jobs")
    two.far.stop_controller()
    try:
        left = two.user.run("alice", "select", task, "--site-file", two.site, "--json")
        assert left.returncode == 0, left.stderr
        assert {r["resource"] for r in json.loads(left.stdout)["resources"]} == {"near/batch", "near/short"}
        assert "far" in left.stderr
    finally:
        two.far.start_controller()
