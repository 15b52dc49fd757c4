"""The paper's policy: this situation gives this verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import JobState, Offer
from penstock_lab.testing import NODES, make_job, make_snapshot
from penstock_plugins.wide import WideOptimization

POLICY = WideOptimization()


def verdict(size, *others, minimum=1, maximum=8, factor=2, preferred=None, per_node=1, down=()):
    nodes = NODES[: size // per_node]
    offer = Offer(1, size, minimum, maximum, factor, preferred, per_node, nodes)
    mine = make_job(1, *nodes)
    return POLICY.decide(offer, mine, make_snapshot([mine, *others], down=down))


def test_grows_onto_idle_nodes_as_far_as_they_reach():
    assert verdict(2).size == 8
    assert verdict(2, make_job(2, "n8")).size == 4, "five idle nodes: 8 would need six"
    assert verdict(2, maximum=4).size == 4
    assert verdict(2, down=NODES[3:]).size == 2


def test_a_pending_job_that_fits_keeps_the_idle_nodes():
    answer = verdict(2, make_job(2, num_nodes=3))
    assert answer.size == 2 and answer.reasons[0].code == "startable"


def test_shrinks_just_far_enough_for_a_pending_job():
    busy = make_job(2, "n8")
    assert verdict(4, busy, make_job(3, num_nodes=4)).size == 2, "three idle, one missing: 4 -> 2 frees two"
    answer = verdict(4, busy, make_job(3, num_nodes=5))
    assert (answer.size, answer.beneficiary) == (2, 3)
    assert verdict(4, busy, make_job(3, num_nodes=7), minimum=2).size == 4, "even 2 would not free enough"


def test_nodes_planned_for_a_pending_job_are_idle_for_it_and_for_nobody_else():
    offer = Offer(1, 4, 2, 8, 2, None, 1, NODES[:4])
    pending = make_job(3, num_nodes=6)
    snapshot = make_snapshot([make_job(1, *NODES[:4]), pending])
    planned = {n: replace(node, state="IDLE+PLANNED") for n, node in snapshot.nodes.items()}
    assert POLICY.decide(offer, snapshot.jobs[1], replace(snapshot, nodes=planned)).size == 2
    alone = replace(snapshot, nodes=planned, jobs={1: snapshot.jobs[1]})
    assert POLICY.decide(offer, snapshot.jobs[1], alone).size == 4


def test_the_first_pending_job_that_can_be_helped_is():
    answer = verdict(8, make_job(2, num_nodes=8, priority=900), make_job(3, num_nodes=4, priority=5), minimum=2)
    assert (answer.size, answer.beneficiary) == (4, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "QOSMaxJobsPerUserLimit"},
        {"reason": "Dependency", "eligible": None},
        {"reason": "JobHeldUser", "priority": 0},
        {"reason": "Resources", "dependency": "expand:1"},
        {"partition": "other"},
        {"state": JobState.COMPLETED},
    ],
)
def test_jobs_that_nodes_would_not_help_do_not_count(change):
    assert verdict(4, make_job(2, **{"num_nodes": 6, **change})).size == 8


def test_requested_actions():
    assert verdict(2, minimum=4).size == 8
    assert verdict(8, minimum=1, maximum=4).size == 4
    assert verdict(2, make_job(2, num_nodes=1), minimum=4).size == 2, "the cluster has the last word"


def test_preferred_size():
    pending = make_job(9, num_nodes=8)
    assert verdict(2, preferred=4).size == 8, "nothing pending: up to the maximum"
    assert verdict(4, pending, preferred=4).size == 4
    assert verdict(8, pending, preferred=4).size == 4
    assert verdict(2, pending, preferred=4).size == 4


def test_several_ranks_on_a_node():
    assert verdict(4, per_node=2, maximum=16).size == 16
    assert verdict(4, make_job(2, *NODES[4:]), per_node=2, maximum=16).size == 8


@given(
    size=st.sampled_from([1, 2, 4, 8]),
    widths=st.lists(st.integers(1, 8), max_size=4),
    taken=st.integers(0, 8),
    preferred=st.none() | st.sampled_from([1, 2, 4, 8]),
    factor=st.integers(1, 3),
)
def test_the_verdict_is_always_possible(size, widths, taken, preferred, factor):
    free = list(NODES[size:])
    others = [make_job(2, *free[:taken])] if free[:taken] else []
    others += [make_job(10 + i, num_nodes=w) for i, w in enumerate(widths)]
    answer = verdict(size, *others, factor=factor, preferred=preferred)
    offer = Offer(1, size, 1, 8, factor)
    assert answer.size == size or answer.size in offer.reachable()
    assert answer.size - size <= max(0, len(free) - taken)
    assert answer.reasons
