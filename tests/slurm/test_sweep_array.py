"""`penstock simulate sweep --slurm-array` on a real Slurm."""

from __future__ import annotations

import csv
import os
import sys
import time
from pathlib import Path

import pytest

from penstock_lab.cluster import Cluster
from penstock_lab.sim.swfout import write_workload
from penstock_lab.sim.workloads import generate

pytestmark = pytest.mark.slurm

SWEEP = [sys.executable, "-P", "-m", "penstock", "simulate", "sweep"]


@pytest.fixture
def home(cluster: Cluster) -> Path:
    """A folder of alice's that her jobs can write to, with a log in it."""
    folder = cluster.home("alice") / "sweep it"
    folder.mkdir(exist_ok=True)
    write_workload(folder / "l.swf", generate("lublin", 200, 16, 1, 0.8), 16)
    user = cluster.user("alice")
    for path in (folder, folder / "l.swf"):
        os.chown(path, user.uid, user.gid)
    return folder


def wait_for(it: Cluster, job: int, limit: float = 120.0) -> str:
    """Wait until the job has ended, and tell its state."""
    deadline = time.monotonic() + limit
    while True:
        said = it.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"]).stdout.split()
        if said and not {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"} & set(said):
            return said[0]
        assert time.monotonic() < deadline, it.run_as("root", ["squeue"]).stdout
        time.sleep(0.2)


def sweep(it: Cluster, folder: Path, *arguments: str):
    options = ["--log", str(folder / "l.swf"), "--estimates", "f:3", "--out", str(folder / "r.csv")]
    return it.run_as("alice", [*SWEEP, *options, *arguments])


def test_an_array_computes_what_one_process_computes(cluster, home):
    axes = [word for seed in ("1", "2", "3", "4", "5") for word in ("--seed", seed)]
    done = sweep(cluster, home, *axes, "--slurm-array", "3", "--sbatch=--time=5")
    assert done.returncode == 0, done.stderr
    words = done.stdout.replace(":", " ").split()
    assert done.stdout.startswith("5 combinations: job array "), done.stdout
    array, merge = int(words[4]), int(words[words.index("then") + 2])
    assert wait_for(cluster, merge) == "COMPLETED", [p.read_text() for p in home.glob("r.csv.parts/*.log")]
    assert wait_for(cluster, array) == "COMPLETED"
    with (home / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row["error"] for row in rows] == [""] * 5
    assert len(list(home.glob("r.csv.parts/*.json"))) == 5
    assert {path.name for path in home.glob("r.csv.parts/*.log")} == {
        "task-0.log", "task-1.log", "task-2.log", "merge.log",
    }  # fmt: skip
    (home / "r.csv").unlink()
    again = sweep(cluster, home, *axes)
    assert again.stdout.startswith("5 combinations, 5 of them computed before\n"), again.stderr
    apart = home / "apart.csv"
    alone = cluster.run_as(
        "alice", [*SWEEP, "--log", str(home / "l.swf"), "--estimates", "f:3", *axes, "--out", str(apart)]
    )
    assert alone.returncode == 0, alone.stderr
    with apart.open(newline="") as file:
        assert [row["sha256"] for row in csv.DictReader(file)] == [row["sha256"] for row in rows]


@pytest.mark.long
def test_a_share_that_fails_is_a_row_and_a_failed_merge(cluster, home):
    """The array's failure does not keep the merge from running, and sbatch's own refusal is one line."""
    done = sweep(cluster, home, "--log", str(home / "absent.swf"), "--procs", "16", "--slurm-array", "2")
    assert done.returncode == 0, done.stderr
    merge = int(done.stdout.replace(":", " ").split("then job ")[1].split()[0])
    assert wait_for(cluster, merge) == "FAILED"
    with (home / "r.csv").open(newline="") as file:
        errors = [row["error"] for row in csv.DictReader(file)]
    assert errors[0] == ""
    assert errors[1].endswith("No such file or directory")
    assert "1 of 2 combinations failed" in (home / "r.csv.parts" / "merge.log").read_text()
    refused = sweep(cluster, home, "--slurm-array", "2", "--sbatch=--partition=none")
    assert refused.returncode == 1
    assert "sbatch refused" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
