"""Spreading a bag over lanes, and moving what waits: pure."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_planning.select.spread import Hysteresis, Lane, Pending, ends, makespan, rebalance, spread


def test_all_to_one_where_that_is_best():
    lanes = [Lane("slow", [0.0] * 9, 100.0), Lane("fast", [0.0] * 9, 10.0)]
    assert spread(5, lanes) == {"fast": 5}
    assert makespan(spread(5, lanes), lanes) == 10.0


def test_several_where_that_ends_sooner():
    lanes = [Lane("fast", [0.0, 0.0, 10.0, 10.0, 20.0, 20.0], 10.0), Lane("slow", [0.0, 0.0, 0.0], 15.0, per=2)]
    taken = spread(8, lanes)
    assert taken == {"fast": 2, "slow": 3}
    assert makespan(taken, lanes) == 15.0


def test_lanes_without_room():
    with pytest.raises(ValueError, match="no room for 1 of 3"):
        spread(3, [Lane("a", [0.0, 1.0], 1.0)])
    assert spread(0, []) == {}


def test_partitions_over_the_same_nodes_are_not_counted_twice():
    starts = [0.0, 0.0, 10.0, 10.0, 20.0, 20.0]
    alone = [Lane("a", starts, 10.0)]
    both = [Lane("a", starts, 10.0, shared={"b": 1.0}), Lane("b", starts, 10.0, shared={"a": 1.0})]
    taken = spread(6, both)
    assert sum(taken.values()) == 6 and makespan(taken, both) == makespan(spread(6, alone), alone) == 30.0
    with pytest.raises(ValueError, match="no room"):
        spread(7, both)
    # A third of the nodes of `wide` are those of `small`, which nobody waits for.
    wide = Lane("wide", [50.0] * 9, 10.0, shared={"small": 1 / 3})
    small = Lane("small", [0.0, 10.0, 20.0, 60.0], 10.0, shared={"wide": 1.0})
    assert spread(5, [wide, small]) == {"small": 3, "wide": 2}
    assert ends({"small": 3, "wide": 2}, [wide, small]) == {"small": 30.0, "wide": 60.0}
    (move,) = rebalance([Pending(0, "a", 1, 100.0, 10.0), Pending(1, "a", 1, 90.0, 10.0)], both[1:], Hysteresis(95, 0))
    assert (move.key, move.to, move.end) == (0, "b", 10.0)


def test_the_last_of_many_runs_longer_than_one():
    steady, wild = Lane("steady", [30.0] * 99, 100.0), Lane("wild", [0.0] * 99, 100.0, scatter=0.5)
    assert steady.longest(99) == 100.0 and wild.longest(1) == 100.0
    assert wild.longest(2) == pytest.approx(100.0 * math.exp(0.5 * 0.5449), rel=1e-4)  # half of all pairs are shorter
    assert spread(40, [steady, wild]) == {"wild": 1, "steady": 39}, "two there would end after those that start later"
    assert makespan({"wild": 9}, [wild]) == wild.longest(9)


@st.composite
def some_lanes(draw):
    found = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        starts = sorted(draw(st.lists(st.integers(0, 20).map(float), min_size=6, max_size=6)))
        found.append(Lane(name, starts, float(draw(st.integers(1, 20))), draw(st.integers(1, 3))))
    return found


@given(some_lanes(), st.integers(1, 6))
def test_no_other_spread_is_done_sooner(lanes, count):
    taken = spread(count, lanes)
    assert sum(taken[lane.name] * lane.per for lane in lanes if lane.name in taken) >= count
    best = makespan(taken, lanes)
    for numbers in itertools.product(range(7), repeat=len(lanes)):
        other = {lane.name: n for lane, n in zip(lanes, numbers, strict=True) if n}
        if sum(n * lane.per for lane, n in zip(lanes, numbers, strict=True)) >= count:
            assert best <= makespan(other, lanes)


def test_only_what_is_clearly_sooner_moves():
    waiting = [Pending(0, "a", 1, 1000.0, 100.0), Pending(1, "a", 1, 2000.0, 100.0), Pending(2, "a", 1, 3000.0, 100.0)]
    lanes = [Lane("a", [0.0] * 9, 1.0), Lane("b", [500.0, 1500.0, 2500.0], 200.0)]
    moves = rebalance(waiting, lanes, Hysteresis(300.0, 0.1))
    assert [(m.key, m.to, m.before, m.end) for m in moves] == [(2, "b", 3100.0, 700.0), (1, "b", 2100.0, 1700.0)]
    assert rebalance(waiting, lanes, Hysteresis(3000.0, 0.1)) == []
    assert [m.key for m in rebalance(waiting, lanes, Hysteresis(300.0, 0.5))] == [2]


def test_a_job_of_several_tasks_needs_several_places():
    waiting = [Pending(0, "a", 4, 5000.0, 100.0)]
    assert rebalance(waiting, [Lane("b", [0.0, 10.0], 50.0)], Hysteresis(0.0, 0.0)) == []
    (move,) = rebalance(waiting, [Lane("b", [0.0, 10.0, 20.0], 50.0, per=2)], Hysteresis(0.0, 0.0))
    assert move.end == 60.0


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3)), max_size=8), some_lanes(), st.floats(0, 100),
    st.floats(0, 0.9),
)  # fmt: skip
def test_moves_never_make_it_worse_and_never_go_back(jobs, lanes, seconds, share):
    hysteresis = Hysteresis(seconds, share)
    waiting = [Pending(key, "x", tasks, float(start), 10.0) for key, (start, tasks) in enumerate(jobs)]
    moves = rebalance(waiting, lanes, hysteresis)
    assert len({m.key for m in moves}) == len(moves)
    for move in moves:
        assert move.before - move.end > max(seconds, share * move.before)
    # Each place is used once.
    used = {}
    for move in moves:
        lane = next(lane for lane in lanes if lane.name == move.to)
        used[move.to] = used.get(move.to, 0) + -(-waiting[move.key].tasks // lane.per)
        assert used[move.to] <= len(lane.starts)
        assert move.end == lane.starts[used[move.to] - 1] + lane.run
