"""The same work through Parsl and PSI/J, while other users fill the queue: by their own way to Slurm, and in a pool.
In turns, the same rivals in each of a round."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from test_pool import SlurmPool
from test_python_doors import python, run
from test_snakemake_rivals import rivals

from conftest import empty
from penstock_lab.cluster import Cluster
from penstock_lab.intervals import ratio_of_means

__all__ = ["python"]

pytest.importorskip("distributed")
ROUNDS = int(os.environ.get("PENSTOCK_TEST_DOORS_ROUNDS", "1"))
NODES = 4
pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(600 + 1200 * ROUNDS, func_only=True)]

PARSL = """
import os, sys, time
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SingleNodeLauncher
from parsl.providers import SlurmProvider

@parsl.python_app
def work(i, *after):
    import time
    time.sleep(5)
    return i

def theirs():
    provider = SlurmProvider(
        partition="batch", walltime="00:20:00", init_blocks=1, max_blocks=4, launcher=SingleNodeLauncher(),
        worker_init="export PATH=" + os.path.dirname(sys.executable) + ":$PATH"
    )
    return HighThroughputExecutor(address="127.0.0.1", max_workers_per_node=2, provider=provider)

def ours():
    from penstock.tools.parsl import PenstockExecutor
    return PenstockExecutor("main", task={"cores": 1})

begun = time.monotonic()
if WAY == "ours":
    allocate()
with parsl.load(Config(executors=[globals()[WAY]()], strategy="htex_auto_scale", strategy_period=1)):
    first = [work(i) for i in range(24)]
    middle = work(24, *first)
    rest = [work(i, middle) for i in range(24)]
    assert [one.result() for one in rest] == list(range(24))
    print(time.monotonic() - begun, flush=True)
"""
"""Twenty-four apps of 5 s, one that needs all of them, twenty-four that need that one."""

PSIJ = """
import time
from datetime import timedelta
from psij import Job, JobAttributes, JobExecutor, JobSpec

begun = time.monotonic()
if WAY == "ours":
    allocate()
executor = JobExecutor.get_instance("penstock" if WAY == "ours" else "slurm")
queue = "penstock" if WAY == "ours" else "batch"
for stage in range(2):
    jobs = []
    for _ in range(16):
        attributes = JobAttributes(queue_name=queue, duration=timedelta(minutes=1))
        spec = JobSpec(executable="/bin/sleep", arguments=["5"], attributes=attributes)
        jobs.append(Job(spec))
        executor.submit(jobs[-1])
    for job in jobs:
        state = job.wait().state
        assert str(state).endswith("COMPLETED"), state
print(time.monotonic() - begun, flush=True)
"""
"""Sixteen jobs of 5 s, and sixteen after them."""

ALLOCATE = """
import subprocess
WAY = {way!r}
def allocate():
    for _ in range({nodes}):
        words = ["sbatch", "-N1", "-t20", "-o/dev/null", "join.sh"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
"""


@pytest.fixture
def few(cluster: Cluster) -> Iterator[Cluster]:
    """Four nodes, of which the rivals take their share."""
    nodes = ",".join(f"n{i}" for i in range(NODES + 1, 9))
    cluster.run_as("root", ["scontrol", "update", f"nodename={nodes}", "state=drain", "reason=few"], check=True)
    yield cluster
    cluster.run_as("root", ["scontrol", "update", f"nodename={nodes}", "state=resume"])


def once(cluster: Cluster, python: str, program: str, way: str, seed: int) -> float:
    """How long it took (s), its allocations' waits among it."""
    pool = SlurmPool(cluster, command=[python, "-m", "penstock"])
    try:
        pool.start()
        (pool.place / "join.sh").write_text(f"#!/bin/bash\nexec {' '.join(pool.program)} pool join\n")
        with rivals(cluster, seed):
            return float(run(pool, ALLOCATE.format(way=way, nodes=NODES) + program).split()[-1])
    finally:
        pool.down()
        empty(cluster)


@pytest.mark.parametrize(("tool", "program"), [("Parsl", PARSL), ("PSI/J", PSIJ)])
def test_work_that_waits_once(few: Cluster, python: str, tool: str, program: str):
    """What must hold is that all work is done, in both ways; which of them is quicker is told, not asserted."""
    took: dict[str, list[float]] = {"theirs": [], "ours": []}
    for number in range(ROUNDS):
        ways = list(took)
        random.Random(number).shuffle(ways)
        for way in ways:
            took[way].append(once(few, python, program, way, number))
            print(f"{tool}, round {number}, {way}: {took[way][-1]:.0f} s", flush=True)
    assert len(took["ours"]) == len(took["theirs"]) == ROUNDS
    print(f"{tool}: ours over theirs {ratio_of_means(took['ours'], took['theirs']).told()}")
