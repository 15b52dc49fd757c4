"""What Slurm's variables say of other nodes than those of the job's start; tests/slurm/test_resized_variables.py has
real programs believe them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import job_nodes
from dmr.slurm_variables import compressed, expanded, lay_out, resized

# A job of one node with two CPUs; what 22.05 said to it where it asked for tasks in one of four ways.
ONE = {"SLURM_JOB_NODELIST": "n3", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_CPUS_PER_NODE": "2"}
NTASKS = ONE | {"SLURM_TASKS_PER_NODE": "2", "SLURM_NTASKS": "2", "SLURM_NPROCS": "2"}
PER_NODE = NTASKS | {"SLURM_NTASKS_PER_NODE": "2"}
NONE = ONE | {"SLURM_TASKS_PER_NODE": "2"}
CPUS = ONE | {"SLURM_TASKS_PER_NODE": "1", "SLURM_CPUS_PER_TASK": "2"}


def told(environ, nodes, cpus, tasks=None):
    said = resized(environ, nodes, cpus, tasks)
    return said["SLURM_TASKS_PER_NODE"], said["SLURM_NTASKS"]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("2(x3),1", [2, 2, 2, 1]),
        ("1", [1]),
        ("4,1(x3)", [4, 1, 1, 1]),
        ("", []),
        ("2(x)", []),
        ("two", []),
        ("2,,1", []),
    ],
)
def test_counts_as_slurm_writes_them(text, counts) -> None:
    assert expanded(text) == counts
    assert not counts or compressed(counts) == text


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40))
def test_what_is_written_is_read(counts) -> None:
    assert expanded(compressed(counts)) == counts


@pytest.mark.parametrize(
    ("tasks", "room", "expected"),
    [  # as srun of 22.05 placed them
        (5, [4, 4, 2, 8], [2, 1, 1, 1]),
        (4, [3, 1], [3, 1]),
        (9, [4, 2, 8], [4, 2, 3]),
        (12, [4, 2, 8], [4, 2, 6]),
        (6, [2, 2, 1, 1], [2, 2, 1, 1]),
        # beyond what fits, and fewer than nodes
        (16, [4, 2, 8], [5, 3, 8]),
        (1, [4, 2], [1, 1]),
    ],
)
def test_tasks_are_laid_out_in_turn(tasks, room, expected) -> None:
    assert lay_out(tasks, room) == expected


@given(st.integers(1, 60), st.lists(st.integers(1, 8), min_size=1, max_size=12))
def test_no_task_is_lost_and_none_is_too_many_where_there_is_room(tasks, room) -> None:
    placed = lay_out(tasks, room)
    assert sum(placed) == max(tasks, len(room))
    if tasks <= sum(room):
        assert all(n <= most for n, most in zip(placed, room, strict=True))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [(NTASKS, ("2(x3)", "6")), (PER_NODE, ("2(x3)", "6")), (NONE, ("4,2,8", None)), (CPUS, ("2,1,4", None))],
)
def test_as_many_for_each_node_as_at_the_start(environ, expected) -> None:
    assert told(environ, ["n1", "n3", "n4"], [4, 2, 8]) == expected


def test_the_number_follows_from_the_size_whatever_came_between() -> None:
    start = {"SLURM_JOB_NODELIST": "n1,n2,n3,n4", "SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS": "5"}
    environ = dict(start)
    for nodes in (2, 8, 1, 3, 4):
        names = [f"n{i}" for i in range(nodes)]
        now, fresh = (resized(e, names, [8] * nodes) for e in (environ, start))
        assert now == fresh and now["SLURM_NTASKS"] == str(-(-5 * nodes // 4))
        environ |= {name: value for name, value in now.items() if value is not None}
        assert environ["DMR_ASKED_TASKS"] == "5:4"


def test_no_more_than_the_cpus_are_enough_for() -> None:
    assert told(NTASKS, ["n1", "n3", "n4"], [1, 2, 1]) == ("1,2,1", "4")
    assert told(NTASKS | {"SLURM_OVERCOMMIT": "1"}, ["n1", "n3"], [1, 2]) == ("2(x2)", "4")
    said = resized(PER_NODE, ["n1", "n3"], [1, 2])
    assert (said["SLURM_TASKS_PER_NODE"], said["SLURM_NTASKS_PER_NODE"]) == ("1,2", None), "srun would contradict"
    assert "SLURM_NTASKS_PER_NODE" not in resized(PER_NODE, ["n1", "n3"], [4, 2])


def test_where_cpus_are_not_known() -> None:
    assert told(NTASKS, ["n1", "n3"], []) == ("2(x2)", "4")
    assert told(NONE, ["n1", "n3"], []) == ("2(x2)", None)
    assert resized(NONE, ["n1", "n3"], [])["SLURM_JOB_CPUS_PER_NODE"] is None


def test_tasks_in_all() -> None:
    assert told(NTASKS, ["n1", "n3", "n4"], [4, 2, 8], 5) == ("2(x2),1", "5")
    assert told(NONE, ["n1", "n3"], [4, 2], 1) == ("1(x2)", "2"), "each node has one at least"


def test_a_layout_of_just_the_nodes_of_the_start_is_forgotten() -> None:
    said = resized(NTASKS | {"SLURM_DISTRIBUTION": "plane=2", "SLURM_DIST_PLANESIZE": "2"}, ["n1"], [4])
    assert said["SLURM_DISTRIBUTION"] is None and said["SLURM_DIST_PLANESIZE"] is None
    assert "SLURM_DISTRIBUTION" not in resized(NTASKS | {"SLURM_DISTRIBUTION": "cyclic"}, ["n1"], [4])


@pytest.mark.parametrize(
    ("environ", "total", "expected"),
    [
        (ONE, 14, [4, 2, 8]),  # whole nodes
        (ONE, 4, [1, 2, 1]),  # a merge under cons_tres that asks for nodes alone brings one CPU each
        (ONE, 8, [3, 2, 3]),
        (ONE, 2, []),  # fewer than one each: it cannot be
        ({}, 14, [4, 2, 8]),
        ({"SLURM_JOB_NODELIST": "n1,n3,n4", "SLURM_JOB_CPUS_PER_NODE": "1,2,5"}, 99, [1, 2, 5]),  # all known
    ],
)
def test_cpus_of_nodes_that_came_later(environ, total, expected) -> None:
    assert job_nodes.cpus_of(["n1", "n3", "n4"], total, {"n1": 4, "n3": 2, "n4": 8}, environ) == expected


PROGRAMS = {
    "squeue": 'case "$*" in *%C*) echo "14 n[1,3-4]" ;; *) echo "n[1,3-4]" ;; esac',
    "sinfo": 'echo "n1 4"; echo "n3 2"; echo "n4 8"',
    "scontrol": "echo n1; echo n3; echo n4",
}


def test_a_later_program_of_a_resized_job_hears_of_its_nodes(tmp_path, monkeypatch) -> None:
    for name, line in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    start = PER_NODE | {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n3", "HOME": "/h"}
    now = job_nodes.environment_now(start)
    assert (now["SLURM_JOB_NODELIST"], now["SLURM_TASKS_PER_NODE"], now["SLURM_NTASKS"]) == ("n1,n3,n4", "2(x3)", "6")
    assert (now["SLURM_JOB_CPUS_PER_NODE"], now["HOME"], now["SLURM_NTASKS_PER_NODE"]) == ("4,2,8", "/h", "2")
    same = {**start, "SLURM_JOB_NODELIST": "n1,n3,n4"}
    assert job_nodes.environment_now(same) == same
