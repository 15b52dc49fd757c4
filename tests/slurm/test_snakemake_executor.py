"""Snakemake with Penstock's plug-in on a real Slurm: small jobs in a pool, beside its plug-in for Slurm; large ones as
jobs that are submitted ahead, and of which none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import SlurmAgent
from test_jobs_of_pools import PoolSite

from snakemakes import programs

pytest.importorskip("distributed")
COUNT = int(os.environ.get("PENSTOCK_TEST_SNAKEMAKE_JOBS", "30"))
LIMIT = 900.0 + 4.0 * COUNT
SHARE = 0.4
"""Of the time that the plug-in for Slurm takes."""
RESOURCES = ("--default-resources", "slurm_partition=batch", "slurm_account=penstock", "mem_mb=200", "runtime=5")
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900 + 2 * LIMIT, func_only=True)]


@pytest.fixture(scope="module")
def snakemake() -> Iterator[str]:
    """The program."""
    with programs() as found:
        yield str(found / "snakemake")


class Flow:
    """A folder of Alice's in which Snakemake is run."""

    def __init__(self, site: SlurmAgent, snakemake: str, folder: Path, text: str) -> None:
        self.site = site
        self.snakemake = snakemake
        self.folder = folder
        self.folder.mkdir()
        (folder / "Snakefile").write_text(text)
        user = site.cluster.user("alice")
        for each in (folder, folder / "Snakefile"):
            os.chown(each, user.uid, user.gid)

    def words(self, executor: str, *more: str) -> list[str]:
        return [self.snakemake, "-j", "1000", "--executor", executor, *RESOURCES, *more]

    def make(self, executor: str, *more: str, code: int = 0) -> tuple[float, str]:
        """How long it took, and what it said."""
        begun = time.monotonic()
        done = self.site.cluster.run_as(
            "alice", self.words(executor, *more), env=self.site.environment, cwd=self.folder, timeout=LIMIT
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said[-6000:]
        return time.monotonic() - begun, said

    def begin(self, *more: str) -> subprocess.Popen[str]:
        with (self.folder.parent / "snakemake.log").open("a") as log:
            begun: subprocess.Popen[str] = self.site.cluster.popen_as(
                "alice", self.words("penstock", *more), env=self.site.environment, cwd=self.folder,
                stdout=log, stderr=log,
            )  # fmt: skip
        return begun

    def said(self) -> str:
        return (self.folder.parent / "snakemake.log").read_text()

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def pooled(cluster) -> Iterator[PoolSite]:
    it = PoolSite(cluster)
    yield it
    it.down()


@pytest.fixture
def alone(cluster) -> Iterator[SlurmAgent]:
    it = SlurmAgent(cluster)
    yield it
    it.down()


MANY = """
rule all:
    input: expand("out/{i}", i=range(int(config["count"])))

rule one:
    output: "out/{i}"
    shell: "sleep 1; echo {wildcards.i} >> ran; echo {wildcards.i} > {output}"
"""


@pytest.mark.long
def test_jobs_of_a_second_take_less_than_half_of_the_time(pooled, snakemake):
    direct = Flow(pooled, snakemake, pooled.work / "direct", MANY)
    count = ("--config", f"count={COUNT}")
    usual, _said = direct.make("slurm", *count)
    pooled.join(4, int(LIMIT / 60) + 1)
    flow = Flow(pooled, snakemake, pooled.work / "pool", MANY)
    took, said = flow.make("penstock", *count)
    wanted = sorted(map(str, range(COUNT)))
    for each in (direct, flow):
        assert sorted(each.read("ran").split()) == wanted, "each ran once"
    assert "submitted" not in said
    print(f"{COUNT} jobs of one second: {usual:.0f} s by the plug-in for Slurm, {took:.1f} s in a pool of four nodes")
    assert took <= SHARE * usual


CHAIN = """
rule all:
    input: "c"

rule a:
    output: "a"
    resources: nodes=2
    shell: "sleep 8; echo $SLURM_JOB_NUM_NODES > {output}"

rule b:
    input: "a"
    output: "b"
    resources: nodes=2
    shell: "sleep 3; cat {input} > {output}; echo b >> {output}"

rule c:
    input: "b"
    output: "c"
    resources: nodes=2
    shell: "cat {input} > {output}; echo c >> {output}"
"""


def queue(site: SlurmAgent) -> list[str]:
    done = site.cluster.run_as("alice", ["squeue", "--me", "-h", "-o", "%i %T %r"], check=True)
    return list(done.stdout.splitlines())


def ended(site: SlurmAgent, since: float, count: int) -> list[dict[str, str]]:
    """The jobs once accounting knows their ends."""

    def over() -> Any:
        found = [job for job in site.accounting(since) if not job["State"].startswith("CANCELLED")]
        return found if len(found) == count and all(job["End"] not in ("Unknown", "") for job in found) else None

    found: list[dict[str, str]] = site.until(over, f"{count} jobs in accounting: {site.accounting(since)}")
    return found


@pytest.mark.long
def test_jobs_of_several_nodes_wait_in_the_queue_for_each_other(alone, snakemake):
    since = time.time()
    flow = Flow(alone, snakemake, alone.folder / "work", CHAIN)
    flow.make("penstock", "--penstock-pool", "none")
    assert flow.read("c").split() == ["2", "b", "c"]
    first, second, third = ended(alone, since, 3)
    for one, after in ((first, second), (second, third)):
        assert int(after["Submit"]) < int(one["End"]), "it was in the queue before"
        assert int(after["Start"]) - int(one["End"]) <= 3, "and started at once"
    assert not list((flow.folder / ".snakemake" / "penstock").glob("*")), "nothing is left lying about"


FAILING = CHAIN.replace("echo b >> {output}", "exit 3")


@pytest.mark.long
def test_behind_a_job_that_failed_nothing_is_left_in_the_queue(alone, snakemake):
    flow = Flow(alone, snakemake, alone.folder / "work", FAILING)
    _took, said = flow.make("penstock", "--penstock-pool", "none", code=1)
    assert "exit code 1" in said, "that of the Snakemake in the job"
    alone.until(lambda: not queue(alone), "an empty queue")
    assert not (flow.folder / "c").exists()


@pytest.mark.long
def test_interrupted_it_leaves_nothing_in_the_queue(alone, snakemake):
    flow = Flow(alone, snakemake, alone.folder / "work", CHAIN.replace("sleep 8", "sleep 300"))
    begun = flow.begin("--penstock-pool", "none")
    alone.until(lambda: len(queue(alone)) == 3, "three jobs")
    os.killpg(begun.pid, signal.SIGINT)
    begun.wait(60)
    alone.until(lambda: not queue(alone), "an empty queue")


@pytest.mark.long
def test_killed_and_started_again_it_takes_up_the_job_that_runs(alone, snakemake):
    since = time.time()
    flow = Flow(alone, snakemake, alone.folder / "work", CHAIN.replace("sleep 8", "sleep 25"))
    begun = flow.begin("--penstock-pool", "none", "--penstock-ahead", "0")
    alone.until(lambda: any("RUNNING" in line for line in queue(alone)), "a running job")
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait(60)
    flow.make("penstock", "--unlock")
    _took, said = flow.make("penstock", "--penstock-pool", "none", "--rerun-incomplete")
    assert "goes on where an earlier Snakemake left it" in said
    assert len(ended(alone, since, 3)) == 3, "each ran once"


BOUND = """
rule all:
    input: "b"

rule a:
    output: "a"
    resources: nodes=2
    shell: "sleep 8; head -c {size} /dev/zero > {{output}}"

rule b:
    input: "a"
    output: "b"
    resources: nodes=2, mem_mb=lambda wc, input: 100 + input.size // 1000000, ahead_mem_mb=300
    shell: "echo $SLURM_MEM_PER_NODE > {{output}}"
"""


@pytest.mark.parametrize(
    ("size", "asked", "said"),
    [pytest.param(1000, "300", "", marks=pytest.mark.long), (400_000_000, "500", "needs more")],
)
def test_what_an_input_decides_is_bounded_and_looked_at_again(alone, snakemake, size, asked, said):
    since = time.time()
    flow = Flow(alone, snakemake, alone.folder / "work", BOUND.format(size=size))
    _took, told = flow.make("penstock", "--penstock-pool", "none")
    assert flow.read("b").strip() == asked
    assert (said in told) and ("needs more" in told) == bool(said)
    first, *_, last = ended(alone, since, 2)
    assert (int(last["Submit"]) < int(first["End"])) == (not said), (
        "it was in the queue before, unless it was too small"
    )


@pytest.mark.long
def test_one_of_several_nodes_beside_a_pool(pooled, snakemake):
    pooled.join(2, 20)
    text = CHAIN.replace(
        'rule b:\n    input: "a"\n    output: "b"\n    resources: nodes=2', 'rule b:\n    input: "a"\n    output: "b"'
    )
    flow = Flow(pooled, snakemake, pooled.work / "work", text)
    since = time.time()
    flow.make("penstock")
    assert flow.read("c").split() == ["2", "b", "c"]
    assert len(ended(pooled, since, 2)) == 2, "the small one was a task"


MODEL = """
rule all:
    input: "out.txt"

rule train:
    output: "out.txt"
    resources: gpu=2, gpu_model="a100", runtime=5
    shell: "echo done > {output}"
"""


@pytest.mark.long
def test_gpus_of_a_model_are_asked_for_by_slurms_job_alone(pooled, snakemake):
    pooled.join(1, 10)
    pooled.wrap("sbatch", f'echo "$*" >>{pooled.folder}/asked')
    flow = Flow(pooled, snakemake, pooled.work / "work", MODEL)
    _took, said = flow.make("penstock", code=1)  # these nodes have none
    assert "Requested GRES option unsupported by configured SelectType plugin" in said
    (asked,) = (pooled.folder / "asked").read_text().splitlines()
    assert "--gpus=a100:2" in asked.split()
    assert not (flow.folder / "out.txt").exists(), "the pool's member has no A100"


EXTRA = """
rule all:
    input: "out.txt"

rule long:
    output: "out.txt"
    resources: nodes=2, runtime=5, slurm_extra="--comment=project7"
    shell: "sleep 60; echo done > {output}"
"""


@pytest.mark.long
def test_slurm_extra_may_not_take_away_what_a_job_is_found_again_by(alone, snakemake):
    since = time.time()
    flow = Flow(alone, snakemake, alone.folder / "work", EXTRA)
    _took, said = flow.make("penstock", "--penstock-pool", "none", code=1)
    assert "slurm_extra may not have --comment: the executor says it itself, leave it out" in said
    assert "Traceback" not in said
    assert not alone.accounting(since)
