"""Members of a pool where the site, or who submits, has settings that reach into their allocation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_pool import SlurmPool

from penstock_lab.cluster import Cluster

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300, func_only=True)]
ANOTHER = {"extra": ("KillOnBadExit=1", "WaitTime=5")}
# The first time only: what was lost runs again.
KILL = """
mkdir once || exit 0
member=$PPID
until tr '\\0' ' ' </proc/$member/cmdline | grep -q 'pool join'; do member=$(ps -o ppid= -p $member); done
kill -9 $member
"""


@pytest.fixture
def pool(another: Cluster) -> Iterator[SlurmPool]:
    it = SlurmPool(another)
    yield it
    it.down()


@pytest.mark.long_elsewhere
def test_all_nodes_join_from_within_a_step_without_gpus_and_go_on_when_one_is_killed(pool: SlurmPool):
    pool.start()
    file = pool.place / "join.sh"
    file.write_text(f"#!/bin/bash\nexec {' '.join(pool.program)} pool join\n")
    words = ["srun", "-n1", "sbatch", "--parsable", "-N3", "-t10", str(file)]
    environment = {**pool.environment, "CUDA_VISIBLE_DEVICES": "NoDevFiles"}
    done = pool.cluster.run_as("alice", words, env=environment, cwd=pool.place)
    assert done.returncode == 0, done.stderr
    pool.until(lambda: len(pool.json("status")["members"]) == 3)
    assert [member["gpus"] for member in pool.json("status")["members"]] == [0, 0, 0]
    pool.submit([{"command": ["sh", "-c", KILL], "retries": 0, "name": "killer"}])
    pool.until(lambda: pool.json("status")["tasks"]["complete"] == 1)
    pool.submit([{"command": ["sleep", "8"], "cores": 2, "name": f"t{i}", "retries": 0} for i in range(2)])
    pool.until(lambda: pool.json("status")["tasks"]["complete"] == 3)
    assert len(pool.json("status")["members"]) == 2
    ends = [line["outcome"] for line in pool.log() if line["op"] == "end"]
    assert sorted(ends) == ["complete", "complete", "complete", "lost"], pool.said()
    state = pool.cluster.run_as("root", ["squeue", "-h", "-j", done.stdout.strip(), "-o", "%T"]).stdout.strip()
    assert state == "RUNNING"
