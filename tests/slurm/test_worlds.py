"""Worlds on real Slurm: nodes merged into the job, nodes of another job (companion), nodes given back, and restarts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from malleable import mergeable, until

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.timeout(300)]

PYTHON = sys.executable
WALKING = Path(__file__).parents[1] / "mpi" / "walking.py"


class Walk:
    """A job of alice's on n1 and n2 that goes from place to place, each when `go` says so."""

    def __init__(self, cluster: Cluster, method: str, *way: str, start: str = "-n 2 -ppn 1", **exports: str) -> None:
        self.cluster, self.home = cluster, cluster.home("alice")
        for left in [*self.home.glob("gate*"), self.home / "walk.out"]:
            left.unlink(missing_ok=True)
        (self.home / "walking.py").write_text(WALKING.read_text())
        (self.home / "walking.py").chmod(0o644)
        exported = "\n".join(f"export {name}={value}" for name, value in {"WALK_GATES": "gate", **exports}.items())
        command = f"exec {PYTHON} -m dmr.launch {start} {PYTHON} walking.py {method} {' '.join(way)}"
        self.id = int(
            self.slurm(
                *("sbatch", "--parsable", "-N2", "-w", "n1,n2", "-t5", "-o", "walk.out"),
                input=f"#!/bin/bash\n{exported}\n{command}\n",
            )
        )
        until("it runs", lambda: self.places() == [2])

    def slurm(self, *command: str, **options: str) -> str:
        return self.cluster.run_as("alice", list(command), check=True, **options).stdout.strip()

    def output(self) -> str:
        out = self.home / "walk.out"
        return out.read_text() if out.exists() else ""

    def places(self) -> list[int]:
        return [int(line.split()[2]) for line in self.output().splitlines() if line.startswith("place")]

    def go(self, place: int, size: int) -> None:
        """Leave the place, and arrive at one of that size."""
        self.cluster.run_as("alice", ["touch", str(self.home / f"gate{place}")], check=True)
        until(f"{size} ranks are there", lambda: len(self.places()) > place + 1 or self.ended())
        assert self.places()[place + 1 :] == [size], self.output()

    def ended(self) -> bool:
        state = self.cluster.run_as(
            "root", ["squeue", "-h", "-t", "all", "-j", str(self.id), "-o", "%T"]
        ).stdout.strip()
        return state not in ("PENDING", "RUNNING", "COMPLETING")

    def ends(self, place: int) -> None:
        self.cluster.run_as("alice", ["touch", str(self.home / f"gate{place}")], check=True)
        until("it has ended", self.ended)
        shown = self.cluster.run_as("root", ["scontrol", "-o", "show", "job", str(self.id)]).stdout
        assert "JobState=COMPLETED" in shown, self.output()

    def stepless(self, job: int, node: str) -> bool:
        """No step of the job is on the node, but the external one that every job has under PrologFlags=Contain."""
        steps = self.slurm("squeue", "-h", "-s", "-j", str(job), "-o", "%i|%N").splitlines()
        inside = [step for step in steps if ".extern" not in step and ".batch" not in step]
        shown = [self.slurm("scontrol", "show", "hostnames", step.split("|")[1]).split() for step in inside]
        return not any(node in nodes for nodes in shown)


def second_job(cluster: Cluster, *options: str) -> int:
    """A job of alice's that only holds n3 and n4."""
    granted = cluster.run_as("alice", ["salloc", "--no-shell", "-N2", "-w", "n3,n4", "-t5", *options], check=True)
    found = re.search(r"Granted job allocation (\d+)", granted.stderr)
    assert found, granted.stderr
    return int(found[1])


@pytest.mark.parametrize("hosts", ["cluster", pytest.param("isolated", marks=pytest.mark.long)])
def test_merged_nodes_are_used_and_given_back_without_replacing_everybody(
    hosts: str, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(hosts)
    mergeable(cluster)
    walk = Walk(cluster, "merge", "1:n1,n2,n3,n4", "1:n1,n2,n4", "1:n1,n2", "1:n1")
    resizer = second_job(cluster, f"--dependency=expand:{walk.id}")
    walk.slurm("scontrol", "update", f"jobid={resizer}", "NumNodes=0")
    walk.go(0, 4)
    walk.go(1, 3)
    # n3 was a world of its own, and nobody is on it now.
    until("no step is on n3", lambda: walk.stepless(walk.id, "n3"), 20)
    walk.slurm("scontrol", "update", f"jobid={walk.id}", "NodeList=n1,n2,n4")
    walk.go(2, 2)
    until("no step is on n4", lambda: walk.stepless(walk.id, "n4"), 20)
    walk.slurm("scontrol", "update", f"jobid={walk.id}", "NodeList=n1,n2")
    # The world of the start gives back a node only by being replaced.
    walk.go(3, 1)
    until("no step is on n2", lambda: walk.stepless(walk.id, "n2"), 20)
    walk.slurm("scontrol", "update", f"jobid={walk.id}", "NodeList=n1")
    walk.ends(4)


def test_nodes_of_another_job_are_used_and_given_back(contained: Cluster) -> None:
    companion = second_job(contained)
    walk = Walk(contained, "merge", f"1:n1,n2,n3,n4/{companion}", "1:n1,n2", f"1:n1,n3/{companion}", "1:n1")
    walk.go(0, 4)
    walk.go(1, 2)
    for node in ("n3", "n4"):
        until(f"no step is on {node}", lambda node=node: walk.stepless(companion, node), 20)
    walk.go(2, 2)
    walk.go(3, 1)
    until("no step is on n3", lambda: walk.stepless(companion, "n3"), 20)
    walk.slurm("scancel", str(companion))
    walk.ends(4)


def test_a_companion_that_is_gone_harms_nobody(contained: Cluster) -> None:
    companion = second_job(contained)
    walk = Walk(contained, "merge", f"1:n1,n2,n3,n4/{companion}", DMR_START_TIMEOUT="15")
    walk.slurm("scancel", str(companion))
    walk.go(0, 2)
    assert "stays:" in walk.output()
    walk.ends(1)


def test_a_program_under_srun_starts_again_on_other_nodes(cluster: Cluster) -> None:
    mergeable(cluster)
    walk = Walk(cluster, "restart", "1:n1,n2,n3,n4", "1:n1", "2:n1,n2", start="--srun --mpi=pmi2 -n 2 -N 2")
    resizer = second_job(cluster, f"--dependency=expand:{walk.id}")
    walk.slurm("scontrol", "update", f"jobid={resizer}", "NumNodes=0")
    walk.go(0, 4)
    walk.go(1, 1)
    walk.go(2, 4)
    walk.ends(3)
    assert not list(walk.home.glob(".dmr-checkpoint*"))
