"""A stage narrower than its job: what its shell is told; tests/slurm/test_resized_variables.py has MPI believe it."""

from __future__ import annotations

import os
import subprocess

import pytest

from penstock.workflow.asks import Asks
from penstock.workflow.model import Stage
from penstock.workflow.narrow import narrowing, narrowing_lines
from penstock.workflow.scripts import resizing_command

SCONTROL = "#!/bin/sh\nfor node in n1 n2 n3 n4; do echo $node; done\n"
FIVE = {"SLURM_TASKS_PER_NODE": "2,1(x3)", "SLURM_NTASKS": "5"}
JOB = {"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2,8"}
TOLD = "echo $SLURM_NNODES $SLURM_NODELIST $SLURM_JOB_CPUS_PER_NODE $SLURM_TASKS_PER_NODE ${SLURM_NTASKS-none}"


def told(tmp_path, nodes, *, shell="set -eo pipefail", **variables):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(SCONTROL)
    scontrol.chmod(0o755)
    lines = [shell, *narrowing_lines(), "(", narrowing(nodes), "set -u", TOLD, "env | grep -c nodelist= || :", ")"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        ["bash"], input="\n".join(lines), text=True, capture_output=True, env=environment, timeout=20, check=True
    )
    assert done.stderr == ""
    said, pinned = done.stdout.splitlines()
    return said, int(pinned)


@pytest.mark.parametrize("shell", ["set -eo pipefail", ":"])
@pytest.mark.parametrize(
    ("nodes", "variables", "expected"),
    [
        (2, {"SLURM_TASKS_PER_NODE": "4(x2),2,8"}, "2 n1,n2 4,4 4,4 none"),
        (3, FIVE, "3 n1,n2,n3 4,4,2 2,2,1 5"),
        (1, FIVE, "1 n1 4 5 5"),
        (3, FIVE | {"SLURM_CPUS_PER_TASK": "2"}, "3 n1,n2,n3 4,4,2 2,2,1 5"),
        (2, {"SLURM_TASKS_PER_NODE": "2(x4)", "SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "2"}, "2 n1,n2 4,4 2,2 4"),
    ],
)  # fmt: skip
def test_the_first_nodes_and_the_tasks_that_belong_to_them(tmp_path, shell, nodes, variables, expected):
    assert told(tmp_path, nodes, shell=shell, **JOB, **variables) == (expected, 4), "and its daemons are kept to them"


def test_where_nodes_are_alike_the_daemons_may_be_anywhere(tmp_path):
    alike = {"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_CPUS_PER_NODE": "2(x4)", "SLURM_TASKS_PER_NODE": "2(x4)"}
    assert told(tmp_path, 2, **alike) == ("2 n1,n2 2,2 2,2 none", 0)


def test_an_elastic_job_says_the_tasks_of_each_stage():
    def stage(name, nodes, tasks):
        return Stage(name, nodes, 60, 60, "true", asks=Asks(ntasks=tasks))

    lines = resizing_command([stage("a", 1, "4"), stage("b", 2, "4")]).splitlines()
    assert any("dmr.size 2 --ntasks 4 --wait" in line for line in lines)
    assert not any("--ntasks" in line for line in resizing_command([stage("a", 1, ""), stage("b", 2, "")]).splitlines())
