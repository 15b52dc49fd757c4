"""The shipped policy: all malleable jobs in view of each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malleable_offers import decide_with, offer, scales, seen_by

from penstock.api import is_joint
from penstock.future.queue import QueuePlan, waiting
from penstock.future.speeds import Speeds
from penstock_lab.testing import NODES, make_job, make_snapshot
from penstock_plugins.priced import Priced
from penstock_plugins.shortest import Shortest
from penstock_plugins.throughput import Throughput


def decide(offers, *others, policy=None, **more):
    return decide_with(policy or Throughput(), offers, *others, **more)


def seen(*offers):
    return seen_by(Throughput(), *offers)


def test_it_is_a_joint_policy():
    assert is_joint(Throughput())


def test_several_jobs_shrink_together_for_one_that_none_of_them_could_help():
    pair = [offer(1, NODES[:4], preferred=2), offer(2, NODES[4:], preferred=2)]
    assert decide(pair, make_job(3, num_nodes=4)) == {1: (2, 3), 2: (2, 3)}
    assert decide(pair, make_job(3, num_nodes=5)) == {1: (4, None), 2: (4, None)}, "not even both would be enough"


def test_no_more_is_given_up_than_is_missing():
    pair = [offer(1, NODES[:4], preferred=1), offer(2, NODES[4:6], preferred=1)]
    verdicts = decide(pair, make_job(3, num_nodes=4))
    assert sum(size for size, _ in verdicts.values()) == 4, "two are idle, two are missing"


def test_who_loses_least_gives_up_nodes():
    flat, steep = offer(1, NODES[:4], **scales(0.9, 4)), offer(2, NODES[4:], **scales(0.0, 4))
    policy = seen(offer(1, NODES[:2], **scales(0.9, 2)), offer(2, NODES[:2], **scales(0.0, 2)))
    both = [replace(o, preferred=2) for o in (flat, steep)]
    assert decide(both, make_job(3, num_nodes=2), policy=policy) == {1: (2, 3), 2: (4, None)}


def test_nobody_shrinks_when_slurm_would_give_the_nodes_to_another():
    jobs = [offer(1, NODES[:4], minimum=2, preferred=2)]
    other = make_job(2, *NODES[4:])
    first = make_job(3, num_nodes=6, priority=900)
    later = make_job(4, num_nodes=2, priority=5)
    assert decide(jobs, other, later) == {1: (2, 4)}
    # The first in line would be promised the freed nodes for when the other job ends, and the later one runs longer.
    assert decide(jobs, replace(other, end=1800.0), first, later) == {1: (4, None)}


def test_below_the_preferred_size_only_as_far_as_it_pays():
    mine = offer(1, NODES, preferred=8, **scales(0.1, 8))
    pending = [make_job(n, num_nodes=4, priority=100 - n) for n in range(3, 60)]
    assert decide([mine], *pending) == {1: (8, None)}, "it was never seen on another size"
    known = offer(1, NODES[:4], **scales(0.1, 4))
    assert decide([mine], *pending, policy=seen(known))[1] == (4, 3)
    # 2 * speed(4) / speed(8) - 1 is 0.31 here: less than the third that it takes where nobody else waits.
    assert decide([mine], pending[0], policy=seen(known))[1] == (8, None)
    perfect = offer(1, NODES, preferred=8, **scales(0.0, 8))
    assert decide([perfect], *pending, policy=seen(offer(1, NODES[:4], **scales(0.0, 4))))[1] == (8, None)


def test_jobs_with_the_same_limits_count_until_a_job_was_seen_on_two_sizes():
    mine = offer(2, NODES, preferred=8, **scales(0.3, 8))
    like = [offer(1, NODES[:n], preferred=8, **scales(0.3, n)) for n in (4, 8)]
    pending = make_job(3, num_nodes=4)
    assert decide([mine], pending)[2] == (8, None)
    policy = seen(*like)
    assert decide([mine], pending, policy=policy)[2] == (4, 3)


def test_idle_nodes_go_to_whom_they_save_most():
    flat, steep = offer(1, NODES[:2], **scales(0.9, 2)), offer(2, NODES[2:4], **scales(0.0, 2))
    policy = seen(offer(1, NODES[:1], **scales(0.9, 1)), offer(2, NODES[:1], **scales(0.0, 1)))
    assert decide([flat, steep], make_job(3, "n7", "n8"), policy=policy) == {1: (2, None), 2: (4, None)}
    assert decide([flat, steep], policy=policy) == {1: (4, None), 2: (4, None)}


def test_growing_is_not_worth_it_at_the_end():
    assert decide([offer(1, NODES[:4], **scales(0.0, 4, left=20.0))]) == {1: (4, None)}
    assert decide([offer(1, NODES[:4], **scales(0.0, 4, left=60.0))]) == {1: (8, None)}


def test_nodes_of_a_pending_job_are_left_alone_and_those_that_it_cannot_use_are_not():
    mine = offer(1, NODES[:2])
    assert decide([mine], make_job(3, num_nodes=3)) == {1: (4, None)}, "it starts by itself, on three of six"
    assert decide([mine], make_job(3, num_nodes=5)) == {1: (2, None)}
    elsewhere = make_job(3, num_nodes=3, start=5000.0)
    assert decide([mine], elsewhere) == {1: (8, None)}, "Slurm says that it starts later: these are not its nodes"


def test_a_reservation_of_slurms_plan_is_kept():
    mine, other = offer(1, NODES[:2]), make_job(2, *NODES[2:5], end=1800.0)
    first = make_job(3, num_nodes=6)
    assert decide([mine], other, first) == {1: (2, None)}, (
        "its end is after that of the other job, which the first awaits"
    )


def test_nodes_that_sleep_are_nobodys():
    mine = make_job(1, *NODES[:2])
    snapshot = make_snapshot([mine])
    asleep = {n: replace(node, state="IDLE+POWERED_DOWN") for n, node in snapshot.nodes.items()}
    verdict = Throughput().decide_all([offer(1, NODES[:2])], replace(snapshot, nodes=asleep))[1]
    assert verdict.size == 2


def test_resizes_under_way_are_counted():
    leaving = offer(2, NODES[:4], target=2)
    verdicts = decide([leaving, offer(1, NODES[4:], preferred=2)], make_job(3, num_nodes=2))
    assert verdicts == {1: (4, None)}, "the nodes that job 2 is about to give back are enough"
    growing = offer(2, NODES[:2], target=4, coming=2)
    assert decide([growing, offer(1, NODES[2:4])])[1] == (4, None), "two of the four idle ones are spoken for"
    granted = offer(2, NODES[:2], target=4)
    companion = make_job(9, *NODES[4:6])
    assert decide([granted, offer(1, NODES[2:4])], companion)[1] == (4, None), "what it has got is not idle any more"


def test_what_the_application_demands():
    assert decide([offer(1, NODES[:4], maximum=2)]) == {1: (2, None)}
    short = offer(1, NODES[:2], minimum=4, **scales(0.0, 2, left=1.0))
    assert decide([short]) == {1: (4, None)}


def test_where_speeds_are_unknown_what_it_was_given_goes_back_and_no_more():
    mine, pending = offer(1, NODES, base=2), make_job(3, num_nodes=4)
    assert decide([mine], pending) == {1: (4, 3)}
    assert decide([mine], replace(pending, num_nodes=6)) == {1: (2, 3)}
    assert decide([mine], replace(pending, num_nodes=7)) == {1: (8, None)}, "that would be its own"
    assert decide([replace(mine, base=8)], pending) == {1: (8, None)}
    assert reason_of(Throughput(), replace(mine, base=8), pending).code == "speed-unknown"
    assert "could start on what it can give up" in reason_of(Throughput(), mine, replace(pending, num_nodes=7)).text


def reason_of(policy, mine, *others, at=0.0):
    """Why it is to have the size that it is to have."""
    snapshot = make_snapshot([make_job(mine.job, *mine.nodes), *others], at=at)
    return policy.decide_all([mine], snapshot)[mine.job].reasons[0]


def test_while_nobody_waits_it_grows_to_its_preferred_size_whatever_is_believed():
    one = offer(2, NODES[:1], preferred=4, **scales(1.0, 1))
    like = seen(*(replace(one, job=1, size=n, nodes=NODES[:n]) for n in (1, 2)))
    assert decide([one], policy=like) == {2: (4, None)}
    assert reason_of(like, one).code == "expand-preferred"
    assert decide([replace(one, steps_left=10)], policy=like) == {2: (1, None)}, "it ends in a moment"


def test_a_size_that_others_found_useless_is_tried_and_given_back_where_it_is():
    like = seen(*(offer(1, NODES[:n], **scales(1.0, n)) for n in (1, 2)))
    one = offer(2, NODES[:1], **scales(1.0, 1))
    assert decide([one], policy=like, at=10.0) == {2: (1, None)}
    assert decide([one], make_job(3, num_nodes=8), policy=like, at=40.0) == {2: (1, None)}, "not while others wait"
    assert decide([one], policy=like, at=40.0) == {2: (2, None)}
    assert reason_of(like, one, at=40.0).code == "expand-trial"
    tried = offer(2, NODES[:2], base=1, **scales(1.0, 2))
    assert decide([tried], policy=like, at=50.0) == {2: (2, None)}, "a first impression"
    assert decide([tried], policy=like, at=75.0) == {2: (1, None)}
    assert decide([replace(tried, preferred=2)], policy=like, at=75.0) == {2: (2, None)}
    assert decide([replace(tried, base=2)], policy=like, at=75.0) == {2: (2, None)}


@pytest.mark.parametrize(("serial", "size"), [(0.0, 5), (0.2, 3), (1.0, 7)])
def test_speeds_between_and_beyond_what_was_measured(serial, size):
    speeds = Speeds()
    assert not speeds.known and speeds.at(4) == pytest.approx(speeds.at(2) / 2)
    for measured in (2, 8):
        speeds.saw(offer(1, NODES[:measured], **scales(serial, measured)))
    assert speeds.known and speeds.at(size) == pytest.approx(serial + (1 - serial) / size)
    assert speeds.scaling(2, 4) == pytest.approx(1.0 if serial == 0 else 0.0 if serial == 1 else 2 / 3)


@pytest.mark.parametrize("of", [Throughput, Shortest])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_plan_that_is_carried_out_helps_whom_it_says_and_takes_what_is_there(of, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, 8), min_size=2, max_size=3, unique=True)))
    spans = [(a, b) for a, b in zip([0, *cuts], [*cuts, 8], strict=True) if a < b][:3]
    offers = []
    for number, (a, b) in enumerate(spans, 1):
        serial = data.draw(st.sampled_from([0.0, 0.1, 0.6]))
        preferred = data.draw(st.sampled_from([None, 1, 2]))
        factor = data.draw(st.sampled_from([1, 2]))
        offers.append(offer(number, NODES[a:b], 1, 8, factor, preferred, **scales(serial, b - a)))
    waits = data.draw(st.lists(st.tuples(st.integers(1, 8), st.sampled_from([600.0, 3600.0])), max_size=4))
    pending = [make_job(10 + i, num_nodes=n, priority=100 - i, time_limit=t) for i, (n, t) in enumerate(waits)]
    snapshot = make_snapshot([*(make_job(o.job, *o.nodes) for o in offers), *pending])
    policy = of()
    for each in offers:
        seen_before = replace(each, size=1, nodes=each.nodes[:1], **scales(0.1, 1))
        policy.decide_all([seen_before], snapshot)
    verdicts = policy.decide_all(offers, snapshot)
    assert set(verdicts) == {o.job for o in offers}
    grown, freed = 0, []
    for each in offers:
        size = verdicts[each.job].size
        assert size in (each.size, *each.reachable()) and verdicts[each.job].reasons
        grown += max(size - each.size, 0)
        freed += each.nodes[size:]
    assert grown <= len(snapshot.idle_nodes("batch"))
    plan = QueuePlan(snapshot, "batch", freed)
    started = {p.id for p in waiting(snapshot, "batch") if plan.place(p)}
    assert {v.beneficiary for v in verdicts.values() if v.beneficiary is not None} <= started


@pytest.mark.parametrize(("policy", "told"), [(Throughput, "3 more nodes idle"), (Priced, "1 more node idle")])
def test_a_growth_in_several_steps_is_told_as_a_whole(policy, told):
    """From one node to four by a step of one and one of two: three more, not the two of the last step."""
    job = offer(1, NODES[:1], maximum=4, **scales(0.0, 1))
    verdict = policy().decide_all([job], make_snapshot([make_job(1, *NODES[:1])]))[1]
    assert verdict.reasons[0].text.startswith(told) and verdict.size == 1 + int(told[0])
