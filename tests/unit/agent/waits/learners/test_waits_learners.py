"""What holds for every learner of waits, and what each is for."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.values.waits import Distribution, Estimate, Known, Observation
from penstock.waits.learners.alternatives import ALTERNATIVES, LIVE_ALTERNATIVES, log_error
from penstock.waits.learners.hedge import charge, fixed_share
from penstock.waits.learners.hinted import Hinted
from penstock.waits.learners.history import FIRST, Last, Median
from penstock.waits.learners.learners import DEFAULT, PREDICTORS, make
from penstock.waits.learners.qbets import Qbets, needed, order
from penstock.waits.learners.share import ShareLearner
from penstock.waits.learners.share_mix import ShareMix

RNG = np.random.default_rng(0)
observations = st.builds(Observation, st.floats(0, 2e5, allow_nan=False), st.sampled_from(Known))
hints = st.dictionaries(st.sampled_from(["slurm", "queue"]), st.floats(0, 1e5), max_size=2)


def learn(learner, waits, hints=None):
    for wait in waits:
        learner.update(Observation(float(wait)), learner.predict(RNG, hints or {}), RNG)
    return learner


# -- what holds for all of them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PREDICTORS)
@given(st.lists(st.tuples(observations, hints, st.booleans()), max_size=80))
@settings(max_examples=20, deadline=None)
def test_whatever_happens_it_predicts_soundly_and_survives_a_restart(name, history):
    learner, rng = make(name, LIVE_ALTERNATIVES), np.random.default_rng(1)
    for observation, told, asked in history:
        learner.update(observation, learner.predict(rng, told) if asked else None, rng)
    again = make(name, LIVE_ALTERNATIVES)
    again.restore(json.loads(json.dumps(learner.to_state())))
    for told in ({}, {"slurm": 30.0, "queue": 4000.0}):
        belief, seconds = learner.distribution(told), learner.predict(np.random.default_rng(2), told).seconds
        assert belief.weights.sum() == pytest.approx(1) and (belief.weights >= 0).all()
        assert (np.diff(belief.values) >= 0).all() and belief.values.min() >= 0
        assert math.isfinite(seconds) and seconds >= 0
        assert belief.quantile(0.05) <= belief.point <= belief.quantile(0.95)
        assert again.predict(np.random.default_rng(2), told).seconds == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_state_that_is_not_its_own_is_refused_and_changes_nothing(name):
    learner = learn(make(name, ALTERNATIVES), [30, 40, 3000])
    before = learner.to_state()
    for wrong in (
        {},
        [],
        {**before, "version": 99},
        {k: v for k, v in before.items() if k not in ("weights", "waits", "beliefs", "log_weights")},
        {k: (math.nan if k not in ("version", "alternatives") else v) for k, v in before.items()},
    ):
        with pytest.raises(ValueError, match="state"):
            learner.restore(wrong)
        assert learner.to_state() == before
    if "alternatives" in before:
        with pytest.raises(ValueError, match="alternatives"):
            make(name, LIVE_ALTERNATIVES).restore(before)


@pytest.mark.parametrize("name", [n for n in PREDICTORS if not n.startswith("asa")])
def test_censored_waits_pull_only_towards_what_is_certain(name):
    def after(observation):
        learner = learn(make(name, ALTERNATIVES), [500] * 5)
        for _ in range(30):
            learner.update(observation, None, RNG)
        return learner.predict(RNG).seconds

    assert after(Observation.at_most(5000)) == 500 == after(Observation.more_than(50))
    assert after(Observation.nothing()) == 500
    if name != "qbets":
        assert after(Observation.at_most(50)) <= 50
        assert after(Observation.more_than(5000)) >= 5000


def test_names_are_checked():
    assert DEFAULT in PREDICTORS
    with pytest.raises(ValueError, match="share-mix"):
        make("shares", ALTERNATIVES)
    for name in PREDICTORS:
        assert make(name, ALTERNATIVES).name == name


# -- distributions and losses ------------------------------------------------------------------------------------------


def test_quantiles_by_hand():
    waits = Distribution.of([30, 10, 20, 40], np.array([1, 4, 3, 2]))
    assert waits.values.tolist() == [10, 20, 30, 40]
    assert [waits.quantile(q) for q in (0.0, 0.4, 0.41, 0.5, 0.7, 0.71, 0.8, 0.81, 1.0)] == [
        *(10, 10, 20, 20, 20, 30, 30, 40, 40)
    ]
    rng = np.random.default_rng(1)
    drawn = np.bincount([waits.draw(rng) for _ in range(20_000)], minlength=4) / 20_000
    assert drawn == pytest.approx([0.4, 0.3, 0.1, 0.2], abs=0.015)


def test_losses_by_hand():
    logs = np.log10([10.0, 100.0, 1000.0, 100_000.0])
    assert charge(logs, Observation(100), 1.0).tolist() == pytest.approx([1, 0, 1, 1])
    assert charge(logs, Observation(100), 2.0).tolist() == pytest.approx([1, 0, 1, 2])
    assert charge(logs, Observation.at_most(100), 1.0).tolist() == pytest.approx([0, 0, 1, 1])
    assert charge(logs, Observation.more_than(100), 1.0).tolist() == pytest.approx([1, 0, 0, 0])
    assert charge(logs, Observation(100), 9.0, quantile=0.9).tolist() == pytest.approx([1.8, 0, 0.2, 0.6])
    assert charge(logs, Observation.nothing(), 1.0) is None


def test_fixed_share_by_hand():
    new = fixed_share(np.array([0.5, 0.5]), np.array([0.0, 1.0]), math.log(4), 0.1)
    assert new == pytest.approx([0.9 * 0.8 + 0.05, 0.9 * 0.2 + 0.05])


# -- each for itself ---------------------------------------------------------------------------------------------------


def test_share_follows_a_change_within_a_few_waits_where_algorithm_1_takes_hundreds():
    for learner in (ShareLearner(ALTERNATIVES), ShareMix(ALTERNATIVES)):
        learn(learner, [300] * 200)
        learn(learner, [3000] * 5)
        assert learner.predict(RNG).seconds == 3000


def test_share_settles_on_the_median_of_noisy_waits():
    rng = np.random.default_rng(4)
    share = learn(ShareLearner(ALTERNATIVES, eta=4, share=0.005), 1000 * np.exp(0.5 * rng.standard_normal(400)))
    assert share.predict(RNG).seconds in (850, 900, 950, 1000)


def test_share_can_aim_at_a_quantile():
    rng = np.random.default_rng(5)
    waits = 1000 * np.exp(rng.standard_normal(3000))
    share, covered = ShareLearner(ALTERNATIVES, eta=4, share=0.005, quantile=0.9), 0
    for wait in waits.tolist():
        covered += wait <= share.predict(RNG).seconds
        share.update(Observation(wait), None, RNG)
    assert 0.8 < covered / 3000 < 0.95


def test_the_mix_trusts_the_expert_that_is_right():
    rng, mix = np.random.default_rng(6), ShareMix()
    for _ in range(100):
        wait = 10 ** rng.uniform(1, 5)
        told = {"queue": wait * 1.1, "slurm": 3.0}
        mix.update(Observation(wait), mix.predict(RNG, told), RNG)
    weights = mix.weights()
    assert weights["queue"] > 0.5 and weights["slurm"] < 0.05
    assert sum(weights.values()) == pytest.approx(1)
    assert mix.predict(RNG, {"queue": 777.0, "slurm": 3.0}).seconds == 777.0
    assert not {"queue", "slurm"} & mix.predict(RNG).said.keys()


def test_an_expert_that_says_nothing_is_neither_counted_nor_charged():
    mix = learn(ShareMix(), [200] * 50)
    fresh = ShareMix().weights()
    assert mix.weights()["slurm"] == pytest.approx(fresh["slurm"])
    assert mix.predict(RNG).seconds == 200


def test_the_mix_beats_the_median_and_the_last_wait_on_noisy_levels():
    rng = np.random.default_rng(8)
    waits = np.repeat([95, 4000, 250, 20_000], 150) * np.exp(0.5 * rng.standard_normal(600))
    errors = {}
    for learner in (ShareMix(), Median(), Last()):
        errors[learner.name] = 0.0
        for wait in waits.tolist():
            estimate = learner.predict(RNG)
            errors[learner.name] += log_error(estimate.seconds, wait)
            learner.update(Observation(wait), estimate, RNG)
    assert errors["share-mix"] < errors["median"] < errors["last"]


def test_a_mix_of_the_release_before_is_read():
    """It had the factors by which waits missed its estimate, which all classes have in common now."""
    mix = learn(ShareMix(), [200] * 30, {"queue": 190.0})
    before = {**mix.to_state(), "version": 2, "spread": {"level": 0.95, "logs": [0] * 30}}
    again = ShareMix()
    again.restore(json.loads(json.dumps(before)))
    assert again.weights() == pytest.approx(mix.weights()) and again.history().point == mix.history().point
    assert again.predict(RNG, {"queue": 190.0}).seconds == mix.predict(RNG, {"queue": 190.0}).seconds


def test_mixes_that_have_their_trust_in_common_learn_it_together():
    one, other = ShareMix(), ShareMix()
    other.trust = one.trust
    learn(other, [500] * 20)
    for wait in (10 ** np.random.default_rng(7).uniform(1, 5, 60)).tolist():
        one.update(Observation(wait), one.predict(RNG, {"queue": wait}), RNG)
    assert other.weights() == one.weights() and one.weights()["queue"] > 0.5
    assert other.predict(RNG, {"queue": 9000.0}).seconds == 9000.0
    assert other.predict(RNG).seconds == 500


def test_bounds_of_quantiles_are_those_of_the_binomial():
    assert needed(0.95, 0.95) == 59
    assert order(58, 0.95, 0.95) is None and order(59, 0.95, 0.95) == 59
    # 93 waits are the fewest of which the second largest bounds it (Wilks 1941)
    assert order(92, 0.95, 0.95) == 92 and order(93, 0.95, 0.95) == 92
    assert order(5, 0.5, 0.95) == 5


def test_qbets_bounds_once_it_has_59_waits_and_forgets_after_a_change():
    rng, qbets = np.random.default_rng(2), Qbets()
    learn(qbets, rng.exponential(100, 58))
    assert qbets.bound() is None
    learn(qbets, rng.exponential(100, 200))
    assert 200 < qbets.bound() < 700
    learn(qbets, [5000.0] * 2)
    assert len(qbets._waits) == 260
    learn(qbets, [5000.0])
    assert len(qbets._waits) == 59 and qbets.bound() == 5000.0


def test_qbets_covers_what_it_promises():
    rng, qbets, covered, asked = np.random.default_rng(3), Qbets(), 0, 0
    for wait in rng.lognormal(5, 1, 3000).tolist():
        if qbets.bound() is not None:
            asked += 1
            covered += wait <= qbets.bound()
        qbets.update(Observation(wait), None, RNG)
    assert covered / asked >= 0.95


def test_baselines_by_hand():
    assert Last().predict(RNG).seconds == FIRST == Median().predict(RNG).seconds
    assert learn(Last(), [5, 7]).predict(RNG).seconds == 7
    assert learn(Median(), [1, 9, 5]).predict(RNG).seconds == 5
    assert learn(Median(), [10, 1000]).predict(RNG).seconds == pytest.approx(100)
    assert learn(Median(), [1] * 5 + [9] * 11).predict(RNG).seconds == 9
    slurm = learn(Hinted("slurm"), [60])
    assert slurm.predict(RNG, {"slurm": 9.0}) == Estimate(-1, 9.0) and slurm.predict(RNG).seconds == 60


def test_settings_are_checked():
    for wrong in ({"eta": 0}, {"share": 1.0}, {"quantile": 1.0}):
        with pytest.raises(ValueError, match="eta"):
            ShareLearner(**wrong)
    for wrong in ({"etas": ()}, {"etas": (0.0,)}, {"shares": (2.0,)}):
        with pytest.raises(ValueError, match="etas"):
            ShareMix(**wrong)
    with pytest.raises(ValueError, match="within"):
        Qbets(q=1.0)
