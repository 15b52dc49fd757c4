"""Job arrays of the simulated Slurm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mock_world import World

from penstock.errors import Infeasible, NotFound
from penstock_lab.mock.arrays import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", ([3], 0)),
        ("1-4%2", ([1, 2, 3, 4], 2)),
        ("1,3,5-9:2", ([1, 3, 5, 7, 9], 0)),
        ("5-9:3,0", ([0, 5, 8], 0)),
    ],
)
def test_what_array_texts_mean(text, expected):
    assert parse(text, 1001) == expected


@pytest.mark.parametrize("text", ["", "x", "9-1", "1,,2", "1-5:0", "1-1001", "1-3%", "%2", "-1", "1%2%3", "１"])
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(Infeasible, match="Invalid job array specification"):
        parse(text, 1001)


@given(st.sets(st.integers(0, 1000), min_size=1), st.integers(0, 50))
def test_any_set_of_tasks_can_be_said(tasks, throttle):
    text = ",".join(map(str, sorted(tasks, reverse=True))) + (f"%{throttle}" if throttle else "")
    assert parse(text, 1001) == (sorted(tasks), throttle)


def test_started_tasks_have_an_id_each_and_the_last_one_has_the_arrays():
    w = World(nodes=2)
    array = w.submit(10, array="1-4")
    assert w.tasks(array) == {1: "RUNNING", 2: "RUNNING"}
    row = w.view(array)
    assert (row.tasks, row.array_job, row.array_task, row.reason) == (2, array, None, "Resources")
    assert w.controller.find(w.engine.uid_of("alice"), "j") == [array, array + 1, array + 2]
    w.to(10)
    assert w.tasks(array) == {1: "COMPLETED", 2: "COMPLETED", 3: "RUNNING", 4: "RUNNING"}
    assert (w.view(array).array_task, w.view(array).tasks) == (4, 1)


def test_one_task_that_waits_says_which():
    w = World(nodes=1)
    array = w.submit(10, array="3,7")
    assert (w.view(array).array_task, w.view(array).tasks) == (7, 1)


def test_the_throttle_is_kept_and_lets_others_pass():
    w = World(nodes=4)
    array = w.submit(10, array="1-5%2")
    assert w.view(array).reason == "JobArrayTaskLimit"
    other = w.submit(10, nodes=2)
    assert w.state(other) == "RUNNING"
    for time, running in ((10, 2), (20, 1), (30, 0)):
        w.to(time)
        assert list(w.tasks(array).values()).count("RUNNING") == running


def test_a_tasks_end_can_be_waited_for_alone_or_with_all_others():
    w = World(nodes=2)
    array = w.submit(10, array="1-3%1")
    all_of, one = w.submit(5, dependency=f"afterok:{array}"), w.submit(5, dependency=f"afterok:{array}_1")
    begun, after = w.submit(5, dependency=f"afterany:{array}_3"), w.submit(5, dependency=f"after:{array}")
    assert w.view(one).dependency == f"afterok:{array}_1(unfulfilled)"
    w.to(10)
    assert [w.state(j) for j in (all_of, one, begun, after)] == ["PENDING", "RUNNING", "PENDING", "PENDING"]
    w.to(20)
    assert [w.state(j) for j in (all_of, begun, after)] == ["PENDING", "PENDING", "RUNNING"]
    w.to(30)
    assert [w.state(j) for j in (all_of, begun)] == ["RUNNING", "RUNNING"]


def test_afterok_fails_when_one_task_has_failed_and_all_have_ended():
    w = World(nodes=1)
    array = w.submit(10, array="1-2", exit=1)
    child, other = w.submit(5, dependency=f"afterok:{array}"), w.submit(5, dependency=f"afternotok:{array}")
    w.to(10)
    assert w.view(child).reason == "Dependency"
    w.to(20)
    assert w.view(child).reason == "DependencyNeverSatisfied"
    assert w.state(other) == "RUNNING"


def test_the_arrays_id_cancels_holds_and_requeues_all():
    w = World(nodes=2, requeue_delay=0)
    array = w.submit(10, array="1-4", requeue=True)
    w.do("hold", array)
    w.to(10)
    assert w.tasks(array) == {1: "COMPLETED", 2: "COMPLETED"}
    assert (w.view(array).priority, w.view(array).tasks) == (0, 2)
    w.do("release", array)
    assert w.tasks(array)[3] == "RUNNING"
    w.do("requeue", array)
    assert {j.restarts for j in w.engine.jobs.values()} == {1}
    assert list(w.tasks(array).values()).count("RUNNING") == 2
    w.do("cancel", array)
    assert set(w.tasks(array).values()) == {"CANCELLED"}
    w.do("cancel", array)


def test_a_single_task_can_be_cancelled():
    w = World(nodes=2)
    array = w.submit(10, array="1-3")
    w.do("cancel", array + 1)
    assert w.tasks(array) == {1: "CANCELLED", 2: "RUNNING", 3: "RUNNING"}


def test_an_array_is_forgotten_after_its_last_task_only():
    w = World(nodes=2)
    array = w.submit(mock="duration=10", array="1-2")
    w.do("cancel", array)  # the array's own record ends with the others
    long = w.submit(50, array="1-2%1")
    w.to(10 + 299)
    assert w.view(long).array_task == 2
    w.to(2000)
    with pytest.raises(NotFound):
        w.engine.job(long)
    child = w.submit(5, dependency=f"afterany:{long}")
    assert w.state(child) == "RUNNING"
