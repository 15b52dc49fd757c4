"""Bounds by bins of the expected wait: they cover what they promise, in each bin, and say nothing they cannot know."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.values.waits import Estimate, Known, Observation
from penstock.waits.learners.base import BOUND, LIMITS, PLANNED
from penstock.waits.learners.bounds import Bounds
from penstock.waits.learners.common import Common
from penstock.waits.learners.judged import Judged

waits = st.floats(0, 1e6, allow_nan=False)
observations = st.builds(Observation, waits, st.sampled_from(Known))


def covered(pairs, bounds=None):
    """By (estimate, wait): whether each wait lay within what was said before it was known."""
    bounds, within = Bounds() if bounds is None else bounds, []
    for estimate, wait in pairs:
        said = bounds.bound(estimate)
        within.append(wait <= said)
        bounds.add(Observation(wait), estimate, said)
    return np.array(within)


def stream(rng, n, scatter):
    """Estimates over six decades, and waits about them that scatter by so many decades, which may depend on both."""
    logs = rng.uniform(0, 6, n)
    return [(10**x, 10 ** max(x + scatter(i, x) * rng.standard_normal(), 0.0)) for i, x in enumerate(logs.tolist())]


@pytest.mark.parametrize(
    "scatter",
    [lambda i, x: 0.3, lambda i, x: 1.2 - 0.2 * x, lambda i, x: 0.2 + i / 12_000],
    ids=["alike", "more where it should be short", "more and more"],
)
def test_each_part_of_the_estimates_gets_what_it_was_promised(scatter):
    pairs = stream(np.random.default_rng(1), 12_000, scatter)
    within = covered(pairs)
    assert within.mean() == pytest.approx(0.95, abs=0.01)
    order = np.argsort([estimate for estimate, _ in pairs])
    for tenth in np.array_split(within[order], 10):
        assert tenth.mean() == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("factor", "later"), [(1.0, 100.0), (100.0, 1.0)])
def test_when_the_level_of_the_waits_shifts_the_promise_is_kept_again_once_the_old_waits_are_forgotten(factor, later):
    pairs = stream(np.random.default_rng(2), 16_000, lambda i, x: 0.3)
    pairs = [(estimate, wait * (factor if i < 8000 else later)) for i, (estimate, wait) in enumerate(pairs)]
    within = covered(pairs, Bounds(keep=1000))
    assert within[12_000:].mean() == pytest.approx(0.95, abs=0.02)
    assert within[8000:].mean() == pytest.approx(0.95, abs=0.02), "what was missed is made up for"
    assert within[:8000].mean() == pytest.approx(0.95, abs=0.015)
    assert 0.8 < within[8000:9000].mean() <= 1.0


def test_a_bound_is_read_off_the_waits_of_its_own_bin():
    """A hundred jobs that should start at once and wait up to 100 s, a hundred that should wait 10,000 s and do."""
    bounds = Bounds()
    for i in range(400):
        bounds.add(Observation(float(i % 100)), 1.0)
        bounds.add(Observation(10_000.0), 10_000.0)
    assert 94 <= bounds.bound(1.0) <= 99
    assert bounds.bound(10_000.0) == pytest.approx(10_000, rel=1e-3)


@given(st.lists(st.tuples(observations, waits), max_size=150), waits)
@settings(max_examples=50, deadline=None)
def test_quantiles_ascend_and_a_restart_changes_nothing(history, estimate):
    bounds, again = Bounds(keep=80), Bounds(keep=80)
    for observation, said in history:
        bounds.add(observation, said, bounds.bound(said))
    again.restore(json.loads(json.dumps(bounds.to_state())))
    assert len(again) == len(bounds) <= 80
    for one in (bounds, again):
        assert one.bound(estimate) >= 0
        around = one.around(estimate)
        assert (around is None) == (not one.known or not len(one._bin(np.log10(max(estimate, 1))).sorted))
        if around is not None:
            quantiles = [around.quantile(q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
            assert quantiles == sorted(quantiles) and quantiles[0] >= 0
    assert again.bound(estimate) == pytest.approx(bounds.bound(estimate), rel=1e-3)
    again.add(Observation(5.0), estimate)
    bounds.add(Observation(5.0), estimate)
    assert again.to_state() == bounds.to_state()


def test_while_little_is_known_a_bound_is_ten_times_the_estimate():
    bounds = Bounds()
    for _ in range(19):
        bounds.add(Observation(60.0), 50.0)
    assert bounds.bound(50.0) == 500.0 and bounds.around(50.0) is None
    bounds.add(Observation(60.0), 50.0)
    assert bounds.bound(50.0) == pytest.approx(60, rel=1e-3)
    assert bounds.around(50.0).quantile(0.5) == pytest.approx(60, rel=1e-3)


def test_of_censored_waits_only_what_is_certain_counts():
    bounds = Bounds()
    for _ in range(100):
        bounds.add(Observation(200.0), 100.0)
    before = bounds.to_state()
    for nothing_new in (Observation.at_most(150.0), Observation.more_than(50.0), Observation.nothing()):
        bounds.add(nothing_new, 100.0)
    assert bounds.to_state() == before
    bounds.add(Observation.at_most(10.0), 100.0)
    assert bounds.to_state()["levels"] == before["levels"] and len(bounds) == 101
    bounds.add(Observation.more_than(5000.0), 100.0)
    assert bounds.to_state()["levels"] > before["levels"], "it is longer than its bound, however long it is"
    for _ in range(20):
        bounds.add(Observation.more_than(5000.0), 100.0)
    assert bounds.bound(100.0) >= 5000.0


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"ratios": []}, {"levels": []}, {"edges": [3.0, 2.0]}, {"estimates": [-1.0] * 40}, {"new": "x"}],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change):
    bounds = Bounds()
    for i in range(40):
        bounds.add(Observation(10.0 * i), 100.0)
    before = bounds.to_state()
    with pytest.raises(ValueError, match="bounds state"):
        bounds.restore({**before, **change})
    assert bounds.to_state() == before


def test_the_plan_s_bound_counts_as_long_as_it_holds_for_the_jobs_that_are_predicted():
    common, planned = Common(), {PLANNED: 400.0}
    said = Estimate(-1, 100.0, {PLANNED: 400.0, BOUND: 400.0})
    assert common.bound(said, planned) == 400.0 and common.bound(said, {}) == 1000.0
    assert common.bound(Estimate(-1, 500.0), planned) == 500.0, "no less than the estimate"
    for i in range(200):
        common.learn(Observation(300.0 if i % 12 else 900.0), said)
    assert common.bound(said, planned) == 400.0, "one in twelve may be chance"
    for i in range(200):
        common.learn(Observation(300.0 if i % 5 else 900.0), said)
    assert common.bound(said, planned) == pytest.approx(900, rel=1e-3)
    again = Common()
    again.restore(json.loads(json.dumps(common.to_state())))
    assert again.bound(said, planned) == common.bound(said, planned)
    for _ in range(200):
        again.learn(Observation(300.0), said)
    assert again.bound(said, planned) == 400.0


def test_of_a_young_agent_a_bound_is_no_more_than_time_limits_allow():
    common, said = Common(), Estimate(-1, 400.0)
    assert common.bound(said, {}) == pytest.approx(4000, rel=1e-3), "a guess"
    assert common.bound(said, {LIMITS: 900.0}) == 900.0
    assert common.bound(said, {LIMITS: 9000.0}) == pytest.approx(4000, rel=1e-3)
    assert common.bound(said, {LIMITS: 100.0}) == 400.0, "no less than the estimate"
    assert common.bound(Estimate(-1, 2.0), {LIMITS: 0.0}) == pytest.approx(20, rel=1e-2)
    assert common.bound(Estimate(-1, 50.0), {LIMITS: 0.0}) == 60.0, "Slurm has to look first"
    assert common.bound(said, {LIMITS: 900.0, PLANNED: 950.0}) == 950.0, "what is learned counts more"
    common.learn(Observation(2000.0), said)
    assert common.bound(said, {LIMITS: 900.0}) == pytest.approx(2000, rel=1e-3), "it has been longer"
    for _ in range(19):
        common.learn(Observation(2000.0), said)
    assert common.bound(said, {LIMITS: 900.0}) == pytest.approx(2000, rel=1e-3), "others are put before it here"


def test_what_classes_have_in_common_survives_a_restart():
    common = Common()
    for i in range(80):
        said = Estimate(-1, 20.0, {BOUND: 100.0, "slurm": 7.0} if i % 2 else {BOUND: 100.0})
        common.learn(Observation(30.0), said)
    assert common.bound(Estimate(-1, 20.0), {}) == pytest.approx(30, rel=1e-3)
    assert len(common.judged) == 40 and common.judged.rows()[0] == {"wait": 30.0, "penstock": 20.0, "slurm": 7.0}
    again = Common()
    again.restore(json.loads(json.dumps(common.to_state())))
    assert again.to_state() == common.to_state()
    with pytest.raises(ValueError, match="judged"):
        again.restore({**common.to_state(), "judged": {"version": 1, "names": ["x"], "rows": []}})
    assert again.to_state() == common.to_state()


def test_judged_waits_are_the_newest_and_say_who_said_nothing():
    judged = Judged(("a", "b"), 2)
    for i in range(3):
        judged.add(float(i), {"a": 2.0 * i, "c": 1.0})
    assert judged.rows() == [{"wait": 1.0, "a": 2.0, "b": None}, {"wait": 2.0, "a": 4.0, "b": None}]
    again = Judged(("a", "b"), 2)
    again.restore(json.loads(json.dumps(judged.to_state())))
    assert again.rows() == judged.rows()
    for rows in ([[None, 1.0, 2.0]], [[1.0, 2.0]], [[-1.0, 2.0, 3.0]], [["x", 1.0, 1.0]]):
        with pytest.raises(ValueError, match="judged"):
            again.restore({**judged.to_state(), "rows": rows})
    assert again.rows() == judged.rows()
