"""A pool over allocations of a real Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import SlurmAgent

from penstock_lab.cluster import Cluster
from waiting import until

pytest.importorskip("distributed")
pytestmark = pytest.mark.slurm

COMMAND = [sys.executable, "-m", "penstock"]
LIMIT = 120.0


class SlurmPool:
    """The pool of one ordinary user on a cluster; gone after `down`. `command`: Penstock's, of the Python that is to
    run scheduler and members."""

    def __init__(self, cluster: Cluster, who: str = "alice", command: Sequence[str] = COMMAND) -> None:
        self.cluster = cluster
        self.program = command
        self.who = who
        self.place = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/var/tmp"))
        user = cluster.user(who)
        os.chown(self.place, user.uid, user.gid)
        self.environment = {"PENSTOCK_POOL__FOLDER": str(self.place / "pools")}
        self.folder = self.place / "pools" / "main"

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.run_as(
            self.who, [*self.program, "pool", *words], env=self.environment, cwd=self.place, timeout=LIMIT
        )

    def json(self, *words: str) -> Any:
        done = self.command(*words, "--json")
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    def start(self) -> None:
        done = self.command("start", "--detach")
        assert done.returncode == 0, done.stderr

    def allocate(self, nodes: int, minutes: int = 10, *join: str) -> int:
        """Submit a job that joins the pool; its number."""
        script = f"#!/bin/bash\nexec {' '.join(self.program)} pool join {' '.join(join)}\n"
        file = self.place / "join.sh"
        file.write_text(script)
        words = ["sbatch", "--parsable", f"-N{nodes}", f"-t{minutes}", "--export=ALL", str(file)]
        done = self.cluster.run_as(self.who, words, env=self.environment, cwd=self.place)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def submit(self, lines: list[dict[str, Any]]) -> list[int]:
        file = self.place / "tasks.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self.json("submit", "--larger", "--file", str(file))["tasks"]

    def until(self, probe: Callable[[], Any]) -> Any:
        return until(probe, self.said, LIMIT)

    def said(self) -> str:
        files = [self.folder / "scheduler.log", *self.place.glob("slurm-*.out")]
        told = self.command("status", "--tasks").stdout
        return told + "\n".join(f"{f.name}: {f.read_text(errors='replace')[-1500:]}" for f in files if f.exists())

    def log(self) -> list[dict[str, Any]]:
        file = self.folder / "tasks.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def down(self) -> None:
        self.command("stop")
        self.cluster.run_as("root", ["scancel", f"--user={self.cluster.users[self.who]}"])
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[SlurmPool]:
    it = SlurmPool(cluster)
    yield it
    it.down()


@pytest.mark.long
def test_two_allocations_one_killed_half_way(pool: SlurmPool):
    pool.start()
    first, second = pool.allocate(2), pool.allocate(2)
    script = "until [ -e go ] || [ $PENSTOCK_TASK -lt 9 ]; do sleep 0.1; done; echo $PENSTOCK_TASK >> done; hostname"
    pool.submit([{"command": ["sh", "-c", script], "retries": 0}] * 24)

    def jobs_running() -> dict[str, int]:
        members = pool.json("status")["members"]
        return {str(j): sum(m["running"] for m in members if m["job"] == str(j)) for j in (first, second)}

    # Two nodes of two cores each: both allocations are full of tasks that wait.
    pool.until(lambda: jobs_running() == {str(first): 4, str(second): 4})
    pool.cluster.run_as("root", ["scancel", "-s", "KILL", str(first)])
    pool.until(lambda: jobs_running() == {str(first): 0, str(second): 4})
    (pool.place / "go").touch()
    pool.until(lambda: pool.json("status")["tasks"]["complete"] == 24)
    done = sorted(int(word) for word in (pool.place / "done").read_text().split())
    assert done == list(range(1, 25))  # every output there once
    ends = [line for line in pool.log() if line["op"] == "end"]
    assert sum(line["outcome"] == "complete" for line in ends) == 24
    assert sum(line["outcome"] == "lost" for line in ends) == 4  # what ran in the killed one, no more
    third = pool.allocate(1, 10, "--idle", "1s")
    pool.until(lambda: not pool.cluster.run_as("root", ["squeue", "-h", "-j", str(third)]).stdout.strip())
    pool.command("stop")
    pool.until(lambda: not pool.cluster.run_as("root", ["squeue", "-h"]).stdout.strip())  # its jobs end with it
    assert "the pool was stopped" in pool.said()


@pytest.mark.long
def test_it_leaves_before_the_time_limit_and_tasks_that_would_not_end_in_time_wait(pool: SlurmPool):
    pool.start()
    short = pool.allocate(1, 1)
    pool.submit(
        [
            {"command": ["sleep", "1000"], "retries": 0, "name": "untold"},
            {"command": ["sh", "-c", "echo $SLURM_JOB_ID"], "time": "5m", "name": "told"},
        ]
    )
    pool.until(lambda: pool.json("status")["tasks"]["running"] == 1)
    # The one that did not say how long it takes is cut off before the limit and waits again; the job has not failed.
    pool.until(lambda: any(line["op"] == "end" and line["outcome"] == "lost" for line in pool.log()))
    pool.until(lambda: not pool.cluster.run_as("root", ["squeue", "-h", "-j", str(short)]).stdout.strip())
    state = pool.cluster.run_as("root", ["sacct", "-nX", "-P", "-j", str(short), "-o", "State"]).stdout.strip()
    assert state == "COMPLETED", pool.said()
    long = pool.allocate(1, 10)
    pool.until(lambda: pool.json("status")["tasks"]["complete"] == 1)
    assert pool.command("logs", "told").stdout == f"{long}\n"


def instance(place: Path) -> Path:
    """Two levels of small tasks, and one task."""
    first, second = [f"a{i}" for i in range(12)], [f"b{i}" for i in range(6)]
    parents = {name: [] for name in first} | {name: [f"a{i}"] for i, name in enumerate(second)} | {"c": second}
    tasks = [{"name": name, "id": name, "parents": p, "children": []} for name, p in parents.items()]
    runs = [{"id": name, "runtimeInSeconds": 1.0, "coreCount": 1} for name in parents]
    workflow = {"specification": {"tasks": tasks}, "execution": {"tasks": runs}}
    file = place / "small.json"
    file.write_text(json.dumps({"name": "small", "schemaVersion": "1.5", "workflow": workflow}))
    return file


REAL = [
    pytest.param(name, marks=[pytest.mark.long, pytest.mark.timeout(900)])
    for name in ("montage-chameleon-2mass-01d-001.json", "seismology-chameleon-100p-001.json")
]


def real_instance(name: str) -> Path:
    """An instance of WfCommons, which is not part of this project: from the folder that is named."""
    file = Path(os.environ.get("PENSTOCK_WORKFLOWS", "/nowhere")) / name
    if not file.exists():
        why = f"PENSTOCK_WORKFLOWS must name a folder with {name}, from https://github.com/wfcommons/WfInstances"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return file


@pytest.mark.parametrize("name", [None, *REAL])
def test_a_workflow_whose_tasks_run_in_the_pool_with_one_allocation_killed(pool: SlurmPool, name: str | None):
    agent = SlurmAgent(pool.cluster)
    try:
        agent.start()
        pool.start()
        file = instance(pool.place) if name is None else real_instance(name)
        tasks = [t["id"] for t in json.loads(file.read_text())["workflow"]["specification"]["tasks"]]
        extra = pool.allocate(1)
        task = "until [ -e go ] || [ $PENSTOCK_TASK -lt 4 ]; do sleep 0.1; done; echo {id} >>outputs"
        words = ["submit", str(file), "--strategy", "asa", "--pool", "main", "--max-nodes", "2", "--cores", "2"]
        done = pool.cluster.run_as(
            pool.who,
            [*COMMAND, *words, "--time", "10m", "--task", task],
            env=pool.environment | agent.environment,
            cwd=pool.place,
        )
        assert done.returncode == 0, done.stderr
        run = int(done.stdout.removeprefix("Submitted workflow "))

        def stages() -> list[str]:
            """The job of each node of a stage that runs tasks."""
            return [m["job"] for m in pool.json("status")["members"] if m["job"] != str(extra) and m["running"]]

        pool.until(lambda: len(stages()) == 2)
        # Its script is killed: to Slurm the job has failed, where a cancelled one would be its owner's will.
        pool.cluster.run_as("root", ["scancel", "--batch", "-s", "KILL", stages()[0]])
        pool.until(lambda: not stages())
        (pool.place / "go").touch()
        ended = agent.finish(run, 600.0)
        assert ended["phase"] == "completed", pool.said()
        outputs = (pool.place / "outputs").read_text().split()
        assert sorted(outputs) == sorted(tasks)  # every one, once
        assert any(line["op"] == "end" and line["outcome"] == "lost" for line in pool.log())
    finally:
        agent.down()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_node_whose_network_is_cut_is_lost(isolated: Cluster):
    pool = SlurmPool(isolated)
    pool.environment["PENSTOCK_POOL__HOST"] = isolated.address
    cut = ""
    try:
        pool.start()
        for _ in range(2):
            pool.allocate(1)
        pool.until(lambda: len(pool.json("status")["members"]) == 2)
        script = "until [ -e go ]; do sleep 0.1; done; echo $PENSTOCK_TASK >>done"
        pool.submit([{"command": ["sh", "-c", script], "retries": 0}] * 4)
        pool.until(lambda: pool.json("status")["tasks"]["running"] == 4)
        cut = pool.json("status")["members"][0]["node"]
        isolated.cut_node(cut)
        pool.until(lambda: [m["node"] != cut for m in pool.json("status")["members"]] == [True])
        (pool.place / "go").touch()
        pool.until(lambda: pool.json("status")["tasks"]["complete"] == 4)
        # On the cut node, which still reaches this folder, a task may have gone on until its member noticed.
        assert set((pool.place / "done").read_text().split()) == {"1", "2", "3", "4"}
        assert sum(line["op"] == "end" and line["outcome"] == "lost" for line in pool.log()) == 2
    finally:
        if cut:
            isolated.mend_node(cut)
        pool.down()


@pytest.mark.long
def test_an_early_allocation_works_on_the_stage_before_it(pool: SlurmPool):
    agent = SlurmAgent(pool.cluster)
    try:
        agent.start()
        pool.start()
        task = "until [ -e go ]; do sleep 0.1; done; echo {id} $SLURM_JOB_ID >>outputs"
        words = ["submit", str(instance(pool.place)), "--strategy", "asa-naive", "--pool", "main", "--max-nodes", "2"]
        done = pool.cluster.run_as(
            pool.who,
            [*COMMAND, *words, "--cores", "2", "--time", "10m", "--task", task],
            env=pool.environment | agent.environment,
            cwd=pool.place,
        )
        assert done.returncode == 0, done.stderr

        def jobs() -> set[str]:
            return {m["job"] for m in pool.json("status")["members"] if m["running"]}

        # The second stage's job has begun, waits for the first one, and runs tasks of it meanwhile.
        pool.until(lambda: len(jobs()) >= 2)
        (pool.place / "go").touch()
        ended = agent.finish(int(done.stdout.removeprefix("Submitted workflow ")), 300.0)
        assert ended["phase"] == "completed", pool.said()
        rows = [line.split() for line in (pool.place / "outputs").read_text().splitlines()]
        assert sorted(row[0] for row in rows) == sorted(
            [f"a{i}" for i in range(12)] + [f"b{i}" for i in range(6)] + ["c"]
        )
        assert len({job for name, job in rows if name.startswith("a")}) >= 2
    finally:
        agent.down()


def test_another_user_cannot_use_it(pool: SlurmPool):
    pool.start()
    done = pool.cluster.run_as("bob", [*COMMAND, "pool", "status"], env=pool.environment)
    assert done.returncode == 4, done.stderr
