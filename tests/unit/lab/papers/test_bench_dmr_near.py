"""penstock bench dmr --part bound and others-pairs: what of them is arithmetic, and one small pair."""

from __future__ import annotations

import pytest

from penstock_lab.papers.dmr.nearness import Near, goals, nearness
from penstock_lab.papers.dmr.others_paired import POLICIES, Loss, judged, pair


def test_cuts_are_means_over_seeds():
    completions = {
        (1, 50, "fixed"): 100.0,
        (1, 50, "queue's order"): 40.0,
        (1, 50, "reordered"): 30.0,
        (2, 50, "fixed"): 200.0,
        (2, 50, "queue's order"): 60.0,
        (2, 50, "reordered"): 50.0,
    }
    found = nearness(completions, {(1, 50): 20.0, (2, 50): 50.0})
    assert [(f.order, f.cut, f.at_most, f.missing.value) for f in found] == [
        ("queue's order", 65.0, 77.5, 12.5),
        ("reordered", 72.5, 77.5, 5.0),
    ]
    assert [(f.missing.low, f.missing.high) for f in found] == [(5.0, 20.0), (0.0, 10.0)], "each seed by its own bound"


def test_goals_are_points_below_the_bound():
    near, far = goals([Near(100, "queue's order", [77.0], [79.9]), Near(100, "reordered", [77.0], [79.9])])
    assert near.reached and near.at_most == 3.0
    assert not far.reached and far.at_most == 1.5


def test_pairs_have_intervals():
    row = judged("shortest", "calm", [Loss(10.0, 0.1, 90.0, 50.0), Loss(-10.0, 0.0, 20.0, 70.0)])
    assert (row.pairs, row.most, row.delay.value, row.gain.value) == (2, 90.0, 0.0, 60.0)
    assert row.delay.low < 0 < row.delay.high
    assert row.row()["late"] == pytest.approx(0.05)


def test_a_pair_differs_in_nothing_but_resizes():
    for policy in POLICIES:
        loss = pair(1, jobs=8, policy=policy)
        assert loss.gain > 0, "there are nodes for them to grow onto"
        assert loss.most >= loss.delay
