"""Nodes as real sites have them: cleared by a slow Epilog, suspended, with resources that are no devices."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import folder_of
from penstock_lab.cluster import Cluster, ClusterSpec, up
from waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180, func_only=True)]

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]
GRES = """\
NodeName=n1 Name=gpu Type=rtx File=/dev/null,/dev/zero
NodeName=n1 Name=VramPerGpu Count=48G Flags=CountOnly
NodeName=n2 Name=bandwidth Type=lustre Count=4G Flags=CountOnly
"""
CHAIN = """
name: chain
stages:
  - {name: a, nodes: 3, time: 1m, expect: 5s, run: sleep 5}
  - {name: b, nodes: 3, time: 1m, expect: 5s, run: sleep 5}
"""

BAG = """
name: bag
run: "true"
time: 5m
requirements: [{type: compute, amount: 6e10}]
"""


class Odd:
    """The cluster, and what one of its users says to it."""

    def __init__(self, cluster: Cluster, held: Path) -> None:
        self.cluster, self.held = cluster, held

    def said(self, *words: str) -> str:
        """What a command says, its notes too."""
        env, home = {"COLUMNS": "200"}, self.cluster.home("alice")
        done = self.cluster.run_as("alice", [*COMMAND, *words], env=env, cwd=home, timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout + ("" if "--json" in words else done.stderr)

    def write(self, name: str, text: str) -> None:
        """A file in the user's home."""
        words = ["sh", "-c", f"cat >{name} <<'END'\n{text}\nEND"]
        self.cluster.run_as("alice", words, cwd=self.cluster.home("alice"), check=True)

    def job(self, *words: str) -> str:
        return self.cluster.run_as("alice", ["sbatch", "--parsable", "-o", "/dev/null", *words], check=True).stdout

    def states(self) -> list[str]:
        said = self.cluster.run_as("root", ["scontrol", "-o", "show", "nodes"], check=True).stdout
        return [word[6:] for word in said.split() if word.startswith("State=")]


@pytest.fixture(scope="module")
def odd(sweep: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Odd]:
    """Three nodes. While a file is there the Epilog goes on. Nodes are suspended by hand alone."""
    made = tmp_path_factory.mktemp("odd")
    folder = folder_of("odd")
    held = folder / "held"
    (made / "gres.conf").write_text(GRES)
    (made / "epilog.sh").write_text(f"#!/bin/sh\nwhile [ -e {held} ]; do sleep 0.2; done\n")
    (made / "epilog.sh").chmod(0o755)
    cores = "CPUs=4 Sockets=2 CoresPerSocket=2"
    it = up(
        ClusterSpec(
            nodes=3,
            folder=folder,
            select="cons_tres",
            nodes_have=(
                f"{cores} Gres=gpu:rtx:2,VramPerGpu:no_consume:48G",
                f"{cores} Gres=bandwidth:lustre:4G",
                cores,
            ),
            extra=(
                "GresTypes=gpu,VramPerGpu,bandwidth",
                f"Epilog={folder}/etc/epilog.sh",
                "SuspendProgram=/bin/true",
                "ResumeProgram=/bin/true",
                "SuspendTime=86400",
                "SuspendTimeout=1",
                "ResumeTimeout=240",
            ),
            beside=(made / "gres.conf", made / "epilog.sh"),
        )
    )
    yield Odd(it, held)
    it.down()


def test_slots_on_nodes_with_resources_that_are_no_devices(odd: Odd) -> None:
    assert "3" in odd.said("slots")
    only = json.loads(odd.said("slots", "--gres", "VramPerGpu:24G", "--json"))["slots"]
    assert {tuple(row["nodes"]) for row in only} == {("n1",)}
    only = json.loads(odd.said("slots", "--gres", "bandwidth:lustre:1G", "--json"))["slots"]
    assert {tuple(row["nodes"]) for row in only} == {("n2",)}


def test_a_plan_says_which_nodes_lack_what_a_stage_asks_for(odd: Odd) -> None:
    odd.write("odd.yaml", CHAIN.replace("name: b, nodes: 3,", "name: b, nodes: 1, gres: 'VramPerGpu:24G',"))
    assert "stage b asks for --gres=VramPerGpu:24G, which is not to be had on n2, n3" in odd.said("plan", "odd.yaml")


def test_nodes_whose_epilog_runs_are_not_down(odd: Odd) -> None:
    odd.held.touch()
    try:
        # The long one first: onto a node whose Epilog runs, Slurm may put no other job.
        odd.job("-w", "n2", "-t1", "--wrap", "sleep 60")
        odd.job("-w", "n1", "-t1", "--wrap", "true")
        odd.job("-w", "n2", "-t1", "--wrap", "true")
        until(
            lambda: odd.states()[:2] == ["IDLE+COMPLETING", "MIXED+COMPLETING"],
            lambda: f"the Epilogs to run: {odd.states()}",
            30,
        )
        assert "down or drained" not in odd.said("slots")
        quotes = json.loads(odd.said("quote", "-N", "3", "-t", "5m", "--json"))["quotes"]
        assert quotes and quotes[-1]["f"] == 0
    finally:
        odd.held.unlink()
        odd.cluster.run_as("root", ["scancel", "--partition=batch"])
    until(lambda: odd.states() == ["IDLE"] * 3, "the nodes to be cleared", 30)


def test_suspended_nodes_are_there_for_jobs_to_come(odd: Odd) -> None:
    odd.cluster.run_as("root", ["scontrol", "update", "nodename=n[1-3]", "state=power_down"], check=True)
    until(lambda: odd.states() == ["IDLE+POWERED_DOWN"] * 3, "them to be suspended", 60)
    odd.write("chain.yaml", CHAIN)
    told = json.loads(odd.said("try", "chain.yaml", "--json"))
    assert 10 < told["cuts"][0]["makespan"]["median"] < 250, "the chain, and up to the 240 s until they are awake"
    slots = odd.said("slots")
    assert "3 nodes asleep" in slots and "4m later at most" in slots and "down or drained" not in slots
    quotes = json.loads(odd.said("quote", "-N", "3", "-t", "5m", "--json"))["quotes"]
    assert quotes and quotes[-1]["f"] == 0
    odd.write("bag.yaml", BAG)
    rows = json.loads(odd.said("select", "bag.yaml", "--json"))["resources"]
    assert {(row["resource"], row["tq"]) for row in rows} == {
        ("penstock/batch:rtx", 240),
        ("penstock/batch:plain", 240),
    }
