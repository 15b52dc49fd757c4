"""Selection where a partition's jobs give way to others': what that costs is learned, and no task is lost by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import COMMAND, SlurmAgent

from penstock_lab.cluster import Cluster, ClusterSpec, up
from waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(480, func_only=True)]

CONF = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "JobRequeue=1",
    "PartitionName=spare Nodes=n[1-2] PriorityTier=0 PreemptMode=REQUEUE MaxTime=60 State=UP",
)
TASK = """
name: md
run: sleep 6 && echo done >>out.$PENSTOCK_TASK
time: 5m
partition: spare
requirements: [{type: compute, form: {isa: x86}, amount: 6e9}]
"""


@pytest.fixture
def preempting(new_folder: Callable[[str], Path]) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=2, folder=new_folder("preempting"), extra=CONF))
    yield it
    it.down()


def test_what_preemption_costs_is_learned_and_no_task_is_lost(preempting: Cluster) -> None:
    user = SlurmAgent(preempting, select={"gain": 5, "gain_share": 0.0}, slurm={"request_burst": 200})
    try:
        (user.place / "site.yaml").write_text("defaults: {base: 1 GHz}\n")
        (user.place / "t.yaml").write_text(TASK)

        def penstock(*words: str) -> str:
            done = preempting.run_as("alice", [*COMMAND, *words], env=user.environment, cwd=user.folder)
            assert done.returncode == 0, done.stderr
            return str(done.stdout)

        words = ("select", str(user.place / "t.yaml"), "--site-file", str(user.place / "site.yaml"), "-n", "4")
        before = json.loads(penstock(*words, "--json"))["resources"][0]
        sent = json.loads(penstock(*words, "--submit", "--json"))["resources"]
        bag = next(row["bag"] for row in sent if row["tasks"])

        def states() -> list[str]:
            rows = preempting.run_as("alice", ["squeue", "-h", "-r", "--me", "-o", "%T"]).stdout
            return rows.split()

        until(lambda: states().count("RUNNING") == 2, "two tasks run")
        rival = ["sbatch", "-N2", "-t1", "-o", "/dev/null", "-p", "batch", "--wrap", "sleep 2"]
        preempting.run_as("bob", rival, check=True)
        until(lambda: states().count("RUNNING") == 0, "they have given way")
        until(
            lambda: json.loads(penstock("bags", str(bag), "--json"))["bags"][0]["progress"]["done"] == 4,
            "all tasks are done",
            120,
        )
        written = {path.name: path.read_text().split() for path in user.folder.glob("out.*")}
        assert len(written) == 4 and all(lines == ["done"] for lines in written.values()), written  # none twice
        said = penstock(*words, "--explain")
        assert "preempted once in" in said and "were preempted)" in said, said
        after = json.loads(penstock(*words, "--json"))["resources"][0]
        assert after["ttc"] > after["tq"] + after["tx"] and before["ttc"] == before["tq"] + before["tx"]
    finally:
        user.down()
