"""After `dmr.size` and in a stage narrower than its job, srun and every mpiexec start the same ranks on the same nodes.

Nodes of unequal size, in jobs that say their tasks in every way; they are resized here by hand, as the agent does it.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from agents import SlurmAgent
from malleable import mergeable, until

import dmr
from mpi_libraries import LIBRARIES, ONE_HOST, python_of
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.long_elsewhere, pytest.mark.timeout(300)]

ANOTHER = {"isolated": True, "select": "cons_tres", "nodes_have": ("CPUs=4", "CPUs=4", "CPUs=2", "CPUs=8")}
MPIEXEC = str(Path(sys.executable).parent / "mpiexec")
OPEN_MPI = next(library for library in LIBRARIES if library.name == "openmpi5")

# Each line of the result: what was done, what started the ranks, and how many are on each node.
COUNTED = """
export PYTHONPATH={home} DMR_AGENT=127.0.0.1:1
count() {{
    echo "$1 $2 $(shift 2; timeout 60 "$@" bash -c 'echo "rank-on $SLURMD_NODENAME"' </dev/null 2>>errors |
        tr -d '\\0' | grep -o 'rank-on [a-z0-9]*' | sort | uniq -c | awk '{{printf "%s=%s ", $3, $1}}')" >>counts
}}
each() {{
    count "$1" srun srun
    for mpiexec in {mpiexecs}; do count "$1" "$mpiexec" env {settings} "$mpiexec" ${{bind[$mpiexec]-}}; done
    echo "$1 said $(env | grep -E '^SLURM_(TASKS_PER_NODE|JOB_CPUS_PER_NODE)=' | sort | tr '\\n' ' ')" >>counts
}}
declare -A bind
bind[{open_mpi}]="--bind-to none"
"""


def begun(mpiexecs: list[str]) -> str:
    settings = " ".join(f"{name}={value}" for name, value in ONE_HOST.items())
    return COUNTED.format(
        home=Path(dmr.__file__).parents[1],
        mpiexecs=" ".join(mpiexecs),
        settings=settings,
        open_mpi=mpiexecs[-1] if len(mpiexecs) > 1 else "none",
    )


class Counts:
    """What the job's script has counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("counts", "errors", "go1", "go2", "at1", "at2"):
            (folder / name).unlink(missing_ok=True)

    def of(self, what: str) -> tuple[dict[str, dict[str, int]], str]:
        """Ranks by node, by what started them; and what the variables said."""
        ranks: dict[str, dict[str, int]] = {}
        said = ""
        for line in (self.folder / "counts").read_text().splitlines():
            done, how, rest = (*line.split(" ", 2), "")[:3]
            if done == what and how == "said":
                said = rest.strip()
            elif done == what:
                ranks[how] = {node: int(n) for node, n in (part.split("=") for part in rest.split())}
        return ranks, said

    def told(self) -> str:
        return "".join(p.read_text() for p in (self.folder / "counts", self.folder / "errors") if p.exists())


def merged(cluster: Cluster, job: int, nodes: str, *asks: str) -> None:
    asked = ["salloc", "--no-shell", f"--dependency=expand:{job}", "-w", nodes, "-t5", *asks]
    granted = cluster.run_as("alice", asked, check=True, timeout=60)
    match = re.search(r"Granted job allocation ([0-9]+)", granted.stderr)
    assert match, granted.stderr
    cluster.run_as("alice", ["scontrol", "update", f"jobid={match[1]}", "NumNodes=0"], check=True)
    shown = lambda: cluster.run_as("alice", ["squeue", "-h", "-j", str(job), "-o", "%D"]).stdout.strip()  # noqa: E731
    until("the merge", lambda: shown() == "3", 30)


LONG = 120.0
"""Seconds in which programs in two MPIs and by srun start on all nodes, on a busy machine."""

# What the job asks for on n3 alone; its ranks there, and on n1, n3 and n4 together.
WAYS: Mapping[str, tuple[str, dict[str, int], dict[str, int]]] = {
    "ntasks": ("-n2", {"n3": 2}, {"n1": 2, "n3": 2, "n4": 2}),
    "per-node": ("--ntasks-per-node=2", {"n3": 2}, {"n1": 2, "n3": 2, "n4": 2}),
    "none": ("--exclusive", {"n3": 2}, {"n1": 4, "n3": 2, "n4": 8}),
    "cpus": ("--exclusive -c2", {"n3": 1}, {"n1": 2, "n3": 1, "n4": 4}),
    "ntasks-cpus": ("-n1 -c2", {"n3": 1}, {"n1": 1, "n3": 1, "n4": 1}),
}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.few(2)
def test_after_a_growth_and_a_shrink(another: Cluster, way: str) -> None:
    mergeable(another)
    resizes(another, way, [MPIEXEC])


@pytest.mark.long
@pytest.mark.parametrize("way", list(WAYS))
def test_with_open_mpi_too(another: Cluster, way: str) -> None:
    mergeable(another)
    resizes(another, way, [MPIEXEC, str(Path(python_of(OPEN_MPI)).parent / "mpiexec")])


def resizes(cluster: Cluster, way: str, mpiexecs: list[str]) -> None:
    asks, few, many = WAYS[way]
    counts = Counts(cluster.home("alice"))
    size = f'eval "$({sys.executable} -m dmr.size'
    script = f"""#!/bin/bash
{begun(mpiexecs)}
each start
touch at1; until [ -e go1 ]; do sleep 0.1; done
{size} 3)"
each grown
touch at2; until [ -e go2 ]; do sleep 0.1; done
{size} 1)"
each shrunk
"""
    words = ["sbatch", "--parsable", "-t5", "-N1", "-x", "n1,n2,n4", "-o", "resized.out", *shlex.split(asks)]
    job = int(cluster.run_as("alice", words, input=script, check=True).stdout)
    try:
        until("it has begun", (counts.folder / "at1").exists, LONG)
        merged(cluster, job, "n1,n4", "-N2", "-n12")  # all of both
        (counts.folder / "go1").touch()
        until("it has counted", (counts.folder / "at2").exists, LONG)
        cluster.run_as("alice", ["scontrol", "update", f"jobid={job}", "NodeList=n3"], check=True)
        (counts.folder / "go2").touch()
        until("its end", lambda: not cluster.run_as("root", ["squeue", "-h", "-j", str(job)]).stdout, LONG)
    finally:  # else the tests behind this one wait for its nodes
        cluster.run_as("root", ["scancel", str(job)])
    for what, expected in (("start", few), ("grown", many), ("shrunk", few)):
        ranks, said = counts.of(what)
        by_srun = ranks.pop("srun")
        assert ranks == dict.fromkeys(mpiexecs, expected), (what, counts.told())
        # Without -n it starts one on each node; where tasks have CPUs, 24.11 starts as many as fit.
        found = (dict.fromkeys(expected, 1), expected) if "--exclusive" in asks else (expected,)
        assert by_srun in found, (what, counts.told())
        assert ("4,2,8" in said) == (what == "grown"), said


# What each stage of one job asks for besides its nodes; the ranks of a stage of two nodes, of 4 CPUs each.
NARROW: Mapping[str, tuple[str, dict[str, int]]] = {
    "none": ("sbatch: [--exclusive]", {"n1": 4, "n2": 4}),
    "ntasks": ("ntasks: 5, sbatch: [--exclusive]", {"n1": 3, "n2": 2}),
    "per-node": ("sbatch: [--ntasks-per-node=2]", {"n1": 2, "n2": 2}),
    "cpus": ("cpus: 2, ntasks: 4, sbatch: [--exclusive]", {"n1": 2, "n2": 2}),
}


@pytest.mark.parametrize("shell", ["strict", "plain"])
@pytest.mark.parametrize("way", list(NARROW))
@pytest.mark.few(1)
def test_a_stage_narrower_than_its_job(another: Cluster, way: str, shell: str) -> None:
    narrow(another, way, shell, [MPIEXEC])


@pytest.mark.long
@pytest.mark.parametrize("way", list(NARROW))
def test_a_narrow_stage_with_open_mpi_too(another: Cluster, way: str) -> None:
    narrow(another, way, "strict", [MPIEXEC, str(Path(python_of(OPEN_MPI)).parent / "mpiexec")])


def narrow(cluster: Cluster, way: str, shell: str, mpiexecs: list[str]) -> None:
    asks, expected = NARROW[way]
    counts = Counts(cluster.home("alice"))
    (counts.folder / "each.sh").write_text(begun(mpiexecs))
    run = "cd ~; . ./each.sh; each"
    agent = SlurmAgent(cluster, "alice").start()
    try:
        stages = [f"  - {{name: s{i}, nodes: {n}, time: 60, run: '{run} s{i}', {asks}}}" for i, n in enumerate((4, 2))]
        number = agent.submit(f"name: t\nshell: {shell}\nstages:\n" + "\n".join(stages) + "\n", "bigjob")
        run_of = agent.finish(number)
        assert run_of["phase"] == "completed", (agent.said(), counts.told())
    finally:
        agent.down()
    ranks, said = counts.of("s1")
    by_srun = ranks.pop("srun")
    expected_of_srun = dict.fromkeys(expected, 1) if way == "none" else expected
    if cluster.spec.release is None:
        assert by_srun == expected_of_srun, counts.told()
    else:  # from 24.11 on a bare srun takes any two nodes of the job, that of an mpiexec where nodes are alike
        assert len(by_srun) == 2 and sum(by_srun.values()) == sum(expected_of_srun.values()), counts.told()
        if way == "per-node":
            ranks = {mpiexec: dict(zip(expected, found.values(), strict=True)) for mpiexec, found in ranks.items()}
    assert ranks == dict.fromkeys(mpiexecs, expected), counts.told()
    assert "SLURM_TASKS_PER_NODE=" in said, json.dumps(said)
    wide, _ = counts.of("s0")
    assert len(wide[MPIEXEC]) == 4, counts.told()
