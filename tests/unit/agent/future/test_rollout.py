"""A queue played through at a price of nodes: worked by hand, and against a plain simulation of the same rules."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.future.rollout import PlayedJob, price, total


def rigid(seconds, nodes, running=False):
    return PlayedJob(seconds, 0.0, nodes, nodes, nodes if running else 0)


def test_the_price_is_jobs_for_each_node():
    assert price(1.0, 128, 64) == 2.0
    assert price(0.5, 3, 0) == 1.5, "no node at all is no reason to fail"


@given(st.floats(0, 1e4), st.floats(0, 1e5), st.integers(1, 8), st.integers(0, 60), st.floats(0, 100))
def test_the_best_size_is_the_one_that_costs_least(serial, parallel, least, more, each):
    load = PlayedJob(serial, parallel, least, least + more)
    costs = {n: load.seconds(n) * (1 + each * n) for n in range(least, least + more + 1)}
    assert costs[load.best(each)] <= min(costs.values()) * (1 + 1e-9)


def test_dear_nodes_make_small_jobs():
    load = PlayedJob(160.0, 2300.0, 2, 32)
    assert [load.best(p) for p in (0.0, 0.01, 0.1, 1.0, 10.0)] == [32, 32, 12, 4, 2]


def test_rigid_jobs_follow_one_another():
    assert total([rigid(100, 4, running=True)], [rigid(10, 4), rigid(20, 2), rigid(5, 2)], 4, 1.0) == (
        100 + 110 + 130 + 115
    )


def test_nobody_overtakes_and_who_needs_more_than_all_is_left_out():
    running = [rigid(100, 3, running=True)]
    assert total(running, [rigid(10, 2), rigid(1, 1)], 4, 1.0) == 100 + 110 + 101
    assert total(running, [rigid(10, 9), rigid(1, 1)], 4, 1.0) == 100 + 1


def test_who_runs_gives_up_nodes_only_while_somebody_waits():
    running = [PlayedJob(0.0, 800.0, 1, 8, 8)]
    assert total(running, [], 8, 4.0) == 100
    # Nodes are dear: it shrinks to one, and both end on one each, from when on the other has its share of the rest.
    dear = total(running, [PlayedJob(0.0, 100.0, 1, 8, start=1)], 8, 1000.0)
    assert dear == pytest.approx(2 * 900 / 8, rel=0.35)


def test_what_becomes_free_goes_to_those_that_are_left():
    alone = total([rigid(50, 4, running=True), PlayedJob(0.0, 800.0, 4, 8, 4)], [], 8, 1.0)
    assert alone == pytest.approx(50 + 50 + (800 - 50 * 4) / 8, rel=1e-3)


def test_an_equal_share_for_equal_jobs():
    both = [PlayedJob(0.0, 400.0, 1, 8, 1), PlayedJob(0.0, 400.0, 1, 8, 1)]
    assert total(both, [], 8, 1.0) == pytest.approx(2 * 100, rel=1e-3)


def test_nothing_takes_no_time():
    assert total([], [], 8, 1.0) == 0.0
    assert total([rigid(0.0, 2, running=True)], [], 8, 1.0) == 0.0


_RIGID = st.tuples(st.floats(1, 1000), st.integers(1, 6))


@settings(max_examples=200)
@given(st.lists(_RIGID, max_size=3), st.lists(_RIGID, max_size=8))
def test_rigid_queues_end_as_in_a_plain_simulation(running, queue):
    begun, free = [], 6
    for seconds, nodes in running:
        if nodes <= free:
            begun.append((seconds, nodes))
            free -= nodes
    now, ends, found = 0.0, [*begun], [seconds for seconds, _ in begun]
    for seconds, nodes in queue:
        while nodes > 6 - sum(n for end, n in ends if end > now):
            now = min(end for end, _ in ends if end > now)
        ends.append((now + seconds, nodes))
        found.append(now + seconds)
    played = total([rigid(s, n, running=True) for s, n in begun], [rigid(s, n) for s, n in queue], 6, 1.0)
    assert played == pytest.approx(sum(found))


_LOADS = st.builds(
    lambda serial, parallel, least, more: PlayedJob(serial, parallel, least, least + more),
    st.floats(1, 500),
    st.floats(0, 5000),
    st.integers(1, 3),
    st.integers(0, 5),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_LOADS, min_size=1, max_size=10), st.floats(0.05, 10))
def test_no_price_beats_what_no_scheduler_can(loads, dearness):
    played = total([], loads, 8, dearness)
    assert math.isfinite(played)
    assert played >= sum(load.seconds(load.most) for load in loads) * (1 - 1e-9)
    # No node does more in a second than on the fewest nodes, and the shortest go first at best.
    works, done = sorted(load.seconds(load.least) * load.least for load in loads), 0.0
    least = 0.0
    for work in works:
        done += work / 8
        least += done
    assert played >= least * (1 - 1e-9)
