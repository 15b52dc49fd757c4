"""Snakemake with its own plug-in for Slurm, through the front programs: every output comes once, also while two of ten
calls fail, and a pool spares slurmctld all of it."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from agents import Desk, SlurmAgent
from flaky import flaky
from test_jobs_of_pools import PoolSite

from penstock_lab.cluster import Cluster
from snakemakes import programs

COUNT = int(os.environ.get("PENSTOCK_TEST_SNAKEMAKE_JOBS", "60"))
LIMIT = 300.0 + 30.0 * COUNT
MINUTES = int(LIMIT / 60) + 1
"""Of the allocation whose nodes are in the pool: to its end."""
pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(600 + 2 * LIMIT, func_only=True)]

SNAKEFILE = """\
count = int(config["count"])

rule all:
    input: expand("out/{i}", i=range(count))

rule one:
    output: "out/{i}"
    resources: runtime=5, mem_mb=900
    shell: "sleep 1; echo {wildcards.i} >> ran; echo {wildcards.i} > {output}"
"""


@pytest.fixture(scope="module")
def snakemake() -> Iterator[str]:
    """The program."""
    with programs() as found:
        yield str(found / "snakemake")


def make_all(
    site: SlurmAgent, snakemake: str, folder: Path, partition: str, path: str, more: Mapping[str, str]
) -> float:
    """Run the workflow as Alice in a new folder of hers; how many seconds it took. Every output is there, and was
    made once."""
    cluster = site.cluster
    user = cluster.user("alice")
    folder.mkdir()
    (folder / "Snakefile").write_text(SNAKEFILE)
    for each in (folder, folder / "Snakefile"):
        os.chown(each, user.uid, user.gid)
    resources = ["--default-resources", f"slurm_partition={partition}", "slurm_account=penstock"]
    words = [snakemake, "-j", "100", "--executor", "slurm", *resources, "--config", f"count={COUNT}"]
    begun = time.monotonic()
    env = {**site.environment, **more, "PATH": path}
    done = cluster.run_as("alice", words, env=env, cwd=folder, timeout=LIMIT)
    took = time.monotonic() - begun
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    wanted = sorted(map(str, range(COUNT)))
    assert sorted(file.name for file in (folder / "out").iterdir()) == wanted
    assert sorted((folder / "ran").read_text().split()) == wanted, "each ran once"
    return took


def last_job(cluster: Cluster) -> int:
    """The number of a job that is submitted now: every later one is greater."""
    return int(cluster.run_as("alice", ["sbatch", "--parsable", "-o/dev/null", "--wrap=true"], check=True).stdout)


# -- through -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(cluster: Cluster) -> Iterator[SlurmAgent]:
    """Alice without an agent: nothing but the front programs."""
    it = SlurmAgent(cluster)
    yield it
    it.down()


PROGRAMS = ("sbatch", "squeue", "sacct")


def test_nothing_is_lost_or_doubled_while_two_of_ten_calls_fail(alone: SlurmAgent, snakemake: str):
    cluster = alone.cluster
    fronts = Desk(alone).say("penstock", "shim", "--path").strip()
    flaky(alone, *PROGRAMS)
    path = ":".join([fronts, str(alone.place / "flaky"), cluster.user_env("alice")["PATH"]])
    before = last_job(cluster)
    took = make_all(alone, snakemake, alone.folder / "work", "batch", path, {"PENSTOCK_SHIM_PATIENCE": "200"})
    calls = flaky(alone, *PROGRAMS)
    print(f"{COUNT} jobs through, two of ten calls failing: {took:.0f} s, calls of Slurm's own programs: {calls}")
    # As many jobs as outputs: what had come in before its answer was lost was found, and nothing was cancelled.
    assert last_job(cluster) - before - 1 == COUNT
    assert calls["sbatch"] > COUNT, "none of them failed"


# -- in a pool ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def pooled(cluster: Cluster) -> Iterator[PoolSite]:
    it = PoolSite(cluster)
    yield it
    it.down()


def test_a_pool_loses_or_doubles_nothing_while_two_of_ten_calls_fail(pooled: PoolSite, snakemake: str):
    cluster = pooled.cluster
    pooled.join(4, MINUTES)
    flaky(pooled, *PROGRAMS)
    path = ":".join([pooled.fronts, str(pooled.place / "flaky"), cluster.user_env("alice")["PATH"]])
    before = last_job(cluster)
    took = make_all(pooled, snakemake, pooled.work / "work", "penstock", path, {"PENSTOCK_SHIM_PATIENCE": "200"})
    calls = flaky(pooled, *PROGRAMS)
    print(f"{COUNT} jobs in a pool, two of ten calls failing: {took:.0f} s, calls of Slurm's own programs: {calls}")
    assert last_job(cluster) == before + 1
    assert calls["sbatch"] == 0


# What sbatch, squeue and scontrol ask of slurmctld, and sacct of slurmdbd.
SUBMISSIONS = ("REQUEST_SUBMIT_BATCH_JOB",)
LOOKS = ("REQUEST_JOB_INFO", "REQUEST_JOB_INFO_SINGLE", "REQUEST_JOB_USER_INFO", "REQUEST_JOB_STATE")
ACCOUNTING = ("DBD_GET_JOBS_COND",)


def requests(cluster: Cluster) -> Counter[str]:
    """How often Slurm was asked so far, by the kind of the request."""
    text = cluster.run_as("root", ["sdiag"], check=True).stdout.partition("by user")[0]
    text += cluster.run_as("root", ["sacctmgr", "show", "stats"], check=True).stdout
    found: Counter[str] = Counter()
    for name in (*SUBMISSIONS, *LOOKS, *ACCOUNTING):
        if counts := re.search(rf"\b{name}\s.*?count:\s*(\d+)", text):
            found[name] = int(counts[1])
    return found


def test_in_a_pool_slurm_is_asked_nothing_of_its_jobs(pooled: PoolSite, snakemake: str):
    cluster = pooled.cluster
    plain = cluster.user_env("alice")["PATH"]
    before = requests(cluster)
    direct = make_all(pooled, snakemake, pooled.work / "direct", "batch", plain, {})
    cost = requests(cluster) - before
    # Where nodes are given whole, eight nodes run as many jobs at once as four members of two cores.
    pooled.join(4, MINUTES)
    pooled.start()
    flaky(pooled, *PROGRAMS)
    path = f"{pooled.fronts}:{pooled.place / 'flaky'}:{plain}"
    before = requests(cluster)
    took = make_all(pooled, snakemake, pooled.work / "pool", "penstock", path, {})
    whole = requests(cluster) - before
    calls = flaky(pooled, *PROGRAMS)
    print(f"{COUNT} jobs direct: {direct:.0f} s, {dict(cost)}")
    print(f"the same in a pool: {took:.0f} s, {calls}, with what the agent asks {dict(whole)}")
    assert cost["REQUEST_SUBMIT_BATCH_JOB"] == COUNT
    assert whole["REQUEST_SUBMIT_BATCH_JOB"] == 0
    # Calls of Slurm's own programs: what the agent looks at for all who ask it counts apart.
    assert sum(calls.values()) <= 0.01 * sum(cost.values()), (calls, cost)
