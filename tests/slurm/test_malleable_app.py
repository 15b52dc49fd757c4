"""Programs of the two-line way on real Slurm: they grow, shrink, and compute the bits of a run of fixed size."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from malleable import PYTHON, Agent, assert_nothing_left, until

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.timeout(300)]

HEAT = ("heat", "--rows=31", "--cols=29", "--steps=300")
NBODY = ("nbody", "--bodies=40", "--steps=300")


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    it = Agent(cluster)
    yield it
    it.stop()
    print(it.log.read_text()[-6000:])  # shown by pytest when the test failed
    shutil.rmtree(it.folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("program", "ahead", "method"),
    [
        (HEAT, "", "replace"),
        pytest.param(HEAT, "--ahead", "merge", marks=pytest.mark.long),
        pytest.param(NBODY, "--ahead", "replace", marks=pytest.mark.long),
        pytest.param(HEAT, "", "restart", marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_grows_and_shrinks(
    agent: Agent, cluster: Cluster, tmp_path: Path, program: tuple[str, ...], ahead: str, method: str
) -> None:
    name, *options = program
    fixed = [PYTHON, "-m", f"dmr.examples.{name}", *options, f"--out={tmp_path}/expected.npy"]
    subprocess.run(fixed, check=True, timeout=100)

    agent.start()
    home = cluster.home("alice")
    report, result = home / "app.jsonl", home / "app.npy"
    for left in (report, result):
        left.unlink(missing_ok=True)
    command = (
        f"exec {PYTHON} -m dmr.launch -n 2 -ppn 1 {PYTHON} -m dmr.examples.{name} {' '.join(options)} {ahead} "
        f"--min 2 --max 4 --step-seconds 0.05 --out {result} --report {report}"
    )
    submitted = cluster.run_as(
        "alice",
        ["sbatch", "--parsable", "-J", name, "-N2", "-t10", "-o", "app-%j.out", "--no-requeue"],
        input=f"#!/bin/bash\n{command}\n",
        env={**agent.ask("env"), "DMR_METHOD": method},
        check=True,
    )
    job = int(submitted.stdout)

    def output() -> str:
        return (home / f"app-{job}.out").read_text(errors="replace")

    until("it has grown", lambda: agent.resizes("expand", job), 90)
    command = ["sbatch", "--parsable", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 3"]
    cluster.run_as("bob", command, check=True)
    until("it has shrunk", lambda: agent.resizes("shrink", job), 90)

    def state() -> str:
        shown = cluster.run_as("root", ["scontrol", "-o", "show", "job", str(job)]).stdout
        return dict(part.split("=", 1) for part in shown.split() if "=" in part).get("JobState", "")

    until("it has ended", lambda: state() not in ("PENDING", "RUNNING", "COMPLETING"), 120)
    assert state() == "COMPLETED", output()
    assert np.load(result).tobytes() == np.load(tmp_path / "expected.npy").tobytes()
    events = [json.loads(line) for line in report.read_text().splitlines()]
    assert [e["size"] for e in events if e["event"] in ("start", "resized")][:3] == [2, 4, 2]
    assert_nothing_left(cluster)
