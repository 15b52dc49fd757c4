"""A graph of three levels under Snakemake, while other users fill the queue: with its plug-in for Slurm, and with
Penstock's, by jobs that are submitted ahead and in a pool. In turns, the same rivals in each of a round."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from test_jobs_of_pools import PoolSite
from test_snakemake_executor import Flow

from conftest import empty
from penstock_lab.cluster import Cluster
from penstock_lab.intervals import ratio_of_means
from snakemakes import programs

pytest.importorskip("distributed")
ROUNDS = int(os.environ.get("PENSTOCK_TEST_SNAKEMAKE_ROUNDS", "2"))
"""Ten for figures with an interval: eight minutes each."""
WAITING = 5
"""Jobs of a rival that wait at any time."""
NODES = 4
pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(600 + 1500 * ROUNDS, func_only=True)]

LEVELS = """
rule all:
    input: "third"

rule first:
    output: "first.{i}"
    shell: "echo 1 $(date +%s.%N) >> times; sleep 10; echo 1 $(date +%s.%N) >> times; touch {output}"

rule second:
    input: expand("first.{i}", i=range(4))
    output: "second.{i}"
    shell: "echo 2 $(date +%s.%N) >> times; sleep 10; echo 2 $(date +%s.%N) >> times; touch {output}"

rule third:
    input: expand("second.{i}", i=range(2))
    output: "third"
    shell: "echo 3 $(date +%s.%N) >> times; sleep 10; echo 3 $(date +%s.%N) >> times; touch {output}"
"""


class Took(NamedTuple):
    """Seconds: from the first submission to the end, and between the levels in all."""

    makespan: float
    between: float


@contextmanager
def rivals(cluster: Cluster, seed: int) -> Iterator[None]:
    """Bob always has some jobs that wait."""
    over = threading.Event()
    draw = random.Random(seed)

    def submit() -> None:
        while not over.is_set():
            queue = cluster.run_as("bob", ["squeue", "--me", "-h", "-t", "PD", "-o", "%i"]).stdout.split()
            for _ in range(WAITING - len(queue)):
                seconds, nodes = draw.randint(10, 30), draw.choice([1, 1, 2])
                words = ["sbatch", "-o/dev/null", f"-N{nodes}", "-t1", f"--wrap=sleep {seconds}"]
                cluster.run_as("bob", words)
            over.wait(2)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        end = time.monotonic() + 120
        while len(cluster.run_as("bob", ["squeue", "--me", "-h", "-t", "PD"]).stdout.splitlines()) < WAITING - 2:
            assert time.monotonic() < end
            time.sleep(0.5)
        yield
    finally:
        over.set()
        thread.join()
        empty(cluster)


def between(times: Path) -> float:
    seen: dict[int, list[float]] = {}
    for line in times.read_text().splitlines():
        level, instant = line.split()
        seen.setdefault(int(level), []).append(float(instant))
    return sum(min(seen[level + 1]) - max(seen[level]) for level in (1, 2))


def once(cluster: Cluster, snakemake: str, how: str, seed: int) -> Took:
    site = PoolSite(cluster)
    try:
        flow = Flow(site, snakemake, site.work / "flow", LEVELS)
        with rivals(cluster, seed):
            begun = time.monotonic()
            if how == "slurm":
                flow.make("slurm")
            elif how == "ahead":
                flow.make("penstock", "--penstock-pool", "none")
            else:
                for _ in range(NODES):
                    site.ask_for(1, 20)  # longer than what a job is given (runtime=5)
                flow.make("penstock")
            return Took(time.monotonic() - begun, between(flow.folder / "times"))
    finally:
        site.down()
        empty(cluster)


@pytest.fixture(scope="module")
def snakemake() -> Iterator[str]:
    with programs() as found:
        yield str(found / "snakemake")


def test_levels_do_not_wait_for_the_queue_again(cluster, snakemake):
    for node in [f"n{i}" for i in range(NODES + 1, 9)]:
        cluster.run_as("root", ["scontrol", "update", f"nodename={node}", "state=drain", "reason=few"], check=True)
    took: dict[str, list[Took]] = {"slurm": [], "ahead": [], "pool": []}
    try:
        for number in range(ROUNDS):
            ways = list(took)
            random.Random(number).shuffle(ways)
            for how in ways:
                took[how].append(once(cluster, snakemake, how, number))
                print(f"round {number}, {how}: {took[how][-1]}", flush=True)
    finally:
        for node in [f"n{i}" for i in range(NODES + 1, 9)]:
            cluster.run_as("root", ["scontrol", "update", f"nodename={node}", "state=resume"])
    for one, other in (("ahead", "slurm"), ("pool", "slurm"), ("pool", "ahead")):
        for what in ("makespan", "between"):
            these, those = ([getattr(each, what) for each in took[how]] for how in (one, other))
            print(f"{what}, {one} over {other}: {ratio_of_means(these, those).told()}")
    plain = took["slurm"]
    for how in ("ahead", "pool"):
        assert sum(one.between for one in took[how]) <= 0.25 * sum(one.between for one in plain)
        assert sum(one.makespan for one in took[how]) <= 0.6 * sum(one.makespan for one in plain)
