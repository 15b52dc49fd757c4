"""What a worker takes its allocation for, from Slurm's variables."""

from __future__ import annotations

import shutil

import psutil
import pytest

from penstock.errors import ConfigError, UserError
from penstock_pool.allocation import capacity_here, in_step, seconds_left, spread_command
from penstock_pool.placement import PLACEMENTS

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
        *(({"CUDA_VISIBLE_DEVICES": none}, 1.0, 99, (1.0, 99, 0)) for none in ("NoDevFiles", "void", "none", "-1", "")),
        ({"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "0, 1"}, 1.0, 99, (1.0, 99, 2)),
        ({"CUDA_VISIBLE_DEVICES": "3,-1,1"}, 1.0, 99, (1.0, 99, 1)),
        ({"CUDA_VISIBLE_DEVICES": "none", "SLURM_GPUS_ON_NODE": "2"}, 1.0, 99, (1.0, 99, 0)),
        ({"SLURM_GPUS_ON_NODE": "2"}, 1.0, 99, (1.0, 99, 2)),
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
    assert {"--wait=0", "--kill-on-bad-exit=0"} <= set(command), "whatever the site's settings"
    assert spread_command({}, ["x"]) is None
    assert spread_command(JOB | {"SLURM_STEP_ID": "0"}, ["x"]) is None


BATCH, STEP, PROMPT = "slurmstepd: [7.batch]\0", "slurmstepd: [7.12]\0", "slurmstepd: [7.interactive]\0"


@pytest.mark.parametrize(
    ("number", "cgroup", "above", "step"),
    [
        ("", "", None, False),
        ("0", "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0", None, False),
        ("0", "8:memory:/slurm/uid_7/job_7/step_3/task_0\n0::/", None, True),
        ("4294967290", "0::/system.slice/slurmstepd.scope/job_7/step_interactive/user/task_0", None, False),
        ("0", "0::/user.slice", BATCH, False),
        ("0", "0::/user.slice", STEP, True),
        ("4294967290", "0::/user.slice", PROMPT, False),
        ("0", "0::/", None, True),
        ("4294967290", "0::/", None, False),
    ],
)
def test_a_step_is_told_from_a_job_that_was_submitted_from_one(tmp_path, number, cgroup, above, step):
    for pid, parent, line in (("self", 9, "python\0"), ("9", 8, "/bin/bash\0"), ("8", 1, above)):
        if line is not None:
            (tmp_path / pid).mkdir()
            (tmp_path / pid / "cmdline").write_text(line)
            (tmp_path / pid / "stat").write_text(f"1 (a) b) S {parent} 1 1")
    (tmp_path / "self/cgroup").write_text(cgroup)
    assert in_step({"SLURM_STEP_ID": number} if number else {}, tmp_path) is step


def test_without_a_job_there_is_no_end():
    assert seconds_left("", 1.0) is None


def test_placements_are_found_by_name():
    assert PLACEMENTS.make("pack").name == "pack"
    with pytest.raises(ConfigError, match=r"no placement 'best' is installed \(installed: .*pack"):
        PLACEMENTS.make("best")
