"""When tasks end on given lanes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pool.auto.forecast import NodeLane, outlook
from penstock_pool.demand import TaskBatch


def batch(count: int, seconds: float = 60.0, cores: float = 1.0, **more: float) -> TaskBatch:
    return TaskBatch(cores, 0, 0, seconds, count, more.get("longest", seconds), more.get("after", 0.0))


def test_like_tasks_run_in_rounds_of_as_many_as_there_are_cores():
    found = outlook([batch(10)], [NodeLane(0, 3600, 4)])
    assert found.end == 180  # 4, 4 and 2
    assert found.left == 0
    assert sum(found.work) == 600


def test_a_second_node_takes_its_share_from_when_it_is_there():
    found = outlook([batch(12)], [NodeLane(0, 3600, 4), NodeLane(60, 3600, 4)])
    assert found.end == 120
    assert list(found.work) == [480, 240]


def test_a_task_that_would_outlive_its_node_is_left():
    found = outlook([batch(5, longest=100)], [NodeLane(0, 150, 1)])
    # One begins at 0, and none after 50.
    assert found.left == 4 * 60
    assert found.end == 60


def test_memory_and_gpus_limit_how_many_run_at_once():
    assert NodeLane(0, 1, 8, memory=100).slots(TaskBatch(1, 40, 0, 1, 1)) == 2
    assert NodeLane(0, 1, 8, gpus=3).slots(TaskBatch(1, 0, 2, 1, 1)) == 1
    assert NodeLane(0, 1, 8).slots(TaskBatch(0.5, 0, 0, 1, 1)) == 16
    assert NodeLane(0, 1, 2).slots(TaskBatch(4, 0, 0, 1, 1)) == 0


def test_what_is_foreseen_begins_when_it_comes():
    assert outlook([batch(1, after=500.0)], [NodeLane(0, 3600, 4)]).end == 560


def test_without_a_lane_all_is_left():
    assert outlook([batch(3)], []).left == 180


@given(
    st.lists(
        st.tuples(st.integers(1, 5000), st.floats(0.5, 5000), st.sampled_from([0.5, 1.0, 2.0, 3.0])),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(1, 1e5), st.integers(1, 64), st.integers(1, 9)), max_size=12),
)
def test_no_work_is_lost_or_done_twice_and_none_ends_after_its_node(tasks, nodes):
    batches = [batch(count, seconds, cores) for count, seconds, cores in tasks]
    lanes = [NodeLane(start, start + lasts, cores, nodes=n) for start, lasts, cores, n in nodes]
    found = outlook(batches, lanes)
    total = sum(each.work for each in batches)
    assert math.isclose(sum(found.work) + found.left, total, rel_tol=1e-6)
    assert found.end <= max((lane.end for lane in lanes), default=0.0) + 1e-6
    for lane, work in zip(lanes, found.work, strict=True):
        assert work <= (lane.end - lane.start) * lane.cores * lane.nodes * (1 + 1e-6)


@given(st.integers(1, 500), st.floats(1, 600), st.integers(1, 8))
def test_one_more_node_never_makes_it_later(count, seconds, cores):
    few = outlook([batch(count, seconds)], [NodeLane(0, math.inf, cores)])
    more = outlook([batch(count, seconds)], [NodeLane(0, math.inf, cores), NodeLane(30, math.inf, cores)])
    assert more.end <= few.end * 1.011 + 1e-6  # it is told to a hundredth


def test_many_small_batches_count_as_one():
    many = [batch(1, 10.0 + n) for n in range(40)]
    assert outlook(many, [NodeLane(0, 3600, 4)]).left == pytest.approx(0)
