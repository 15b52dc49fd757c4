"""The small policies, and what all that come with Penstock have in common."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doc_pages import DOCS, blocks

from penstock.api import Offer, is_joint
from penstock.core.extensions import POLICIES
from penstock_lab.testing import NODES, make_job, make_snapshot
from penstock_plugins.efficiency import Efficiency
from penstock_plugins.noop import Noop
from penstock_plugins.static import Static
from penstock_plugins.wide import WideOptimization


def offer(size, **more):
    return Offer(1, size, **{"minimum": 1, "maximum": 8, "factor": 2, "nodes": NODES[:size], **more})


def size_of(policy, mine, *others, **changes):
    snapshot = make_snapshot([make_job(1, *mine.nodes), *others])
    return policy.decide(mine, snapshot.jobs[1], replace(snapshot, **changes)).size


def test_every_policy_says_how_it_is_called_and_what_it_does():
    found = {name: POLICIES.load(name) for name in POLICIES.own}
    assert set(found) == {"efficiency", "noop", "priced", "shortest", "static", "throughput", "wide"}
    for name, policy in found.items():
        made = policy()
        assert made.name == name and (is_joint(made) or callable(made.decide))
        assert len(__import__(policy.__module__, fromlist=["x"]).__doc__) > 80, "the docstring is the manual"


def test_noop_stays():
    assert size_of(Noop(), offer(2)) == 2


def test_static_goes_to_the_preferred_size_whatever_the_queue_does():
    static = Static()
    assert size_of(static, offer(8, preferred=4)) == 4
    assert size_of(static, offer(2, preferred=4), make_job(2, num_nodes=6)) == 2, "the queue's plan comes first"
    assert size_of(static, offer(2, preferred=4)) == 4
    assert size_of(static, offer(6, preferred=4)) == 3, "4 cannot be reached by halving"
    assert size_of(static, offer(2, preferred=4), make_job(2, *NODES[3:])) == 2
    assert size_of(static, offer(2)) == 2


def test_efficiency_grows_while_it_pays_and_takes_back_what_did_not():
    policy = Efficiency(0.5)
    assert size_of(policy, offer(2)) == 2, "nothing was measured"
    assert size_of(policy, offer(2, step_seconds=1.0)) == 4, "try"
    assert size_of(policy, offer(4, step_seconds=0.55)) == 8, "nine tenths of perfect"
    assert size_of(policy, offer(8, step_seconds=0.54)) == 4, "a little less than half"
    assert size_of(policy, offer(4, step_seconds=0.55)) == 4, "it knows that 8 did not pay"
    assert size_of(Efficiency(0.4), offer(4, step_seconds=0.55)) == 8


def test_efficiency_tries_again_what_did_not_pay_after_as_long_as_it_has_run():
    policy = Efficiency(0.5)
    for mine, at in ((offer(4, step_seconds=0.55), 0.0), (offer(8, step_seconds=0.56), 60.0)):
        size_of(policy, mine, taken_at=at)
    back = offer(4, step_seconds=0.55)
    assert size_of(policy, back, taken_at=100.0) == size_of(policy, back, taken_at=690.0) == 4
    assert size_of(policy, back, taken_at=701.0) == 8


def test_efficiency_asks_the_queue_and_the_application_first():
    policy = Efficiency()
    assert size_of(policy, offer(2, step_seconds=1.0), make_job(2, num_nodes=5)) == 2
    assert size_of(policy, offer(2, minimum=4)) == 4
    assert size_of(policy, offer(8, maximum=3)) == 2


@pytest.mark.parametrize("state", ["IDLE+POWERED_DOWN", "IDLE+NOT_RESPONDING+POWERING_UP", "IDLE+PLANNED"])
def test_wide_leaves_nodes_alone_that_sleep_or_are_planned_for(state):
    nodes = {n: replace(node, state=state) for n, node in make_snapshot().nodes.items()}
    assert size_of(WideOptimization(), offer(2), nodes=nodes) == 2


def test_a_pending_job_that_cannot_use_the_idle_nodes_does_not_keep_others_from_them():
    wide = WideOptimization()
    assert size_of(wide, offer(2), make_job(2, num_nodes=3)) == 2, "it is about to start"
    assert size_of(wide, offer(2), make_job(2, num_nodes=3, start=30.0)) == 2
    assert size_of(wide, offer(2), make_job(2, num_nodes=3, start=9000.0)) == 8, "Slurm knows that it will not"


def test_a_pending_job_that_takes_a_range_needs_its_smallest_number():
    wide = WideOptimization()
    pending = make_job(2, num_nodes=8, min_nodes=2)
    assert size_of(wide, offer(8), pending) == 4
    assert size_of(wide, offer(4), pending) == 4, "it starts on the idle ones"


def test_the_test_that_the_page_shows_passes():
    (code,) = (block.text for block in blocks(DOCS / "policies.md") if block.language == "python")
    found: dict[str, object] = {}
    exec(code, found)
    found["test_it_grows_onto_idle_nodes"]()
