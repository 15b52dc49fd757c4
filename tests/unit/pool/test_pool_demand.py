"""What a pool tells of its needs, and which members it lets go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock_pool.demand import (
    Announcements,
    Demand,
    MemberLoad,
    TaskBatch,
    TaskRunTimes,
    batch_of_dict,
    coalesced,
    demand_from_dict,
)
from penstock_pool.machine import Machine
from penstock_pool.model import AttemptOutcome, Capacity, PoolMember, PoolTask, Use
from penstock_pool.placement import Pack
from penstock_pool.taskjson import task_from_dict


def task(**more: object) -> PoolTask:
    return task_from_dict({"command": ["true"], **more}, "task", "/")


def machine(members: int = 1, ends: float | None = None, **more: bool) -> Machine:
    made = Machine(Pack())
    for number in range(members):
        made.join(PoolMember(f"a{number}", f"n{number}", f"{number}", Capacity(4.0, None, 0), ends, **more), 0.0)
    return made


def end(pool: Machine, number: int, now: float, wall: float) -> None:
    entry = pool.entries[number]
    use = Use(wall, wall, 0)
    pool.ended(entry.address, number, entry.attempt, AttemptOutcome.COMPLETE, 0, "", use, now)


def test_waiting_tasks_are_told_in_batches_and_running_ones_by_member():
    pool = machine()
    pool.submit([task(time="100s")] * 10, 0.0)
    pool.place(0.0)
    told = pool.demand(30.0, 0, ())
    (waiting,) = told.waiting
    assert (waiting.count, waiting.seconds, waiting.longest, waiting.cores) == (6, 100.0, 100.0, 1.0)
    (member,) = told.members
    assert (member.job, member.work, member.busy, member.left) == ("0", 4 * 70.0, 70.0, None)
    assert demand_from_dict(json.loads(json.dumps(told.to_dict()))) == told


def test_what_tasks_took_counts_for_more_than_what_was_said():
    pool = machine()
    pool.submit([task(time="100s")] * 12, 0.0)
    pool.place(0.0)
    for number in (1, 2, 3, 4):
        end(pool, number, 10.0, 10.0)
    assert pool.demand(10.0, 0, ()).waiting[0].seconds == 100.0  # too few yet
    pool.place(10.0)
    end(pool, 5, 20.0, 10.0)
    (waiting,) = pool.demand(20.0, 0, ()).waiting
    assert (waiting.seconds, waiting.longest) == (10.0, 100.0)


def test_a_task_that_has_overrun_still_takes_a_while():
    pool = machine()
    pool.submit([task(time="10s")], 0.0)
    pool.place(0.0)
    assert pool.demand(100.0, 0, ()).members[0].busy == pytest.approx(10.0)


def test_tasks_of_dasks_own_clients_count():
    told = machine().demand(0.0, 7, ())
    assert told.waiting[0].count == 7
    assert not told.idle


def test_an_idle_pool_needs_nothing():
    assert machine().demand(0.0, 0, ()).idle
    assert not Demand(0.0, members=(MemberLoad("1", "n", 1.0, None, 0, None, 5.0, 5.0),)).idle


def test_a_member_that_gives_back_leaves_when_nothing_fits_its_rest():
    pool = machine(2, ends=100.0, gives_back=True)
    pool.submit([task(time="90s")] * 20, 0.0)
    pool.place(0.0)
    assert pool.spare(50.0) == []  # they run
    for number in range(1, 9):
        end(pool, number, 50.0, 50.0)
    assert pool.place(50.0) == []
    assert pool.spare(50.0) == ["a0", "a1"]
    pool.drain("a0")
    assert pool.spare(50.0) == ["a1"]


def test_one_that_does_not_give_back_stays():
    pool = machine(1, ends=100.0)
    pool.submit([task(time="200s")], 0.0)
    pool.place(0.0)
    assert pool.spare(90.0) == []


def test_a_member_idles_for_a_twentieth_of_its_time_in_all():
    pool = machine(1, gives_back=True)
    assert pool.spare(4.9) == []
    assert pool.spare(5.0) == ["a0"]
    pool.submit([task()], 0.0)
    pool.place(0.0)
    end(pool, 1, 1000.0, 1000.0)
    assert pool.spare(1052.0) == []
    assert pool.spare(1053.0) == ["a0"]
    pool.submit([task()], 1050.0)  # 50 s of its time are idled
    pool.place(1050.0)
    end(pool, 2, 1060.0, 10.0)
    assert pool.spare(1064.0) == []
    assert pool.spare(1065.0) == ["a0"]


def test_none_leaves_while_more_is_expected():
    pool = machine(1, gives_back=True)
    assert pool.spare(1000.0, more=True) == []


def test_announcements_are_replaced_fade_and_become_due():
    known = Announcements()
    known.announce("a", [batch_of_dict({"count": 5, "after": 100.0}, "t")], 0.0, 60.0)
    known.announce("b", [batch_of_dict({"count": 1, "after": 10.0}, "t")], 0.0, 60.0)
    assert sorted(b.count for b in known.batches(5.0)) == [1, 5]
    assert [b.after for b in known.batches(30.0)] == [70.0]  # the other has come, or will not
    known.announce("a", [batch_of_dict({"count": 2, "after": 100.0}, "t")], 40.0, 60.0)
    assert [b.count for b in known.batches(50.0)] == [2]
    assert known.batches(101.0) == ()
    known.announce("b", [], 50.0, 60.0)
    assert known.batches(50.0) == ()


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"cores": -1},
        {"count": "many"},
        {"seconds": float("nan")},
        {"color": 1},
        {"gpus": True},
        {"count": None},
    ],
)
def test_what_is_no_batch_is_said(told: object):
    with pytest.raises(UserError, match=r"tasks\[0\]"):
        batch_of_dict(told, "tasks[0]")


@pytest.mark.parametrize(
    "told", [{}, {"version": 2}, {"version": 1, "at": 0}, {"version": 1, "at": "x", "waiting": []}]
)
def test_what_is_no_demand_is_said(told: dict[str, object]):
    with pytest.raises(ValueError):
        demand_from_dict(told)


BATCH = st.builds(
    TaskBatch,
    st.sampled_from([0.5, 1.0, 4.0]),
    st.just(0),
    st.just(0),
    st.floats(0.1, 1e5),
    st.integers(1, 10_000),
    st.floats(0, 1e5),
    st.floats(0, 1e4),
)


@given(st.lists(BATCH, max_size=60))
def test_like_batches_together_have_the_same_tasks_and_work(batches: list[TaskBatch]):
    found = coalesced(batches)
    assert sum(b.count for b in found) == sum(b.count for b in batches)
    assert sum(b.work for b in found) == pytest.approx(sum(b.work for b in batches))
    assert max((b.longest for b in found), default=0.0) == max((b.longest for b in batches), default=0.0)


def test_run_times_forget_what_is_too_much():
    known = TaskRunTimes()
    for number in range(5000):
        known.saw((number,), 5.0)
    assert known.expected((0,), None) == 60.0
    assert known.expected((4999,), None) == 5.0
