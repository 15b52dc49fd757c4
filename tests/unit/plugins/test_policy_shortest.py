"""The policy that says which of an owner's jobs go first: those with least work, as runs like them have shown."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from malleable_offers import decide_with, offer

from penstock.api import RanksQueue
from penstock_lab.testing import NODES, make_job, make_snapshot
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


def known(policy, *offers):
    """The policy, after it has seen that these programs' kinds scale: 1 s serial and 8 s parallel of a step."""
    for each in offers:
        for size in (2, 4):
            one = replace(each, size=size, nodes=NODES[:size], steps_left=100, step_seconds=1 + 8 / size)
            decide_with(policy, [one])
    return policy


def test_a_long_queue_packs_jobs_as_tightly_as_is_best_for_all():
    program = offer(1, NODES[:8], minimum=1, maximum=8, factor=1, preferred=8, steps_left=100, step_seconds=2.0)
    queue = [pending(10 + n, 1, 8, priority=100 - n) for n in range(1, 20)]
    alone = decide_with(known(Shortest(), program), [program])
    one = decide_with(known(Shortest(), program), [program], queue[0])
    many = decide_with(known(Shortest(), program), [program], *queue)
    assert alone == {1: (8, None)}
    assert alone[1][0] > one[1][0] > many[1][0], "each of 20 jobs has less than each of two"
    assert one[1][0] in (4, 5) and one[1][1] == 11, "two equal jobs share about equally"


def test_who_waits_gets_half_of_what_is_best_for_it_at_least():
    program = offer(1, NODES[:3], minimum=1, maximum=8, factor=1, preferred=3, steps_left=10, step_seconds=3.67)
    rest = make_job(2, *NODES[3:], uid=1001)
    decided = decide_with(known(Shortest(), program), [program], rest, pending(7, 1, 8))
    assert decided[1] in ((3, None), (2, 7), (1, 7))


def test_speeds_that_are_not_known_are_treated_as_by_throughput():
    offers = [
        offer(1, NODES[:4], **{**LONG, "preferred": 2}, steps_left=100, step_seconds=5.0),
        offer(2, NODES[4:], **{**SHORT, "maximum": 8}),
    ]
    queue = [pending(7, 1, 1), pending(8, 2, 4), pending(9, 6, 6)]
    assert decide_with(Shortest(), offers, *queue) == decide_with(Throughput(), offers, *queue)


def test_two_that_see_the_same_decide_the_same():
    program = offer(1, NODES[:8], minimum=1, maximum=8, factor=1, preferred=8, steps_left=100, step_seconds=2.0)
    queue = [pending(10 + n, 1, 8, priority=100 - n) for n in range(1, 9)]
    first, second = (decide_with(known(Shortest(), program), [program], *queue) for _ in range(2))
    assert first == second


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
