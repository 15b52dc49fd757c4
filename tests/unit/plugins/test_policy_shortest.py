"""The policy that says which of an owner's jobs go first: those with least work, as runs like them have shown."""

from __future__ import annotations

from factories import NODES, make_job, make_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from malleable_offers import decide_with, offer

from penstock.api import RanksQueue
from penstock_plugins.shortest import Shortest
from penstock_plugins.throughput import Throughput

SHORT = {"minimum": 1, "maximum": 4, "preferred": 1}
LONG = {"minimum": 2, "maximum": 8, "preferred": 4}


def taught(*more):
    """A policy that has seen a run of 100 s on one node, and one of 500 s on two."""
    policy = Shortest()
    short = offer(1, NODES[:1], **SHORT, steps_left=100, step_seconds=1.0)
    long = offer(2, NODES[1:3], **LONG, steps_left=100, step_seconds=5.0)
    decide_with(policy, [short, long, *more])
    return policy


def pending(number, fewest, most, **more):
    return make_job(number, num_nodes=most, min_nodes=None if fewest == most else fewest, **more)


def test_only_this_policy_ranks_the_queue():
    assert isinstance(Shortest(), RanksQueue) and not isinstance(Throughput(), RanksQueue)


def test_who_has_more_work_has_a_higher_rank():
    policy = taught()
    ranks = policy.ranks(make_snapshot([pending(7, 2, 4), pending(8, 1, 1)]))
    assert ranks[8] < ranks[7]
    whole = policy.ranks(make_snapshot([pending(7, 2, 8), pending(8, 1, 4)]))
    assert whole == ranks, "up to the maximum it is the same program"


def test_what_it_does_not_know_stays_where_it_is():
    policy = taught()
    stranger = pending(9, 2, 4, uid=1001, user="bob")
    assert policy.ranks(make_snapshot([pending(7, 3, 4), pending(8, 4, 4), stranger])) == {}
    assert Shortest().ranks(make_snapshot([pending(7, 2, 4)])) == {}


def test_who_waits_for_something_else_is_not_ranked():
    assert taught().ranks(make_snapshot([pending(7, 2, 4, reason="Dependency", dependency="afterok:1")])) == {}


def test_a_job_that_was_first_seen_halfway_is_no_shorter():
    early, late = Shortest(), Shortest()
    decide_with(early, [offer(1, NODES[:2], **LONG, steps_left=100, step_seconds=5.0)])
    decide_with(late, [offer(1, NODES[:2], **LONG, steps_left=50, step_seconds=5.0)], at=250.0)
    waiting = make_snapshot([pending(7, 2, 4)])
    assert early.ranks(waiting) == late.ranks(waiting) != {}


def test_a_run_counts_once_however_often_it_is_seen():
    once, often = taught(), taught()
    for left in (80, 60, 40):
        decide_with(often, [offer(2, NODES[1:3], **LONG, steps_left=left, step_seconds=5.0)], at=5.0 * (100 - left))
    waiting = make_snapshot([pending(7, 2, 4)])
    assert once.ranks(waiting) == often.ranks(waiting)


def test_a_program_that_does_not_say_how_far_it_is_teaches_nothing():
    policy = Shortest()
    decide_with(policy, [offer(1, NODES[:2], **LONG), offer(2, NODES[2:4], **LONG, steps_left=5)])
    assert policy.ranks(make_snapshot([pending(7, 2, 4)])) == {}


@settings(deadline=None, max_examples=50)
@given(st.floats(1, 1e5), st.floats(1, 1e5))
def test_ranks_go_with_work_and_sizes_are_those_of_throughput(one, other):
    policy = Shortest()
    offers = [
        offer(1, NODES[:1], **SHORT, steps_left=1, step_seconds=one),
        offer(2, NODES[1:3], **LONG, steps_left=1, step_seconds=other),
    ]
    queue = [pending(7, 1, 1), pending(8, 2, 4)]
    assert decide_with(policy, offers, *queue) == decide_with(Throughput(), offers, *queue)
    ranks = policy.ranks(make_snapshot(queue))
    assert set(ranks) == {7, 8} and (ranks[7] - ranks[8]) * (one - 2 * other) >= 0
