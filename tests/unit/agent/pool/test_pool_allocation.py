"""What a worker takes its allocation for, from Slurm's variables."""

from __future__ import annotations

import shutil

import psutil
import pytest

from penstock.core.extensions import PLACEMENTS
from penstock.errors import ConfigError, UserError
from penstock.pool.allocation import capacity_here, seconds_left, spread_command

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_CPUS_PER_NODE": "16(x2),8"}


@pytest.mark.parametrize(
    ("environment", "cores", "memory", "expected"),
    [
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "1000"}, None, None, (8.0, 1000 * 2**20, 0)),
        (
            {"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_CPU": "10"},
            None,
            None,
            (4.0, 40 * 2**20, 0),
        ),
        ({"SLURM_CPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": "0,1"}, 2.5, 99, (2.5, 99, 2)),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "0"}, None, None, (8.0, psutil.virtual_memory().total, 0)),
    ],
)
def test_capacity(environment, cores, memory, expected):
    found = capacity_here(environment, cores, memory)
    assert (found.cores, found.memory, found.gpus) == expected


def test_a_variable_that_is_no_number_is_named():
    with pytest.raises(UserError, match="SLURM_MEM_PER_NODE: must be a whole number, not '2G'"):
        capacity_here({"SLURM_MEM_PER_NODE": "2G"}, 1.0, None)


def test_one_worker_on_each_node_of_a_job(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/srun")
    command = spread_command(JOB, ["x"])
    assert command is not None
    assert command[-2:] == ["--cpus-per-task=8", "x"]
    assert {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--overlap"} <= set(command)
    assert spread_command({}, ["x"]) is None
    assert spread_command(JOB | {"SLURM_STEP_ID": "0"}, ["x"]) is None


def test_without_a_job_there_is_no_end():
    assert seconds_left("", 1.0) is None


def test_placements_are_found_by_name():
    assert PLACEMENTS.make("pack").name == "pack"
    with pytest.raises(ConfigError, match=r"no placement 'best' is installed \(installed: .*pack"):
        PLACEMENTS.make("best")
