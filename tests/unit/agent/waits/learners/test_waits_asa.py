"""Algorithm 1 of the ASA paper: the example by hand, the rules of its loss, and what must hold for any history."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.values.waits import Estimate, Known, Observation
from penstock.waits.learners.alternatives import ALTERNATIVES, LIVE_ALTERNATIVES, nearest
from penstock.waits.learners.asa import GAMMAS, POLICIES, AsaLearner

PAPER = (1.0, 10.0, 100.0, 1000.0)  # section 3.2's example of m = 4

waits = st.floats(0, 2e5, allow_nan=False)
observations = st.builds(Observation, waits, st.sampled_from(Known))
charges = st.lists(st.tuples(st.integers(0, 52), observations), max_size=200)


def test_the_alternatives_are_the_53_of_the_design():
    assert len(ALTERNATIVES) == 53
    assert ALTERNATIVES[0] == 10 and ALTERNATIVES[17] == 95
    assert ALTERNATIVES[18] == 100 and ALTERNATIVES[35] == 950
    assert ALTERNATIVES[36] == 1000 and ALTERNATIVES[44] == 9000
    assert ALTERNATIVES[45] == 10_000 and ALTERNATIVES[51] == 70_000
    assert ALTERNATIVES[52] == 100_000
    assert list(ALTERNATIVES) == sorted(set(ALTERNATIVES))


def test_it_begins_uniform():
    assert AsaLearner().p == pytest.approx([1 / 53] * 53)


def test_one_round_by_hand():
    """True wait 12 s, so 10 s is optimal. Trials 0, 2, 1, 3, 2: the last makes l = (1, 0, 2, 1) and closes the round.

    p = (e^-1, 1, e^-2, e^-1) / 1.871094 = (.196613, .534447, .072329, .196613).
    """
    asa = AsaLearner(PAPER)
    wait = Observation(12.0)
    assert [asa.charge(a, wait) for a in (0, 2, 1, 3)] == [1, 1, 0, 1]
    assert asa.losses == (1, 0, 1, 1)
    assert asa.round == 1 and asa.p == pytest.approx([0.25] * 4), "nothing moves while no loss exceeds 1"
    assert asa.charge(2, wait) == 1
    assert asa.round == 2 and asa.losses == (0, 0, 0, 0)
    assert asa.p == pytest.approx([0.1966119, 0.5344466, 0.0723294, 0.1966119], abs=1e-6)
    # a second round multiplies what is there: l = (2, 0, 0, 0)
    asa.charge(0, wait)
    asa.charge(0, wait)
    weights = np.array([math.exp(-3), 1, math.exp(-2), math.exp(-1)])
    assert asa.p == pytest.approx(weights / weights.sum())


def test_gamma_scales_the_update_and_never_grows():
    asa = AsaLearner(PAPER, "harmonic")
    for _ in range(2):
        asa.charge(0, Observation(1000))
        asa.charge(0, Observation(1000))
    weights = np.array([math.exp(-2 - 2 / 2), 1, 1, 1])
    assert asa.p == pytest.approx(weights / weights.sum())
    for gamma in GAMMAS.values():
        values = [gamma(t) for t in range(1, 100)]
        assert values == sorted(values, reverse=True) and values[0] == 1.0


@pytest.mark.parametrize(
    ("wait", "index"),
    [(0, 0), (1, 0), (5.4, 0), (5.5, 0), (5.51, 1), (10, 1), (55, 1), (55.1, 2), (550, 2), (551, 3), (1e9, 3)],
)
def test_nearest_and_ties_go_to_the_smaller(wait, index):
    assert nearest(PAPER, wait) == index


@given(waits)
def test_nearest_is_nearest(wait):
    best = nearest(ALTERNATIVES, wait)
    distances = [abs(a - wait) for a in ALTERNATIVES]
    assert distances[best] == min(distances) and best == distances.index(min(distances))


def test_a_hidden_wait_charges_only_what_is_certainly_wrong():
    asa = AsaLearner(PAPER)
    hidden = Observation.at_most(12.0)
    assert [asa.loss(i, hidden) for i in range(4)] == [0, 0, 1, 1]
    at_once = Observation.at_most(0.0)
    assert [asa.loss(i, at_once) for i in range(4)] == [asa.loss(i, Observation(0.0)) for i in range(4)] == [0, 1, 1, 1]


@given(waits, st.floats(0, 1), st.integers(0, 52))
def test_a_censored_charge_is_never_wrong(bound, fraction, index):
    """Whatever the true wait was within its bound, the exact rule would have charged as well."""
    asa = AsaLearner()
    assert asa.loss(index, Observation.at_most(bound)) <= asa.loss(index, Observation(bound * fraction))


@given(charges)
@settings(max_examples=50)
def test_p_is_a_distribution_and_the_open_round_is_open(history):
    asa = AsaLearner()
    for index, observation in history:
        before = asa.round
        asa.charge(index, observation)
        assert asa.p.sum() == pytest.approx(1.0)
        assert (asa.p > 0).all()
        assert max(asa.losses) <= 1
        assert asa.round - before in (0, 1)
    assert asa.trials == len(history)


@given(st.permutations(range(4)), st.integers(0, 3))
def test_within_a_round_the_order_of_trials_does_not_matter(order, last):
    def learned(trials):
        asa = AsaLearner((1, 10, 100, 1000, 10_000))
        for index in trials:
            asa.charge(index, Observation(10_000))
        asa.charge(last, Observation(10_000))
        return asa.p

    assert learned(order) == pytest.approx(learned(range(4)))


@given(charges)
@settings(max_examples=50)
def test_the_state_goes_through_json_exactly(history):
    asa = AsaLearner()
    for index, observation in history:
        asa.charge(index, observation)
    again = AsaLearner()
    again.restore(json.loads(json.dumps(asa.to_state())))
    assert again.to_state() == asa.to_state()
    assert (again.p == asa.p).all()
    assert again.predict(np.random.default_rng(1)) == asa.predict(np.random.default_rng(1))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"alternatives": [1.0, 10.0, 100.0, 2000.0]},
        {"log_weights": [0.0]},
        {"log_weights": [0.0, 0.0, 0.0, math.nan]},
        {"losses": [2.0, 0.0, 0.0, 0.0]},
        {"losses": "many"},
        {"round": None},
        {"round": 0},
    ],
)
def test_a_state_that_does_not_fit_is_refused(change):
    asa = _learned()
    before = asa.to_state()
    with pytest.raises(ValueError, match="ASA state"):
        asa.restore({**asa.to_state(), **change})
    assert asa.to_state() == before


def test_a_state_without_a_key_is_refused():
    state = AsaLearner(PAPER).to_state()
    del state["trials"]
    with pytest.raises(ValueError, match="damaged"):
        AsaLearner(PAPER).restore(state)


@pytest.mark.parametrize("alternatives", [(), (10, 1), (1, 1), (-1, 2), (1, math.inf)])
def test_alternatives_must_ascend(alternatives):
    with pytest.raises(ValueError, match="alternatives"):
        AsaLearner(alternatives)


def test_settings_and_charges_are_checked():
    with pytest.raises(ValueError, match="gamma"):
        AsaLearner(gamma="rising")
    for index in (-1, 53):
        with pytest.raises(ValueError, match="no alternative"):
            AsaLearner().charge(index, Observation(1))
    for wait in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="wait"):
            Observation(wait)


def test_samples_follow_p():
    asa = AsaLearner(PAPER)
    for index in (0, 2, 1, 3, 2):
        asa.charge(index, Observation(12.0))
    rng = np.random.default_rng(7)
    counts = np.zeros(4)
    for _ in range(20_000):
        estimate = asa.predict(rng)
        assert estimate == Estimate(estimate.index, PAPER[estimate.index])
        counts[estimate.index] += 1
    assert counts / 20_000 == pytest.approx(asa.p, abs=0.012)


def _learn(asa, wait, trials, rng):
    for _ in range(trials):
        asa.charge(asa.predict(rng).index, Observation(wait))


@pytest.mark.parametrize("wait", [3.0, 12.0, 321.0, 4_400.0, 99_000.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_converges_on_a_constant_wait(wait, seed):
    asa = AsaLearner()
    _learn(asa, wait, 2000, np.random.default_rng(seed))
    best = nearest(ALTERNATIVES, wait)
    assert asa.p.argmax() == best
    assert asa.p[best] > 0.9


def test_it_follows_a_queue_that_changes():
    rng = np.random.default_rng(4)
    asa = AsaLearner()
    _learn(asa, 300, 1000, rng)
    _learn(asa, 3000, 4000, rng)
    assert asa.p.argmax() == ALTERNATIVES.index(3000)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_total_loss_stays_within_the_bound_of_the_proof(noise, record_property):
    """Equation 15 with delta = .01 over 50 seeds, where the wait jumps twice; eta(t) is the number of rounds."""
    t, m, slacks = 600, len(ALTERNATIVES), []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        levels = np.repeat(rng.choice(ALTERNATIVES, 3), t // 3) * np.exp(noise * rng.standard_normal(t))
        asa, loss, best = AsaLearner(), 0.0, np.zeros(m)
        for wait in levels.tolist():
            loss += asa.charge(asa.predict(rng).index, Observation(wait))
            best += np.arange(m) != nearest(ALTERNATIVES, wait)
        bound = 4 * asa.round + math.log(m) + math.sqrt(2 * t * math.log(m / 0.01))
        slacks.append(bound - (loss - best.min()))
    record_property("slack", f"{min(slacks):.0f} to {max(slacks):.0f} of {t} trials")
    print(f"slack of the bound (15), noise {noise}: {min(slacks):.0f} to {max(slacks):.0f}")
    assert min(slacks) >= 0


def test_charges_that_fall_on_all_alike_leave_p_as_it_is():
    """Only differences count: the weights do not sink together until the floor makes them all equal."""
    asa = AsaLearner((1, 10))
    for _ in range(5):
        asa.charge(0, Observation(10))
        asa.charge(0, Observation(10))
    before = asa.p
    for _ in range(1000):
        for index, wait in ((0, 10), (0, 10), (1, 1), (1, 1)):
            asa.charge(index, Observation(wait))
    assert asa.p == pytest.approx(before)


def test_a_hundred_thousand_rounds_leave_sound_numbers():
    asa = AsaLearner(PAPER)
    for _ in range(200_000):
        asa.charge(0, Observation(1000))
    assert asa.round == 100_001
    assert np.isfinite(asa.p).all() and asa.p.sum() == pytest.approx(1)
    assert 0 < asa.p[0] < 1e-200
    # and what was learned so firmly can be unlearned: the floor bounds it
    for _ in range(400):
        for index in (1, 2, 3):
            asa.charge(index, Observation(1))
            asa.charge(index, Observation(1))
    assert asa.p.argmax() == 0


def _learned():
    asa = AsaLearner(PAPER)
    for index in (0, 2, 1, 3, 2, 1):
        asa.charge(index, Observation(12.0))
    return asa


def test_the_live_alternatives_have_the_answers_of_an_idle_cluster():
    assert (0.0, 1.0, *ALTERNATIVES) == LIVE_ALTERNATIVES
    assert nearest(LIVE_ALTERNATIVES, 0.2) == 0


def test_a_wait_that_is_not_over_charges_only_what_is_too_short():
    asa = AsaLearner(PAPER)
    assert [asa.loss(i, Observation.more_than(120.0)) for i in range(4)] == [1, 1, 0, 0]
    assert [asa.loss(i, Observation.nothing()) for i in range(4)] == [0, 0, 0, 0]


def test_greedy_walks_up_until_it_is_right_and_stays():
    asa, rng = AsaLearner(policy="greedy"), np.random.default_rng(0)
    picked = []
    for _ in range(40):
        estimate = asa.predict(rng)
        picked.append(estimate.index)
        asa.update(Observation(30.0), estimate, rng)
    assert picked[:5] == [0, 1, 2, 3, 4] and set(picked[4:]) == {4}


def test_greedy_counts_what_was_perceived_over_all_rounds():
    """Each alternative once, then the smallest a second time: line 7 closes the round, and nothing is forgotten."""
    asa, rng = AsaLearner((1.0, 2.0, 3.0), policy="greedy"), np.random.default_rng(0)
    picked = []
    for wait in (3, 1, 1, 2, 3, 3):
        estimate = asa.predict(rng)
        picked.append(estimate.index)
        asa.update(Observation(float(wait)), estimate, rng)
    assert picked == [0, 1, 2, 0, 1, 2]
    assert asa.p[0] < asa.p[1]


def test_tuned_replays_the_wait_it_saw():
    """50 more trials a wait, drawn from p: it is there after a few waits, where default takes hundreds."""
    asa, rng = AsaLearner(policy="tuned"), np.random.default_rng(3)
    for n in range(1, 31):
        asa.update(Observation(700.0), asa.predict(rng), rng)
        assert asa.trials == 51 * n
    assert asa.p[ALTERNATIVES.index(700)] > 0.9
    default = AsaLearner()
    _learn(default, 700.0, 30, rng)
    assert default.p.max() < 0.5


def test_replays_are_the_trials_of_algorithm_1():
    """The same draws, one by one through `charge`, give the same p."""
    asa = AsaLearner(PAPER, policy="tuned", repetition=40)
    asa.update(Observation(100.0), Estimate(0, 1.0), np.random.default_rng(9))
    plain, rng, left = AsaLearner(PAPER), np.random.default_rng(9), 40
    plain.charge(0, Observation(100.0))
    while left:
        number = plain.round
        for index in plain.p.cumsum().searchsorted(rng.random(left)).tolist():
            plain.charge(index, Observation(100.0))
            left -= 1
            if plain.round != number:
                break
    assert plain.to_state() == asa.to_state()


def test_what_was_not_asked_teaches_nothing():
    for policy in POLICIES:
        asa, rng = AsaLearner(policy=policy), np.random.default_rng(0)
        for estimate in (None, Estimate(-1, 5.0), Estimate(53, 5.0)):
            asa.update(Observation(10.0), estimate, rng)
        asa.update(Observation.nothing(), Estimate(4, 30.0), rng)
        assert asa.trials == 0


def test_policies_are_checked():
    with pytest.raises(ValueError, match="policy"):
        AsaLearner(policy="bold")
    with pytest.raises(ValueError, match="repetition"):
        AsaLearner(policy="tuned", repetition=-1)
