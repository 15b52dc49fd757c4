"""Stages of one workflow in partitions of their own, on real Slurm: one stage may start in any of several."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agents import SlurmAgent

from conftest import folder_of
from penstock_lab.cluster import Cluster, ClusterSpec, up

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300, func_only=True)]

PARTITIONS = ("PartitionName=short Nodes=n1 MaxTime=2", "PartitionName=other Nodes=n3")
FLOW = """
name: t
partition: batch
stages:
- {name: first, nodes: 1, time: 60, expect: 3, run: sleep 3}
- {name: either, nodes: 1, time: 60, expect: 1, run: sleep 1, partition: "short,other"}
- {name: long, nodes: 1, time: 10m, expect: 1, run: sleep 1, sbatch: "-p short,other", after: [first]}
- {name: last, nodes: 1, time: 60, expect: 1, run: sleep 1, after: [either, long]}
"""


@pytest.fixture
def parted(need_slurm: object, sweep: None) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=3, folder=folder_of("parts"), extra=PARTITIONS))
    yield it
    it.down()


@pytest.mark.parametrize("strategy", ["eager", pytest.param("auto", marks=pytest.mark.long)])
def test_a_stage_starts_where_there_is_room_first(parted: Cluster, strategy: str) -> None:
    """All of `short` is taken, and what is too long for it may name it beside another, as with sbatch."""
    parted.run_as("bob", ["sbatch", "-w", "n1", "-t9", "--wrap", "sleep 300"], check=True)
    agent = SlurmAgent(parted)
    try:
        agent.start()
        run = agent.finish(agent.submit(FLOW, strategy))
        assert run["phase"] == "completed", agent.said()
        where = ["sacct", "-nXP", "-j", ",".join(str(s["job"]) for s in run["stages"]), "-o", "Partition,NodeList"]
        rows = parted.run_as("alice", where, check=True).stdout.split()
        assert [row.partition("|")[0] for row in rows] == ["batch", "other", "other", "batch"], rows
    finally:
        agent.down()
