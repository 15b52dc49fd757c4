"""The policy that takes the resize that saves the most delay x nodes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from malleable_offers import decide_with, offer, scales, seen_by

from penstock.future.queue import QueuePlan, waiting
from penstock_lab.testing import NODES, make_job, make_snapshot
from penstock_plugins.priced import Priced


def decide(offers, *others, policy=None, **more):
    return decide_with(policy or Priced(), offers, *others, **more)


def knows(serial, *sizes, job=1, **more):
    """A policy that saw a job with so much serial work on these sizes."""
    return seen_by(Priced(), *(offer(job, NODES[:n], **scales(serial, n), **more) for n in sizes))


def test_a_job_that_loses_little_gives_up_nodes_to_one_that_waits():
    mine = offer(1, NODES, **scales(0.5, 8))
    assert decide([mine], make_job(2, num_nodes=4), policy=knows(0.5, 4)) == {1: (4, 2)}


def test_a_job_on_many_nodes_is_not_slowed_down_for_a_small_one():
    mine = offer(1, NODES, maximum=8, factor=1, **scales(0.05, 8))
    # Seven nodes instead of eight: 9 % of 1000 s on 8 nodes are 720 node-seconds lost, and 1000 won by the one node.
    assert decide([mine], make_job(2, num_nodes=1), policy=knows(0.05, 4, factor=1)) == {1: (7, 2)}
    halves = offer(1, NODES, **scales(0.05, 8))
    assert decide([halves], make_job(2, num_nodes=1), policy=knows(0.05, 4)) == {1: (8, None)}, "half of them for one"


def test_waiting_is_measured_to_the_end_that_the_job_expects_and_not_to_its_limit():
    short = offer(1, NODES, **scales(0.5, 8, left=12.0))
    assert decide([short], make_job(2, num_nodes=4), policy=knows(0.5, 4)) == {1: (8, None)}, "it ends in a moment"


def test_the_job_that_is_cheapest_for_the_nodes_gives_them_up():
    flat, steep = offer(1, NODES[:4], **scales(0.9, 4)), offer(2, NODES[4:], **scales(0.2, 4))
    policy = Priced()
    decide([offer(1, NODES[:2], **scales(0.9, 2)), offer(2, NODES[2:4], **scales(0.2, 2))], policy=policy)
    assert decide([flat, steep], make_job(3, num_nodes=2), policy=policy) == {1: (2, 3), 2: (4, None)}


def test_jobs_shrink_together_for_one_that_none_of_them_could_help():
    pair = [offer(1, NODES[:4], preferred=2), offer(2, NODES[4:], preferred=2)]
    assert decide(pair, make_job(3, num_nodes=4)) == {1: (2, 3), 2: (2, 3)}, "to the preferred size it costs nothing"
    assert decide(pair, make_job(3, num_nodes=5)) == {1: (4, None), 2: (4, None)}, "not even both would be enough"
    unknown = [offer(1, NODES[:4]), offer(2, NODES[4:])]
    assert decide(unknown, make_job(3, num_nodes=4)) == {1: (4, None), 2: (4, None)}, "nothing is known of them"


def test_what_a_job_was_given_goes_back_though_nothing_is_known_of_it():
    mine = offer(1, NODES, base=2)
    assert decide([mine], make_job(3, num_nodes=4)) == {1: (4, 3)}
    assert decide([mine], make_job(3, num_nodes=7)) == {1: (8, None)}, "that would be its own"


def test_no_belief_keeps_a_job_on_its_size():
    like = seen_by(Priced(), *(offer(1, NODES[:n], **scales(1.0, n)) for n in (1, 2)))
    one = offer(2, NODES[:1], **scales(1.0, 1))
    assert decide([one], policy=like, at=10.0) == {2: (1, None)}
    assert decide([one], policy=like, at=40.0) == {2: (2, None)}
    tried = offer(2, NODES[:2], base=1, **scales(1.0, 2))
    assert decide([tried], policy=like, at=50.0) == {2: (2, None)}, "a first impression"
    assert decide([tried], policy=like, at=75.0) == {2: (1, None)}
    prefers = [offer(1, NODES[:n], preferred=4, **scales(1.0, n)) for n in (1, 2)]
    assert decide([replace(one, preferred=4)], policy=seen_by(Priced(), *prefers)) == {2: (2, None)}


def test_the_wide_job_that_waits_is_worth_more_than_the_narrow_one_behind_it():
    mine = offer(1, NODES[:6], factor=1, **scales(0.6, 6))
    wide, narrow = make_job(3, num_nodes=4, priority=9), make_job(4, num_nodes=3, priority=5)
    chosen = decide([mine], wide, narrow, policy=knows(0.6, 3, factor=1))
    assert chosen == {1: (4, 3)}, "two idle ones and two of its own"


def test_idle_nodes_go_to_whom_they_save_most():
    flat, steep = offer(1, NODES[:2], **scales(0.9, 2)), offer(2, NODES[2:4], **scales(0.0, 2))
    policy = Priced()
    decide([offer(1, NODES[:1], **scales(0.9, 1)), offer(2, NODES[1:2], **scales(0.0, 1))], policy=policy)
    assert decide([flat, steep], make_job(3, "n7", "n8"), policy=policy) == {1: (2, None), 2: (4, None)}
    nearly_done = offer(2, NODES[2:4], **scales(0.0, 2, left=20.0))
    assert decide([nearly_done]) == {2: (2, None)}, "growing is not worth it at the end"


def test_nodes_that_slurm_has_planned_for_another_are_left_alone():
    mine, other = offer(1, NODES[:2]), make_job(2, *NODES[2:5], end=1800.0)
    assert decide([mine], other, make_job(3, num_nodes=6)) == {1: (2, None)}


def test_what_the_application_demands_comes_first():
    assert decide([offer(1, NODES[:4], maximum=2)]) == {1: (2, None)}
    assert decide([offer(1, NODES[:2], minimum=4, **scales(0.0, 2, left=1.0))]) == {1: (4, None)}


def test_resizes_under_way_are_counted():
    leaving = offer(2, NODES[:4], target=2)
    assert decide([leaving, offer(1, NODES[4:], preferred=2)], make_job(3, num_nodes=2)) == {1: (4, None)}
    growing = offer(2, NODES[:2], target=4, coming=2)
    assert decide([growing, offer(1, NODES[2:4])])[1] == (4, None), "two of the four idle ones are spoken for"
    granted = offer(2, NODES[:2], target=4)
    companion = make_job(9, *NODES[4:6])
    assert decide([granted, offer(1, NODES[2:4])], companion)[1] == (4, None), "what it has got is not idle any more"


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whom_it_shrinks_for_can_start_and_what_it_grows_onto_is_idle(data):
    cuts = sorted(data.draw(st.lists(st.integers(0, 8), min_size=2, max_size=3, unique=True)))
    spans = [(a, b) for a, b in zip([0, *cuts], [*cuts, 8], strict=True) if a < b][:3]
    offers = [
        offer(
            number,
            NODES[a:b],
            factor=data.draw(st.sampled_from([1, 2])),
            preferred=data.draw(st.sampled_from([None, 1, 2])),
            **scales(data.draw(st.sampled_from([0.0, 0.1, 0.6])), b - a),
        )
        for number, (a, b) in enumerate(spans, 1)
    ]
    waits = data.draw(st.lists(st.tuples(st.integers(1, 8), st.sampled_from([600.0, 3600.0])), max_size=4))
    pending = [make_job(10 + i, num_nodes=n, priority=100 - i, time_limit=t) for i, (n, t) in enumerate(waits)]
    snapshot = make_snapshot([*(make_job(o.job, *o.nodes) for o in offers), *pending])
    policy = Priced()
    policy.decide_all([replace(o, size=1, nodes=o.nodes[:1], **scales(0.1, 1)) for o in offers], snapshot)
    verdicts = policy.decide_all(offers, snapshot)
    assert set(verdicts) == {o.job for o in offers}
    freed = [n for o in offers for n in o.nodes[verdicts[o.job].size :]]
    assert sum(max(verdicts[o.job].size - o.size, 0) for o in offers) <= len(snapshot.idle_nodes("batch"))
    assert all(verdicts[o.job].size in (o.size, *o.reachable()) for o in offers)
    plan = QueuePlan(snapshot, "batch", freed)
    started = {p.id for p in waiting(snapshot, "batch") if plan.place(p)}
    assert {v.beneficiary for v in verdicts.values() if v.beneficiary is not None} <= started
